"""Policies for guess_number: halving, any number, silence."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence

from agentrl.messages import Message
from agentrl.task import Task

from .maker import Maker, Policy, noop


def halving(task: Task, rng: random.Random) -> Policy:
    def play(messages: Sequence[Message]) -> str:
        low, high = _interval(messages)
        return str((low + high) // 2)

    return play


def any_number(task: Task, rng: random.Random) -> Policy:
    def play(messages: Sequence[Message]) -> str:
        return str(rng.randint(*_bounds(messages)))

    return play


def _bounds(messages: Sequence[Message]) -> tuple[int, int]:
    """(low, high) as the first observation names them."""
    first = next(message for message in messages if message.role == "user")
    found = re.search(r"between (-?\d+) and (-?\d+)", first.text)
    if found is None:
        raise ValueError(f"no range in the first observation {first.text!r}")
    return int(found[1]), int(found[2])


def _interval(messages: Sequence[Message]) -> tuple[int, int]:
    """Where the number can still be, after the answers so far."""
    low, high = _bounds(messages)
    guess = 0
    for message in messages:
        if message.role == "assistant":
            guess = int(message.text)
        elif message.text == "Higher.":
            low = guess + 1
        elif message.text == "Lower.":
            high = guess - 1
    return low, high


POLICIES: Mapping[str, Maker] = {"gold": halving, "random": any_number, "noop": noop}
