"""Noughts and crosses between two agents, as text. The policy plays both sides, or one against a scripted opponent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agentrl.agent import Agent, AgentSpec
from agentrl.env import Env
from agentrl.errors import UsageError, nearest
from agentrl.messages import Message, ParseError
from agentrl.task import Task

from .tictactoe_rules import EMPTY, best_cells, free, is_full, shown, winner

OPPONENTS = ("self", "random", "gold")
TRIES = 3


class TicTacToe(Env):
    """Noughts and crosses: x begins, three in a row win.

    Reward: 1 for a win, 0 for a draw, -1 for a loss, to each side its own. Who says no free cell three times in a row loses.
    """

    max_turns = 15
    """Answers of each side: three for each of five moves."""
    system_prompt = "You play noughts and crosses. Say the number of a free cell, 1 to 9."
    opponent: str = "self"
    """self: the policy is both sides, and both are trained. random, gold: the policy is x against a script."""

    def scripted(self, messages: Sequence[Message]) -> str:
        cells = free(self._board) if self.opponent == "random" else best_cells(self._board, "o")
        return str(self.rng.choice(cells) + 1)

    @property
    def agents(self) -> Mapping[str, AgentSpec]:  # type: ignore[override]
        if self.opponent not in OPPONENTS:
            raise UsageError(f"tictactoe has no opponent {self.opponent!r}; {nearest(self.opponent, OPPONENTS)}")
        return {"x": AgentSpec(), "o": AgentSpec(says=None if self.opponent == "self" else TicTacToe.scripted)}

    async def play(self, task: Task, *agents: Agent) -> Any:
        self._board = [EMPTY] * 9
        turn = 0
        while True:
            agent, other = agents[turn % 2], agents[(turn + 1) % 2]
            try:
                cell = await agent.ask(f"You are {agent.name}.\n{shown(self._board)}", self._free_cell, tries=TRIES)
            except ParseError:
                return self._over({agent: -1.0, other: 1.0})
            self._board[cell] = agent.name
            turn += 1
            if winner(self._board):
                return self._over({agent: 1.0, other: -1.0})
            if is_full(self._board):
                return self._over({agent: 0.0, other: 0.0})

    def _free_cell(self, text: str) -> int:
        digits = [int(sign) for sign in text if sign in "123456789"]
        if not digits:
            raise ParseError("Say the number of a free cell, 1 to 9.")
        cell = digits[-1] - 1
        if self._board[cell] != EMPTY:
            left = ", ".join(str(index + 1) for index in free(self._board))
            raise ParseError(f"Cell {cell + 1} is taken; free are {left}.")
        return cell

    def _over(self, rewards: Mapping[Agent, float]) -> dict[str, float]:
        for agent, reward in rewards.items():
            result = "You have won." if reward > 0 else "You have lost." if reward < 0 else "A draw."
            agent.show(f"{shown(self._board)}\n{result}")
        return {agent.name: reward for agent, reward in rewards.items()}
