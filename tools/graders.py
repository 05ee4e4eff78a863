"""Graders: whether a candidate's code does what is expected of it, decided outside the process that runs the code.

Only inputs enter the sandbox. The candidate's values come back as data and are compared here, so nothing that the code
does to its own process (exit early, print a marker, override `__eq__`, walk frames, replace modules) makes it pass.
A sandbox that dies raises SandboxLost: that is no verdict.
"""

from __future__ import annotations

import cmath
import inspect
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agentrl.sandbox import Call, Exec, Sandbox, Status

from .sandboxes.zygote import values

REL_TOL, ABS_TOL = 1e-6, 1e-9
SHOWN = 200  # characters of a value in an error text


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseResult:
    """One case.

    >>> CaseResult(passed=False, status=Status.OK, error="got 3, expected 4").passed
    False
    """

    passed: bool
    status: Status
    """How the execution ended; OK also for a wrong answer."""
    error: str = ""
    """Empty when it passed. May hold the expected value: not for the model's eyes in training."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GradeResult:
    """All cases of one candidate, in their order.

    >>> GradeResult(cases=(CaseResult(passed=True, status=Status.OK),)).pass_rate
    1.0
    """

    cases: tuple[CaseResult, ...]

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
    def error(self) -> str:
        """Of the first case that failed."""
        return next((case.error for case in self.cases if not case.passed), "")


async def function_cases(
    sandbox: Sandbox,
    code: str,
    function: str,
    cases: Sequence[tuple[Sequence[Any], Any]],
    *,
    timeout: float = 5.0,
    total: float | None = None,
    strict_types: bool = False,
    rel_tol: float = REL_TOL,
    abs_tol: float = ABS_TOL,
) -> GradeResult:
    """Calls `function` of `code` once per (arguments, expected), all in one process, and compares.

    `function` may be dotted ("Solution.solve"). `timeout` is seconds of one case, `total` of all (default: four times
    `timeout`). Raises SandboxLost; TypeError and ValueError for cases that are no plain data.
    """
    expected = [values.loads(values.dumps(want)) for _, want in cases]
    calls = await sandbox.call_many(code, function, [args for args, _ in cases], timeout=timeout, total=total)
    judged = [
        _judge(call, want, strict_types=strict_types, rel_tol=rel_tol, abs_tol=abs_tol)
        for call, want in zip(calls, expected, strict=True)
    ]
    return GradeResult(cases=tuple(judged))


def _judge(call: Call, want: Any, **tolerance: Any) -> CaseResult:
    if call.status is not Status.OK:
        return CaseResult(passed=False, status=call.status, error=call.error or call.status.value)
    if equal(call.value, want, **tolerance):
        return CaseResult(passed=True, status=Status.OK)
    return CaseResult(passed=False, status=Status.OK, error=f"got {shown(call.value)}, expected {shown(want)}")


async def stdin_cases(
    sandbox: Sandbox, code: str, cases: Sequence[tuple[str, str]], *, timeout: float = 5.0, rel_tol: float = REL_TOL
) -> GradeResult:
    """Runs a program once per (stdin, expected stdout), each time in a fresh interpreter; must end with exit code 0.

    Compared token by token, so white space does not matter; numbers with a decimal point, within `rel_tol`.
    """
    executions = await sandbox.run_many([code] * len(cases), stdins=[given for given, _ in cases], timeout=timeout)
    judged = [_judge_output(done, want, rel_tol) for done, (_, want) in zip(executions, cases, strict=True)]
    return GradeResult(cases=tuple(judged))


def _judge_output(done: Exec, want: str, rel_tol: float) -> CaseResult:
    if not done.ok:
        last = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.exit_code}"]
        return CaseResult(passed=False, status=done.status, error=f"{done.status.value}: {last[0][:SHOWN]}")
    if not done.stdout_cut and same_tokens(done.stdout, want, rel_tol):
        return CaseResult(passed=True, status=Status.OK)
    return CaseResult(passed=False, status=Status.OK, error=f"printed {shown(done.stdout)}, expected {shown(want)}")


def same_tokens(got: str, want: str, rel_tol: float = REL_TOL) -> bool:
    """
    >>> same_tokens("1 2.5000001\\n", " 1\\n2.5"), same_tokens("1", "1.5"), same_tokens("10", "10 0")
    (True, False, False)
    """
    ours, theirs = got.split(), want.split()
    return len(ours) == len(theirs) and all(a == b or _close_numbers(a, b, rel_tol) for a, b in zip(ours, theirs, strict=True))


def _close_numbers(got: str, want: str, rel_tol: float) -> bool:
    if "." not in want:  # whole numbers and words are exact
        return False
    try:
        return math.isclose(float(got), float(want), rel_tol=rel_tol, abs_tol=ABS_TOL)
    except ValueError:
        return False


def equal(got: Any, want: Any, *, strict_types: bool = False, rel_tol: float = REL_TOL, abs_tol: float = ABS_TOL) -> bool:
    """As Python's ==, for values of exact builtin types, but floats within a tolerance and nan equal to nan.

    With `strict_types`, True is not 1 and 1 is not 1.0.

    >>> equal([1, (0.1 + 0.2, {"a"})], [1.0, (0.3, {"a"})]), equal([1], (1,)), equal(True, 1, strict_types=True)
    (True, False, False)
    """
    rest = {"strict_types": strict_types, "rel_tol": rel_tol, "abs_tol": abs_tol}
    if strict_types and type(got) is not type(want):
        return False
    if isinstance(want, (list, tuple)):
        if type(got) is not type(want) or len(got) != len(want):
            return False
        return all(equal(a, b, **rest) for a, b in zip(got, want, strict=True))
    if isinstance(want, dict):
        if type(got) is not dict or got.keys() != want.keys():
            return False
        return all(equal(got[key], value, **rest) for key, value in want.items())
    if isinstance(want, (float, complex)) or isinstance(got, (float, complex)):
        return _close(got, want, rel_tol, abs_tol)
    return bool(got == want)


def _close(got: Any, want: Any, rel_tol: float, abs_tol: float) -> bool:
    """At least one is a float or complex; the other may be anything."""
    if isinstance(got, (str, bytes)) or isinstance(want, (str, bytes)):
        return False
    try:
        a, b = complex(got), complex(want)
    except (TypeError, ValueError, OverflowError):
        return False
    if cmath.isnan(b) or cmath.isnan(a):
        return cmath.isnan(a) and cmath.isnan(b)
    return cmath.isclose(a, b, rel_tol=rel_tol, abs_tol=abs_tol)


def shown(value: Any) -> str:
    """A short text of a value; never fails, for it may be huge."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # an int of more digits than Python prints
        text = f"<{type(value).__name__}>"
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


