"""Grades a whole program by what it prints for given inputs. The expected outputs never enter the sandbox."""

from __future__ import annotations

from collections.abc import Sequence

from agentrl.sandbox import Exec, Sandbox

from .equality import REL_TOL, same_tokens
from .result import SHOWN, CaseResult, GradeResult, failed, passed, shown


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
        return failed(f"{done.status.value}: {last[0][:SHOWN]}", done.status)
    if not done.stdout_cut and same_tokens(done.stdout, want, rel_tol):
        return passed()
    return failed(f"printed {shown(done.stdout)}, expected {shown(want)}")
