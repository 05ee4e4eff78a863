"""Expected results that a plain value does not say, and the grading of cases that hold such.

Like all expected results they live on the host: the sandbox is given arguments, and gives values back.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agentrl.sandbox import Call, Sandbox, Status


class Expected:
    """Says with == whether a value will do."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Of one case."""

    passed: bool
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdicts:
    """Of all cases, in their order."""

    cases: tuple[Verdict, ...]

    @property
    def passed(self) -> int:
        return sum(case.passed for case in self.cases)

    @property
    def total(self) -> int:
        return len(self.cases)


async def expected_cases(
    sandbox: Sandbox, code: str, function: str, cases: Sequence[tuple[Sequence[Any], Any]], *, timeout: float
) -> Verdicts:
    """Calls `function` of `code` once for each case and asks `expected == value`. Raises SandboxLost."""
    calls = await sandbox.call_many(code, function, [args for args, _ in cases], timeout=timeout)
    return Verdicts(cases=tuple(_verdict(call, expected) for call, (_, expected) in zip(calls, cases, strict=True)))


def _verdict(call: Call, expected: Any) -> Verdict:
    if call.status is not Status.OK:
        return Verdict(passed=False, error=call.error or call.status.value)
    passed = bool(expected == call.value)
    return Verdict(passed=passed, error="" if passed else "the value will not do")


def _number(value: Any) -> bool:
    """A finite one that a float can hold: what is compared within a tolerance must be."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # 10**400
        return False


@dataclass(frozen=True, slots=True, eq=False)
class Close(Expected):
    """Less than `tolerance` away.

    >>> Close(0.33, 1e-6) == 1.33 - 1, Close(0.33, 1e-6) == "0.33"
    (True, False)
    """

    value: float
    tolerance: float

    def __eq__(self, other: object) -> bool:
        return _number(other) and abs(other - self.value) < self.tolerance  # type: ignore[operator]


@dataclass(frozen=True, slots=True, eq=False)
class Truth(Expected):
    """Anything whose truth value is `value`.

    >>> Truth(True) == 1, Truth(False) == []
    (True, True)
    """

    value: bool

    def __eq__(self, other: object) -> bool:
        return bool(other) is self.value


@dataclass(frozen=True, slots=True, eq=False)
class Items(Expected):
    """A list or a tuple of these items.

    >>> Items((1, 2)) == [1, 2]
    True
    """

    value: Sequence[Any]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, (list, tuple)) and tuple(other) == tuple(self.value)


@dataclass(frozen=True, slots=True, eq=False)
class Root(Expected):
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