async def record_cases(
    sandbox: Sandbox, reference: str, function: str, tests: str, *, entry: str = "check", timeout: float = 10.0
) -> list[tuple[tuple[Any, ...], Any]]:
    """Turns a test function that takes a candidate (HumanEval's `check(candidate)`) into cases for `function_cases`.

    Runs `tests` once on a trusted reference solution and records what it is called with and what it returns. For preparing
    a data set: the tests, which hold answers, never meet a candidate. Raises ValueError when the reference fails.
    """
    program = RECORDER.format(
        values=inspect.getsource(values), reference=reference, tests=tests, function=function, entry=entry, target=RECORDED
    )
    done = await sandbox.python(program, timeout=timeout)
    if not done.ok:
        raise ValueError(f"the reference solution does not pass its tests: {done.render(SHOWN)}")
    recorded = json.loads(await sandbox.read(RECORDED))
    return [(values.loads(args), values.loads(result)) for args, result in recorded]


RECORDED = ".recorded_cases.json"
RECORDER = """
import json, types
values = types.ModuleType("values")
exec({values!r}, values.__dict__)
solution, found = {{}}, []
exec({reference!r}, solution)
def recorded(*args):
    given = values.dumps(args)
    result = solution[{function!r}](*args)
    found.append((given, values.dumps(result)))
    return result
tests = dict(solution)
exec({tests!r}, tests)
tests[{entry!r}](recorded)
with open({target!r}, "w") as file:
    json.dump(found, file)
"""
