"""Policies for tictactoe: perfect play, any free cell, silence."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence

from agentrl.envs.tictactoe_rules import EMPTY, best_cells, free
from agentrl.messages import Message
from agentrl.task import Task

from .maker import Maker, Policy, noop


def perfect(task: Task, rng: random.Random) -> Policy:
    def play(messages: Sequence[Message]) -> str:
        side, board = _seen(messages)
        return str(rng.choice(best_cells(board, side)) + 1)

    return play


def any_free(task: Task, rng: random.Random) -> Policy:
    def play(messages: Sequence[Message]) -> str:
        return str(rng.choice(free(_seen(messages)[1])) + 1)

    return play


def _seen(messages: Sequence[Message]) -> tuple[str, list[str]]:
    """(x or o, the board) as last shown."""
    found = [m for message in messages if (m := re.match(r"You are (x|o)\.\n(.*)", message.text, re.DOTALL))]
    side, rows = found[-1].groups()
    return side, [EMPTY if sign.isdigit() else sign for sign in rows.split()]


POLICIES: Mapping[str, Maker] = {"gold": perfect, "random": any_free, "noop": noop}
