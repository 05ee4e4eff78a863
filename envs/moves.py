"""Moves on a grid: how they are said, and where they lead. Used by frozen_lake and sokoban. Cells are (row, column)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from agentrl.messages import ParseError

from .answer_part import answer_part

Cell = tuple[int, int]

STEPS: dict[str, Cell] = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}
OPPOSITE = {"up": "down", "down": "up", "left": "right", "right": "left"}

_SHORT = {"u": "up", "d": "down", "l": "left", "r": "right", "↑": "up", "↓": "down", "←": "left", "→": "right"}
_ONE = r"(?:\b(?:up(?! to\b)|down|left|right)\b|[↑↓←→])"
_WORD = re.compile(_ONE, re.IGNORECASE | re.ASCII)
_RUN = re.compile(rf"{_ONE}(?:(?:[^a-z]|\band\b|\bthen\b)*{_ONE})*", re.IGNORECASE | re.ASCII)
"""Moves with nothing else between them."""
_LETTERS = re.compile(r"[\W\d_]*(?:[udlr↑↓←→][\W\d_]*)+", re.IGNORECASE)


def beside(cell: Cell, direction: str) -> Cell:
    """The next cell in a direction.

    >>> beside((2, 2), "up")
    (1, 2)
    """
    return cell[0] + STEPS[direction][0], cell[1] + STEPS[direction][1]


def asked(most: int) -> str:
    """How moves are to be said. Raises ValueError when none may be.

    >>> asked(1)
    'Say only a move: up, down, left or right.'
    """
    if most < 1:
        raise ValueError(f"moves_per_turn is {most}; it must be at least 1")
    return (
        f"Say only moves, up to {most} a turn, as in: down, right" if most > 1 else "Say only a move: up, down, left or right."
    )


def read_moves(text: str) -> list[str]:
    """The moves of the answer: the last run of them in its last line that has any, or those of all lines of moves at its end.

    Letters stand for moves where a line has nothing else. Raises ParseError.

    >>> read_moves("I cannot go left here.\\nup, Right"), read_moves("1. up\\n2. left"), read_moves("u u l")
    (['up', 'right'], ['up', 'left'], ['up', 'up', 'left'])
    """
    found: list[str] = []
    for line in reversed(answer_part(text).splitlines()):
        moves = _moves(line)
        alone = _is_alone(line)
        if found and not (moves and alone):
            break
        found = [*moves, *found]
        if moves and not alone:
            break
    if not found:
        raise ParseError("Say moves: up, down, left or right.")
    return found


def _moves(line: str) -> list[str]:
    if _LETTERS.fullmatch(line):
        return [_SHORT[letter.lower()] for letter in line if letter.lower() in _SHORT]
    runs = _RUN.findall(line)
    return [_SHORT.get(word, word.lower()) for word in _WORD.findall(runs[-1])] if runs else []


def _is_alone(line: str) -> bool:
    """Whether a line holds moves, numbers and signs, and no other words."""
    return not re.search(r"[^\W\d_]", _WORD.sub("", line)) or _LETTERS.fullmatch(line) is not None


def spaced(rows: Iterable[Sequence[str]]) -> str:
    """A board as text, a space between cells, so that each is a token of its own."""
    return "\n".join(" ".join(row) for row in rows)
