"""Policies for kuhn_poker: an equilibrium, a coin, silence."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence

from agentrl.messages import Message
from agentrl.task import Task

from .maker import Maker, Policy, noop

BETS = {
    "": {"J": 0.0, "Q": 0.0, "K": 0.0},
    "pass": {"J": 1 / 3, "Q": 0.0, "K": 1.0},
    "bet": {"J": 0.0, "Q": 1 / 3, "K": 1.0},
    "pass, bet": {"J": 0.0, "Q": 1 / 3, "K": 1.0},
}
"""How the hand went so far -> card -> chance of a bet: Kuhn's equilibrium (1950) in which the first player never opens."""


def equilibrium(task: Task, rng: random.Random) -> Policy:
    def play(messages: Sequence[Message]) -> str:
        card, so_far = _seen(messages)
        return "bet" if rng.random() < BETS[so_far][card] else "pass"

    return play


def coin(task: Task, rng: random.Random) -> Policy:
    return lambda messages: rng.choice(["bet", "pass"])


def _seen(messages: Sequence[Message]) -> tuple[str, str]:
    """(the card, what was said before) as last shown."""
    found = re.search(r"Your card is (J|Q|K)\.(?: So far: (.*)\.)?", messages[-1].text)
    if found is None:
        raise ValueError(f"no card in {messages[-1].text!r}")
    return found[1], found[2] or ""


POLICIES: Mapping[str, Maker] = {"gold": equilibrium, "random": coin, "noop": noop}
