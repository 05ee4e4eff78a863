"""Kuhn poker: three cards, two players, one bet. The smallest game in which bluffing pays. The policy plays both seats."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agentrl.agent import Agent
from agentrl.env import Env
from agentrl.messages import ParseError
from agentrl.task import Task

CARDS = ("J", "Q", "K")
PAYS = {"pass pass": 1, "bet pass": 1, "pass bet pass": 1, "bet bet": 2, "pass bet bet": 2}
"""How a hand may go -> chips that the loser pays."""
RULES = (
    "Kuhn poker. The cards are J, Q and K; K is the highest. Two players put in one chip and get a card each. In turn they say "
    "bet (one chip more) or pass. After a bet, bet calls it and pass gives up. Say bet or pass."
)


class KuhnPoker(Env):
    """Kuhn poker between two agents, in which neither sees the other's card.

    Reward: the chips won or lost, 2 at most, to each seat its own. With perfect play the first loses 1/18 a hand. Who says
    neither bet nor pass twice in a row loses 2.
    """

    agents = ("first", "second")
    max_turns = 4
    """Answers of each: two for each of two decisions."""
    system_prompt = RULES

    async def play(self, task: Task, *agents: Agent) -> Any:
        cards = dict(zip((agent.name for agent in agents), self.rng.sample(CARDS, 2), strict=True))
        said: list[str] = []
        while " ".join(said) not in PAYS:
            speaker = len(said) % 2
            agent = agents[speaker]
            before = f" So far: {', '.join(said)}." if said else ""
            question = f"You are {agent.name}. Your card is {cards[agent.name]}.{before}"
            try:
                said.append(await agent.ask(question, ["bet", "pass"], tries=2))
            except ParseError:
                return self._paid(agents, 1 - speaker, 2)
        return self._paid(agents, winner(said, list(cards.values())), PAYS[" ".join(said)])

    def _paid(self, agents: Sequence[Agent], won: int, chips: int) -> dict[str, float]:
        for agent in agents:
            agent.show(f"{agents[won].name} wins {chips}.")
        return {agent.name: float(chips if index == won else -chips) for index, agent in enumerate(agents)}


def winner(said: list[str], cards: list[str]) -> int:
    """0 or 1: who has not given up, or has the higher card.

    >>> winner(["bet", "pass"], ["J", "K"]), winner(["pass", "bet", "bet"], ["J", "K"])
    (0, 1)
    """
    if "bet" in said and said[-1] == "pass":
        return len(said) % 2  # the other than who spoke last
    return int(CARDS.index(cards[1]) > CARDS.index(cards[0]))
