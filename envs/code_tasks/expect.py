"""Expected results that `==` with a plain value does not say. They live on the host and never enter a sandbox: a grader
that compares `expected == value` asks them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


@dataclass(frozen=True, slots=True, eq=False)
class Equal:
    """As Python's == has it, so that 2, 2.0 and numbers of other types inside lists are the same.

    >>> Equal([1, 2]) == [1.0, 2]
    True
    """

    value: Any

    def __eq__(self, other: object) -> bool:
        return bool(self.value == other)


@dataclass(frozen=True, slots=True, eq=False)
class Close:
    """Less than `tolerance` away.

    >>> Close(0.33, 1e-6) == 1.33 - 1, Close(0.33, 1e-6) == "0.33"
    (True, False)
    """

    value: float
    tolerance: float

    def __eq__(self, other: object) -> bool:
        return _number(other) and abs(other - self.value) < self.tolerance  # type: ignore[operator]


@dataclass(frozen=True, slots=True, eq=False)
class Truth:
    """Anything whose truth value is `value`.

    >>> Truth(True) == 1, Truth(False) == []
    (True, True)
    """

    value: bool

    def __eq__(self, other: object) -> bool:
        return bool(other) is self.value


@dataclass(frozen=True, slots=True, eq=False)
class Items:
    """A list or a tuple of these items.

    >>> Items((1, 2)) == [1, 2]
    True
    """

    value: Sequence[Any]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, (list, tuple)) and tuple(other) == tuple(self.value)


@dataclass(frozen=True, slots=True, eq=False)
class Root:
    """A zero of the polynomial whose coefficients, lowest power first, are given.

    >>> Root((1, 2)) == -0.5, Root((1, 2)) == 0.5
    (True, False)
    """

    coefficients: Sequence[float]
    tolerance: float = 1e-4

    def __eq__(self, other: object) -> bool:
        if not _number(other):
            return False
        try:
            return abs(sum(c * other**i for i, c in enumerate(self.coefficients))) < self.tolerance  # type: ignore[operator]
        except OverflowError:
            return False
