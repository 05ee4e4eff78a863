"""Grades a function by what it returns, decided outside the process that runs it.

Only inputs enter the sandbox. The candidate's values come back as data and are compared here, so nothing that the code
does to its own process (exit early, print a marker, override `__eq__`, walk frames, replace modules) makes it pass.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Sequence
from typing import Any

from agentrl.sandbox import Call, Sandbox, Status
from agentrl.tools.sandboxes.zygote import values

from .equality import ABS_TOL, REL_TOL, equal
from .result import SHOWN, CaseResult, GradeResult, failed, passed, shown


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
        return failed(call.error or call.status.value, call.status)
    if equal(call.value, want, **tolerance):
        return passed()
    return failed(f"got {shown(call.value)}, expected {shown(want)}")


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
