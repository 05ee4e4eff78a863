"""The rules of noughts and crosses, and perfect play. A board is nine texts: x, o or empty, row by row."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

EMPTY = "."
LINES = ((0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6))


def winner(board: Sequence[str]) -> str:
    """x or o; empty where nobody has three in a row.

    >>> winner("xxx.o.o..")
    'x'
    """
    return next((board[a] for a, b, c in LINES if board[a] == board[b] == board[c] != EMPTY), "")


def free(board: Sequence[str]) -> list[int]:
    """The free cells, from 0."""
    return [cell for cell, sign in enumerate(board) if sign == EMPTY]


def is_full(board: Sequence[str]) -> bool:
    return EMPTY not in board


def shown(board: Sequence[str]) -> str:
    """As a player sees it; a free cell shows its number.

    >>> print(shown("x...o...."))
    x 2 3
    4 o 6
    7 8 9
    """
    signs = [str(cell + 1) if sign == EMPTY else sign for cell, sign in enumerate(board)]
    return "\n".join(" ".join(signs[row : row + 3]) for row in (0, 3, 6))


def best_cells(board: Sequence[str], side: str) -> list[int]:
    """All cells that are best for `side`, whose turn it is.

    >>> best_cells("xx.oo....", "x"), best_cells("xx..o....", "o")
    ([2], [2])
    """
    values = {cell: -_value(_after(tuple(board), cell, side), _other(side)) for cell in free(board)}
    best = max(values.values())
    return [cell for cell, value in values.items() if value == best]


@lru_cache(maxsize=10_000)
def _value(board: tuple[str, ...], side: str) -> int:
    """1, 0 or -1: what `side`, whose turn it is, gets when both play as well as can be."""
    if winner(board):
        return -1
    if is_full(board):
        return 0
    return max(-_value(_after(board, cell, side), _other(side)) for cell in free(board))


def _after(board: tuple[str, ...], cell: int, side: str) -> tuple[str, ...]:
    return (*board[:cell], side, *board[cell + 1 :])


def _other(side: str) -> str:
    return "o" if side == "x" else "x"
