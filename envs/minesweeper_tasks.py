"""Mine fields for minesweeper. Mines are laid when the first cell is opened: it is safe, and its neighbors with it."""

from __future__ import annotations

import random
from collections.abc import Sequence

from .drawn import Family, Puzzle
from .moves import Cell, spaced

LEVELS = {1: (5, 4), 2: (6, 6), 3: (8, 10)}
"""level -> (rows and columns, mines)."""

ASKED = "Say only cells to open, each as row and column, as in: 2 3, 4 1"
SOLVED = ("  1 2 3\n1 0 1 ?\n2 0 1 ?\n3 0 1 1", "1 3")
"""A board of 3 x 3 with one mine, and what is safe."""


def sketch(level: int, rng: random.Random) -> tuple[int, ...]:
    """The order in which cells are mined: a field is one before it is known where the player begins."""
    size, _ = LEVELS[level]
    return tuple(rng.sample(range(size**2), size**2))


def finish(level: int, order: tuple[int, ...], rng: random.Random) -> Puzzle:
    size, mines = LEVELS[level]
    closed = spaced([[" ", *map(str, range(1, size + 1))], *([str(row), *"?" * size] for row in range(1, size + 1))])
    return Puzzle(prompt=put(size, mines, closed), public={"size": size, "mines": mines}, secret={"order": list(order)})


def put(size: int, mines: int, board: str) -> str:
    """The puzzle in words."""
    rules = (
        f"Open all cells of a field of {size} x {size} but the {mines} that hold a mine. An open cell shows how many of its "
        "neighbors, up to eight, hold one; ? is closed. The first cell that you open is safe."
    )
    return f"{rules}\n{board}\n{ASKED}"


def laid(order: Sequence[int], size: int, mines: int, first: Cell) -> frozenset[Cell]:
    """Where the mines are when `first` is opened first.

    >>> sorted(laid(range(16), 4, 2, (0, 0)))
    [(0, 2), (0, 3)]
    """
    near = {first, *neighbors(first, size)}
    return frozenset([cell for number in order if (cell := divmod(number, size)) not in near][:mines])


def neighbors(cell: Cell, size: int) -> list[Cell]:
    """The up to eight cells around it."""
    rows, columns = (range(max(at - 1, 0), min(at + 2, size)) for at in cell)
    return [(row, column) for row in rows for column in columns if (row, column) != cell]


FAMILY = Family(name="minesweeper", levels=tuple(LEVELS), sketch=sketch, finish=finish)
