"""Are two sets of database rows the same: as a list, or as a multiset where order does not matter.

Values are what SQLite gives: None, int, float, str, bytes. Numbers are compared as numbers (1 is 1.0), floats within a
tolerance; None equals None only; a text never equals a number.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from .equality import ABS_TOL, REL_TOL
from .result import shown

Row = tuple[Any, ...]
MATCHED = 300  # rows that differ in numbers only, of which pairs are sought one by one; above, sorting must do


def difference(
    got: Sequence[Row], want: Sequence[Row], *, ordered: bool, rel_tol: float = REL_TOL, abs_tol: float = ABS_TOL
) -> str:
    """What differs first, in words; empty when they are the same.

    >>> difference([(2, None), (1.0, "a")], [(1, "a"), (2, None)], ordered=False)
    ''
    >>> difference([(1,)], [(1,), (1,)], ordered=False)
    'got 1 rows, expected 2'
    """
    if len(got) != len(want):
        return f"got {len(got)} rows, expected {len(want)}"
    width = next((len(b) for a, b in zip(got, want, strict=True) if len(a) != len(b)), None)
    if width is not None:
        return f"got {len(got[0])} columns, expected {width}"
    if ordered:
        pairs = zip(got, want, strict=True)
        return next((_unlike(i, a, b) for i, (a, b) in enumerate(pairs) if not same_row(a, b, rel_tol, abs_tol)), "")
    return _multiset_difference(got, want, rel_tol, abs_tol)


def _unlike(index: int, got: Row, want: Row) -> str:
    return f"row {index + 1} is {shown(got)}, expected {shown(want)}"


def same_row(got: Row, want: Row, rel_tol: float = REL_TOL, abs_tol: float = ABS_TOL) -> bool:
    return len(got) == len(want) and all(_same(a, b, rel_tol, abs_tol) for a, b in zip(got, want, strict=True))


def _same(got: Any, want: Any, rel_tol: float, abs_tol: float) -> bool:
    if _is_number(got) and _is_number(want):
        if isinstance(got, int) and isinstance(want, int):
            return got == want
        return math.isclose(got, want, rel_tol=rel_tol, abs_tol=abs_tol)
    return type(got) is type(want) and bool(got == want)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float))


def _multiset_difference(got: Sequence[Row], want: Sequence[Row], rel_tol: float, abs_tol: float) -> str:
    """Rows that are equal in all but numbers form a group; within one, each row must find a partner of its own."""
    ours, theirs = _groups(got), _groups(want)
    for key, rows in theirs.items():
        found = ours.get(key, [])
        if len(found) != len(rows) or not _pair_up(found, rows, rel_tol, abs_tol):
            missing = next((r for r in rows if not any(same_row(f, r, rel_tol, abs_tol) for f in found)), rows[0])
            return f"the row {shown(missing)} is missing, or occurs another number of times"
    return ""


def _groups(rows: Sequence[Row]) -> dict[Row, list[Row]]:
    groups: dict[Row, list[Row]] = defaultdict(list)
    for row in rows:
        groups[tuple(("number", None) if _is_number(v) else (type(v).__name__, v) for v in row)].append(row)
    return groups


def _pair_up(got: list[Row], want: list[Row], rel_tol: float, abs_tol: float) -> bool:
    def numbers(row: Row) -> Row:
        return tuple(v for v in row if _is_number(v))

    pairs = zip(sorted(got, key=numbers), sorted(want, key=numbers), strict=True)
    if all(same_row(a, b, rel_tol, abs_tol) for a, b in pairs):
        return True
    return len(got) <= MATCHED and _has_matching(got, want, rel_tol, abs_tol)


def _has_matching(got: list[Row], want: list[Row], rel_tol: float, abs_tol: float) -> bool:
    """A perfect matching, by augmenting paths: near numbers may sort differently in several columns."""
    partner: dict[int, int] = {}
    fits = [[i for i, a in enumerate(got) if same_row(a, b, rel_tol, abs_tol)] for b in want]

    def place(index: int, tried: set[int]) -> bool:
        for i in fits[index]:
            if i not in tried:
                tried.add(i)
                if i not in partner or place(partner[i], tried):
                    partner[i] = index
                    return True
        return False

    return all(place(index, set()) for index in range(len(want)))
