"""tictactoe and kuhn_poker: the rules by hand, perfect play, each side's own reward, and self-play as samples."""

from __future__ import annotations

import asyncio
import random
from itertools import product
from typing import Any

import pytest

from agentrl import registry
from agentrl.engine import Sampling
from agentrl.envs.kuhn_poker import CARDS, PAYS
from agentrl.envs.kuhn_poker import winner as kuhn_winner
from agentrl.envs.policies import policy
from agentrl.envs.policies.kuhn_poker import BETS
from agentrl.envs.tictactoe_rules import best_cells, free, winner
from agentrl.episode import Episode, EpisodeGroup
from agentrl.errors import UsageError
from agentrl.person import Person, PlainRenderer
from agentrl.rollout.loop import play
from agentrl.sample import samples_of
from agentrl.task import Task
from agentrl.world import check

from .bundled import LIMITS

SIDES = {"tictactoe": ("x", "o"), "kuhn_poker": ("first", "second")}


def game(name: str, main: Any, other: Any, number: int = 0, **settings: Any) -> Episode:
    """`main`, `other`: names of policies, or what answers."""
    task = Task(id=str(number))
    renderer = PlainRenderer()
    mine, theirs = (policy(name, who, task, seat) if isinstance(who, str) else who for seat, who in enumerate((main, other)))
    env = registry.find("env", name)()
    for key, value in settings.items():
        setattr(env, key, value)
    person = Person(mine, renderer, {SIDES[name][1]: theirs})
    return asyncio.run(play(env, person, renderer, task, seed=number, sampling=Sampling(), limits=LIMITS))


def both(episode: Episode) -> tuple[float, float]:
    return episode.reward, episode.others[0].reward


def says(*texts: str) -> Any:
    rest = iter(texts)
    return lambda messages: next(rest)


# Noughts and crosses.


def test_a_game_by_hand() -> None:
    episode = game("tictactoe", says("1", "I take 2", "3"), says("4", "1", "5"))
    assert both(episode) == (1.0, -1.0)
    assert episode.messages[1].text == "You are x.\n1 2 3\n4 5 6\n7 8 9"
    assert episode.messages[-1].text == "x x x\no o 6\n7 8 9\nYou have won."
    assert [m.text for m in episode.others[0].messages if m.role == "user"] == [
        "You are o.\nx 2 3\n4 5 6\n7 8 9",
        "You are o.\nx x 3\no 5 6\n7 8 9",
        "Cell 1 is taken; free are 3, 5, 6, 7, 8, 9.",
        "x x x\no o 6\n7 8 9\nYou have lost.",
    ]
    assert [turn.agent for turn in episode.turns] == ["x", "o", "x", "o", "o", "x"]


def test_who_says_no_free_cell_three_times_loses() -> None:
    assert both(game("tictactoe", "noop", "gold")) == (-1.0, 1.0)
    assert both(game("tictactoe", "gold", "noop")) == (1.0, -1.0)


def test_perfect_play_draws_with_itself_and_never_loses() -> None:
    assert {both(game("tictactoe", "gold", "gold", n)) for n in range(10)} == {(0.0, 0.0)}
    first = [game("tictactoe", "gold", "random", n).reward for n in range(40)]
    second = [game("tictactoe", "random", "gold", n).reward for n in range(40)]
    assert min(first) == 0.0
    assert sum(first) > 30  # nine of ten games, and more
    assert max(second) == 0.0


def test_best_cells_against_every_game_that_can_follow() -> None:
    """By playing all games out, without a memory of positions."""

    def best(board: list[str], side: str) -> tuple[int, list[int]]:
        other = "o" if side == "x" else "x"
        if winner(board):
            return -1, []
        if not free(board):
            return 0, []
        values = {}
        for cell in free(board):
            after = [*board[:cell], side, *board[cell + 1 :]]
            values[cell] = -best(after, other)[0]
        most = max(values.values())
        return most, [cell for cell, value in values.items() if value == most]

    rng = random.Random(0)
    for _ in range(15):
        cells = rng.sample(range(9), 4)
        board = ["."] * 9
        for number, cell in enumerate(cells):
            board[cell] = "xo"[number % 2]
        if not winner(board):
            assert best_cells(board, "x") == best(board, "x")[1]


