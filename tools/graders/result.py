"""What graders say: one case, and all cases of one candidate. Data only; a reward is made of `reward` or `pass_rate`.

A grader whose sandbox dies raises SandboxLost or SandboxError instead: that says nothing about the candidate.
"""

from __future__ import annotations

from dataclasses import dataclass

from agentrl.sandbox import Status

SHOWN = 200  # characters of a value in an error text


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseResult:
    """One case. True in a condition when it passed.

    >>> CaseResult(passed=False, status=Status.OK, error="got 3, expected 4").reward
    0.0
    """

    passed: bool
    status: Status
    """How the execution ended; OK also for a wrong answer."""
    error: str = ""
    """Empty when it passed. May hold the expected value: not for the model's eyes in training."""

    def __bool__(self) -> bool:
        return self.passed

    @property
    def reward(self) -> float:
        return 1.0 if self.passed else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GradeResult:
    """All cases of one candidate, in their order. True in a condition when all passed.

    >>> GradeResult(cases=(CaseResult(passed=True, status=Status.OK),)).pass_rate
    1.0
    """

    cases: tuple[CaseResult, ...]

    def __bool__(self) -> bool:
        return self.all_passed

    @property
    def passed(self) -> int:
        return sum(case.passed for case in self.cases)

    @property
    def total(self) -> int:
        return len(self.cases)

    @property
    def all_passed(self) -> bool:
        """False without any case: nothing was shown."""
        return self.total > 0 and self.passed == self.total

    @property
    def pass_rate(self) -> float:
        return self.passed / self.total if self.total else 0.0

    @property
    def reward(self) -> float:
        """1 when all passed."""
        return 1.0 if self.all_passed else 0.0

    @property
    def error(self) -> str:
        """Of the first case that failed."""
        return next((case.error for case in self.cases if not case.passed), "")


def passed() -> CaseResult:
    return CaseResult(passed=True, status=Status.OK)


def failed(error: str, status: Status = Status.OK) -> CaseResult:
    return CaseResult(passed=False, status=status, error=error)


def shown(value: object) -> str:
    """A short text of a value; never fails, for it may be huge."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # an int of more digits than Python prints
        text = f"<{type(value).__name__}>"
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
