"""Policies for minesweeper: every safe cell, a random closed cell each turn, silence."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Mapping, Sequence

from agentrl.envs.minesweeper_tasks import laid
from agentrl.envs.moves import Cell
from agentrl.messages import Message
from agentrl.task import Task

from .maker import Maker, Policy, noop, script


def every_safe_cell(task: Task, rng: random.Random) -> Policy:
    """Begins in the middle, which decides where the mines are."""
    size = task.public["size"]
    first = (size // 2, size // 2)
    mines = laid(task.secret["order"], size, task.public["mines"], first)
    safe = [(row, column) for row in range(size) for column in range(size) if (row, column) not in mines]
    return script(_said([first]), _said(safe))


def any_cell(task: Task, rng: random.Random) -> Policy:
    def play(messages: Sequence[Message]) -> str:
        rows = [line.split()[1:] for line in messages[-1].text.splitlines() if re.fullmatch(r"\d( [\d?])+", line)]
        closed = [(i, j) for i, row in enumerate(rows) for j, sign in enumerate(row) if sign == "?"]
        return _said([rng.choice(closed)])

    return play


def _said(cells: Iterable[Cell]) -> str:
    return ", ".join(f"{row + 1} {column + 1}" for row, column in cells)


POLICIES: Mapping[str, Maker] = {"gold": every_safe_cell, "random": any_cell, "noop": noop}
