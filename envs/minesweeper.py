"""Minesweeper on text: numbers say where mines are, several cells may be opened in a turn. No tools, no sandbox."""

from __future__ import annotations

import re

from agentrl.env import Env, Step, done
from agentrl.messages import Action, Message, ParseError
from agentrl.reward import reward
from agentrl.task import Task, TaskSource

from .answer_part import answer_part
from .drawn import drawn
from .minesweeper_tasks import ASKED, FAMILY, SOLVED, laid, neighbors, put
from .moves import Cell, spaced
from .opening import opening

_WORDS = re.compile(r"open|cells?|rows?|columns?|col|and|r|c", re.IGNORECASE)
"""What may stand around the numbers of cells."""


class Minesweeper(Env):
    """Open every cell without a mine. A mine ends the episode; the first cell is safe.

    Reward: 1 when all are open; else `open_credit` times the share of safe cells opened after the first.
    Levels: 1 has 5 x 5 cells and 4 mines, 2 has 6 x 6 and 6, 3 has 8 x 8 and 10.
    """

    max_turns = 16
    demonstration: bool = True
    """Whether a solved one is shown first. Right for small models; large ones do without."""
    open_credit: float = 0.5

    @classmethod
    def tasks(cls, levels: int | list[int] = 1, *, seed: int = 0) -> TaskSource:
        """Endless fields."""
        return drawn(FAMILY, levels, seed)

    def reset(self, task: Task) -> list[Message]:
        self._size: int = task.public["size"]
        self._open: set[Cell] = set()
        self._first: set[Cell] = set()
        self._mines: frozenset[Cell] = frozenset()
        return opening(task.prompt, (put(3, 1, SOLVED[0]), SOLVED[1]), shown=self.demonstration)

    def step(self, action: Action) -> Step | str:
        notes = []
        for row, column in action.parse(read_cells):
            cell = (row - 1, column - 1)
            if cell in self._mines:
                return done(f"Row {row}, column {column} held a mine.")
            if not (0 < row <= self._size and 0 < column <= self._size):
                notes.append(f"There is no row {row}, column {column}.")
            elif cell in self._open:
                notes.append(f"Row {row}, column {column} is open already.")
            else:
                self._uncover(cell)
            if self._left() == 0:
                return done(f"{self.board()}\nAll cells without a mine are open.")
        return "\n".join([*notes, self.board()])

    @reward
    def cleared(self) -> float:
        """1 when all safe cells are open, else the credit for those that are."""
        if not self._open or self._left() == 0:
            return float(bool(self._open))
        after_first = len(self._open - self._first)
        return self.open_credit * after_first / (after_first + self._left())

    def board(self) -> str:
        """The field with rows and columns counted from 1."""
        each = range(self._size)
        head = [" ", *(str(column + 1) for column in each)]
        return spaced([head, *([str(row + 1), *(self._sign((row, column)) for column in each)] for row in each)])

    def _uncover(self, cell: Cell) -> None:
        """Opens it, and all around it where no mine is near."""
        first = not self._open
        if first:
            self._mines = laid(self.task.secret["order"], self._size, self.task.public["mines"], cell)
        edge = [cell]
        while edge:
            at = edge.pop()
            self._open.add(at)
            if self._near(at) == 0:
                edge += [after for after in neighbors(at, self._size) if after not in self._open]
        self._first = set(self._open) if first else self._first

    def _near(self, cell: Cell) -> int:
        return len(self._mines.intersection(neighbors(cell, self._size)))

    def _left(self) -> int:
        """Safe cells that are closed."""
        return self._size**2 - self.task.public["mines"] - len(self._open)

    def _sign(self, cell: Cell) -> str:
        return str(self._near(cell)) if cell in self._open else "?"


def read_cells(text: str) -> list[Cell]:
    """(row, column) of each cell named in the last line with numbers, and in the lines of cells alone before it; from 1.

    Raises ParseError.

    >>> read_cells("Row 1 shows 2 mines.\\nopen 2 3\\n(4, 1), r3c2")
    [(2, 3), (4, 1), (3, 2)]
    """
    found: list[int] = []
    for line in reversed(answer_part(text).splitlines()):
        numbers = [int(digits) for digits in re.findall(r"\d{1,4}", line)]
        alone = not re.search(r"[^\W\d_]", _WORDS.sub("", line))
        if found and not (numbers and alone):
            break
        found = [*numbers, *found]
        if numbers and not alone:
            break
    if not found or len(found) % 2:
        raise ParseError(ASKED)
    return list(zip(found[::2], found[1::2], strict=True))
