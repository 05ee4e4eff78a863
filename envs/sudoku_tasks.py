"""Sudoku puzzles of 4 x 4 and 9 x 9 cells with one solution each: a solved grid from which cells are taken away."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from math import isqrt

from .drawn import Family, Puzzle
from .moves import spaced

LEVELS = {1: (4, 4, 6), 2: (4, 8, 10), 3: (9, 20, 30), 4: (9, 44, 52)}
"""level -> (rows and columns, fewest and most free cells)."""

SOLVED = ("0143430112343410", "2143432112343412")
"""Clues, and the solution."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """A solved grid, and in what order cells are taken away until `free` of them are. Grids are texts, row by row; "0" is free.

    >>> Grid(solution="1234341221434321", order=(0, 5), free=1).clues
    '0234341221434321'
    """

    solution: str
    order: tuple[int, ...]
    free: int

    @property
    def clues(self) -> str:
        """The puzzle. A cell without which there would be a second solution stays."""
        clues, left = self.solution, list(self.order)
        while left and (wanted := self.free - clues.count("0")) > 0:
            clues, left = _without(clues, left[:wanted]), left[wanted:]
        return clues

    @property
    def key(self) -> str:
        """Of the small ones there are only 288 solutions, so that the clues tell them apart."""
        return self.clues if len(self.solution) == 16 else self.solution


def sketch(level: int, rng: random.Random) -> Grid:
    size, fewest, most = LEVELS[level]
    solution = next(solutions("0" * size**2, rng))
    order = tuple(rng.sample(range(size**2), size**2))
    return Grid(solution=solution, order=order, free=rng.randint(fewest, most))


def finish(level: int, grid: Grid, rng: random.Random) -> Puzzle:
    return Puzzle(prompt=put(grid.clues), public={"clues": grid.clues}, secret={"solution": grid.solution})


def put(clues: str) -> str:
    """The puzzle in words."""
    size = isqrt(len(clues))
    box = isqrt(size)
    rules = f"Solve the sudoku: each row, column and box of {box} x {box} cells holds every digit from 1 to {size} once."
    return f"{rules} A dot is a free cell.\n{board(clues)}\nSay only the whole grid: {size} lines of {size} digits."


def board(grid: str) -> str:
    """The grid as lines of digits and dots."""
    size = isqrt(len(grid))
    return spaced(grid[start : start + size].replace("0", ".") for start in range(0, size**2, size))


def solutions(clues: str, rng: random.Random | None = None) -> Iterator[str]:
    """All solutions, one after the other; `rng` shuffles in which order.

    >>> list(solutions("1234341221434320"))
    ['1234341221434321']
    """
    size = isqrt(len(clues))
    cells = [int(sign) for sign in clues]
    used = [0] * (3 * size)  # a bit for each digit of each row, column and box
    for cell, digit in enumerate(cells):
        if digit:
            _flip(used, _units(size)[cell], 1 << digit)
    yield from _filled(cells, used, size, rng)


def _filled(cells: list[int], used: list[int], size: int, rng: random.Random | None) -> Iterator[str]:
    """Fills the free cell with the fewest candidates, and then the others."""
    units, every = _units(size), (2 << size) - 2
    best, choices = -1, 0
    for cell, digit in enumerate(cells):
        if not digit:
            row, column, box = units[cell]
            open_ones = every & ~(used[row] | used[column] | used[box])
            if best < 0 or open_ones.bit_count() < choices.bit_count():
                best, choices = cell, open_ones
                if choices.bit_count() < 2:
                    break
    if best < 0:
        yield "".join(map(str, cells))
        return
    digits = [digit for digit in range(1, size + 1) if choices >> digit & 1]
    if rng is not None:
        rng.shuffle(digits)
    for digit in digits:
        cells[best] = digit
        _flip(used, units[best], 1 << digit)
        yield from _filled(cells, used, size, rng)
        _flip(used, units[best], 1 << digit)
    cells[best] = 0


def _without(clues: str, cells: Sequence[int]) -> str:
    """Takes these cells away, or as many of them as leave one solution."""
    trial = "".join("0" if cell in cells else sign for cell, sign in enumerate(clues))
    if len(list(islice(solutions(trial), 2))) == 1:
        return trial
    if len(cells) == 1:
        return clues
    half = len(cells) // 2
    return _without(_without(clues, cells[:half]), cells[half:])


@cache
def _units(size: int) -> list[tuple[int, int, int]]:
    """For each cell the places of its row, column and box in a list of all units."""
    box = isqrt(size)
    places = [divmod(cell, size) for cell in range(size**2)]
    return [(row, size + column, 2 * size + row // box * box + column // box) for row, column in places]


def _flip(used: list[int], units: tuple[int, int, int], bit: int) -> None:
    for unit in units:
        used[unit] ^= bit


FAMILY = Family(name="sudoku", levels=tuple(LEVELS), sketch=sketch, finish=finish, key=lambda grid: grid.key)