@pytest.mark.parametrize("opponent", ["random", "gold"])
def test_against_a_script_only_x_is_trained(opponent: str) -> None:
    episode = game("tictactoe", "gold", says(), opponent=opponent)
    assert [side.trained for side in episode.others] == [False]
    assert episode.reward >= 0.0
    assert len(samples_of([EpisodeGroup(id="g", number=0, task=episode.task, episodes=(episode,))])) == 1


def test_an_opponent_that_there_is_not_is_refused() -> None:
    with pytest.raises(UsageError, match="did you mean 'random'"):
        check(registry.find("env", "tictactoe"), {"opponent": "randon"})


# Kuhn poker.


@pytest.mark.parametrize(
    ("said", "cards", "expected"),
    [
        ("pass pass", "QJ", (1.0, -1.0)),
        ("pass pass", "QK", (-1.0, 1.0)),
        ("bet pass", "JK", (1.0, -1.0)),
        ("bet bet", "JK", (-2.0, 2.0)),
        ("pass bet pass", "KJ", (-1.0, 1.0)),
        ("pass bet bet", "KJ", (2.0, -2.0)),
    ],
)
def test_hands_by_hand(said: str, cards: str, expected: tuple[float, float]) -> None:
    number = next(n for n in range(100) if dealt(n) == cards)
    words = said.split()
    episode = game("kuhn_poker", says(*words[::2]), says(*words[1::2]), number)
    assert both(episode) == expected


def dealt(number: int) -> str:
    """The cards of the n-th hand."""
    episode = game("kuhn_poker", says("bet"), says("bet"), number)
    conversations = (episode.messages, episode.others[0].messages)
    return "".join(talk[1].text.partition("card is ")[2][0] for talk in conversations)


def test_neither_sees_the_others_card() -> None:
    episode = game("kuhn_poker", says("bet"), says("bet"))
    cards = dealt(0)
    assert f"card is {cards[1]}" not in "".join(m.text for m in episode.messages)
    assert f"card is {cards[0]}" not in "".join(m.text for m in episode.others[0].messages)


def test_who_says_nothing_loses_two() -> None:
    assert both(game("kuhn_poker", "noop", "gold")) == (-2.0, 2.0)


def test_the_gold_policy_is_an_equilibrium() -> None:
    """Against it no way of playing gets more than the game's value: -1/18 for the first, 1/18 for the second."""

    def value(first: Any, second: Any) -> float:
        """What the first gets on average over the six deals; first(said, card) and second(...) give chances of a bet."""

        def on(said: list[str], cards: tuple[str, str]) -> float:
            hand = " ".join(said)
            if hand in PAYS:
                return PAYS[hand] * (1.0 if kuhn_winner(said, list(cards)) == 0 else -1.0)
            who = len(said) % 2
            chance = (first, second)[who](", ".join(said), cards[who])
            return chance * on([*said, "bet"], cards) + (1 - chance) * on([*said, "pass"], cards)

        deals = [(a, b) for a, b in product(CARDS, CARDS) if a != b]
        return sum(on([], deal) for deal in deals) / len(deals)

    def gold(said: str, card: str) -> float:
        return BETS[said][card]

    def pure(choices: tuple[float, ...], told: tuple[str, str]) -> Any:
        table = {(said, card): choices[i] for i, (said, card) in enumerate(product(told, CARDS))}
        return lambda said, card: table[said, card]

    assert value(gold, gold) == pytest.approx(-1 / 18)
    everything = list(product((0.0, 1.0), repeat=6))
    assert max(value(pure(c, ("", "pass, bet")), gold) for c in everything) == pytest.approx(-1 / 18)
    assert min(value(gold, pure(c, ("pass", "bet"))) for c in everything) == pytest.approx(-1 / 18)


@pytest.mark.parametrize("name", ["tictactoe", "kuhn_poker"])
def test_both_seats_of_self_play_become_samples_of_their_own_groups(name: str) -> None:
    episode = game(name, "random", "random")
    samples = samples_of([EpisodeGroup(id="g", number=0, task=episode.task, episodes=(episode,))])
    assert [sample.group for sample in samples] == ["", f"/{SIDES[name][1]}"]
    assert samples[0].reward == -samples[1].reward == episode.reward
    assert all(sample.trained_tokens for sample in samples)


@pytest.mark.parametrize("name", ["tictactoe", "kuhn_poker"])
def test_the_same_seed_is_the_same_game(name: str) -> None:
    one, again = game(name, "random", "random", 3), game(name, "random", "random", 3)
    assert one.messages == again.messages
    assert len({tuple(m.text for m in game(name, "random", "random", n).messages) for n in range(8)}) > 1
