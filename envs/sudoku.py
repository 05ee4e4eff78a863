"""Solve a sudoku: the whole grid is said, and mended where it breaks a rule. No tools, no sandbox."""

from __future__ import annotations

import re
from math import isqrt

from agentrl.env import Env, Step, done
from agentrl.messages import Action, Message, ParseError
from agentrl.reward import reward
from agentrl.task import Task, TaskSource

from .answer_part import answer_part
from .drawn import drawn
from .opening import opening
from .sudoku_tasks import FAMILY, SOLVED, board, put

_BETWEEN = re.compile(r"[\s|,;\[\]()*`]|^\s*row\s*\d+\s*:", re.IGNORECASE)
"""What may stand around the digits of a row."""
SHOWN = 4
"""Broken rules that are named at one time."""


class Sudoku(Env):
    """Fill a sudoku in, with a word on broken rules after each try.

    Reward: 1 for the solution; else `cell_credit` times the share of free cells that the last try had right.
    Levels: 1 has 4 x 4 cells of which up to 6 are free, 2 up to 10; 3 has 9 x 9 with up to 30, 4 with up to 52.
    """

    max_turns = 3
    demonstration: bool = True
    """Whether a solved one is shown first. Right for small models; large ones do without."""
    cell_credit: float = 0.5

    _grid: str = ""

    @classmethod
    def tasks(cls, levels: int | list[int] = 1, *, seed: int = 0) -> TaskSource:
        """Endless puzzles, each with one solution."""
        return drawn(FAMILY, levels, seed)

    def reset(self, task: Task) -> list[Message]:
        clues, solution = SOLVED
        return opening(task.prompt, (put(clues), board(solution)), shown=self.demonstration)

    def step(self, action: Action) -> Step | str:
        clues = self.task.public["clues"]
        self._grid = action.parse(lambda text: read_grid(text, isqrt(len(clues))))
        if self._grid == self.task.secret["solution"]:
            return done("Correct.")
        problems = broken(self._grid, clues)
        return "\n".join([*problems[:SHOWN], board(clues), "Say only the whole grid."])

    @reward
    def solved(self) -> float:
        """1 for the solution, else the credit for single cells."""
        solution = self.task.secret["solution"]
        free = [cell for cell, sign in enumerate(self.task.public["clues"]) if sign == "0"]
        share = sum(self._grid[cell : cell + 1] == solution[cell] for cell in free) / len(free)
        return 1.0 if self._grid == solution else self.cell_credit * share


def read_grid(text: str, size: int) -> str:
    """The last grid in a text, row by row, free cells as "0". Signs between the digits do not matter. Raises ParseError.

    >>> read_grid("So:\\n| 1 2 | 3 4 |\\n|-----|-----|\\n3412\\n2, 1, 4, .\\n[4 3 2 1]", 4)
    '1234341221404321'
    """
    lines = [_BETWEEN.sub("", line) for line in answer_part(text).splitlines()]
    row = re.compile(rf"[1-{size}0._]{{{size}}}")
    rows = [line for line in lines if row.fullmatch(line)][-size:]
    whole = "".join(rows) if len(rows) == size else "".join(line for line in lines if line)
    if not re.fullmatch(rf"[1-{size}0._]{{{size**2}}}", whole):
        raise ParseError(f"Say only the whole grid: {size} lines of {size} digits from 1 to {size}.")
    return whole.replace(".", "0").replace("_", "0")


def broken(grid: str, clues: str) -> list[str]:
    """What is against the rules, in words; never what the solution is."""
    size = isqrt(len(clues))
    places = [divmod(cell, size) for cell in range(size**2)]
    changed = [place for place, own, given in zip(places, grid, clues, strict=True) if given not in ("0", own)]
    problems = [f"Row {row + 1}, column {column + 1} was given as {clues[row * size + column]}." for row, column in changed]
    for name, unit in units(size):
        digits = [grid[cell] for cell in unit if grid[cell] != "0"]
        problems += [f"{name} holds {digit} more than once." for digit in sorted(set(digits)) if digits.count(digit) > 1]
    return [*problems, "There are free cells."] if "0" in grid else problems


def units(size: int) -> list[tuple[str, list[int]]]:
    """(name, cells) of each row, column and box, counted from 1, boxes from left to right and then down."""
    box = isqrt(size)
    each = range(size)
    rows = [(f"Row {i + 1}", [i * size + j for j in each]) for i in each]
    columns = [(f"Column {i + 1}", [j * size + i for j in each]) for i in each]
    corners = [(i // box * box, i % box * box) for i in each]
    cells = [[(row + j // box) * size + column + j % box for j in each] for row, column in corners]
    return [*rows, *columns, *((f"Box {i + 1}", unit) for i, unit in enumerate(cells))]
