"""Lakes for frozen_lake: ice with holes, and a way from the first cell to the last one in every lake."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence

from .drawn import Family, Puzzle
from .moves import STEPS, Cell, beside

LEVELS = {1: (4, 0.2), 2: (6, 0.28), 3: (8, 0.32)}
"""level -> (rows and columns, share of holes)."""
RULES = "You are P on a frozen lake. Walk to the gift G over the ice _ and do not step into a hole O."
SOLVED = ("P _ _\nO _ O\n_ _ G", ["right", "down", "down", "right"])
"""A board, and a way."""

Lake = tuple[str, ...]
"""Rows of "_", "O" and, in the last corner, "G"."""


def sketch(level: int, rng: random.Random) -> Lake:
    """Draws until there is a way."""
    size, share = LEVELS[level]
    while True:
        rows = [["O" if rng.random() < share else "_" for _ in range(size)] for _ in range(size)]
        rows[0][0], rows[-1][-1] = "_", "G"
        if path(rows):
            return tuple("".join(row) for row in rows)


def finish(level: int, lake: Lake, rng: random.Random) -> Puzzle:
    return Puzzle(prompt=RULES, public={"lake": list(lake)}, secret={"path": path(lake)})


def path(lake: Sequence[Sequence[str]]) -> list[str]:
    """A shortest way from the first cell to G; empty when there is none."""
    paths: dict[Cell, list[str]] = {(0, 0): []}
    queue = deque(paths)
    while queue:
        cell = queue.popleft()
        if lake[cell[0]][cell[1]] == "G":
            return paths[cell]
        for direction in STEPS:
            after = beside(cell, direction)
            if after not in paths and is_inside(lake, after) and lake[after[0]][after[1]] != "O":
                paths[after] = [*paths[cell], direction]
                queue.append(after)
    return []


def is_inside(lake: Sequence[Sequence[str]], cell: Cell) -> bool:
    return 0 <= cell[0] < len(lake) and 0 <= cell[1] < len(lake[0])


FAMILY = Family(name="frozen_lake", levels=tuple(LEVELS), sketch=sketch, finish=finish, key="/".join)
