"""Grades an SQL query by the rows it gives.

The query is the candidate's, all Python is ours. It runs in the sandbox, since SQLite is C code that hostile SQL has broken
before, on a database that only it sees: one reading statement, nothing attached, no extension. The rows come back as
data and are compared here, so that what is expected stays outside.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

from agentrl.sandbox import Sandbox, Status

from . import sql_query
from .equality import ABS_TOL, REL_TOL
from .result import SHOWN, CaseResult, failed, passed
from .rows import Row, difference

MAX_ROWS = 10_000


class QueryFailed(ValueError):
    """A query that gives no rows to compare; `status` says how it ended."""

    def __init__(self, message: str, status: Status) -> None:
        super().__init__(message)
        self.status = status


async def sql_result(
    sandbox: Sandbox,
    query: str,
    setup: str | bytes,
    expected: Sequence[Sequence[Any]],
    *,
    ordered: bool = False,
    columns: int | None = None,
    timeout: float = 5.0,
    max_rows: int = MAX_ROWS,
    rel_tol: float = REL_TOL,
    abs_tol: float = ABS_TOL,
) -> CaseResult:
    """Runs `query` on the database that `setup` makes (an SQL script, or a database file's bytes) and compares its rows.

    As a multiset, or as a list when `ordered`. `columns` is the number expected; without it, that of the expected rows, so give
    it where none are expected. Names of columns do not matter. Raises SandboxLost; ValueError when `setup` fails.
    """
    want = [_row(row) for row in expected]
    width = columns if columns is not None else (len(want[0]) if want else None)
    try:
        got_width, got = await sql_rows(sandbox, query, setup, timeout=timeout, max_rows=max(max_rows, len(want)))
    except QueryFailed as error:
        return failed(str(error), error.status)
    if width is not None and got_width != width:
        return failed(f"got {got_width} columns, expected {width}")
    wrong = difference(got, want, ordered=ordered, rel_tol=rel_tol, abs_tol=abs_tol)
    return failed(wrong) if wrong else passed()


async def sql_rows(
    sandbox: Sandbox, query: str, setup: str | bytes, *, timeout: float = 5.0, max_rows: int = MAX_ROWS
) -> tuple[int, list[Row]]:
    """(columns, rows) of a query: with a reference query, what to expect. Raises QueryFailed, SandboxLost, ValueError."""
    program = inspect.getsource(sql_query)
    (call,) = await sandbox.call_many(program, "run", [(setup, query, max_rows)], timeout=timeout)
    if call.status is not Status.OK:
        raise QueryFailed(f"{call.status.value}: {call.error}"[:SHOWN], call.status)
    kind, answer = call.value
    if kind == "setup":
        raise ValueError(f"the database cannot be made: {answer}")
    if kind == "error":
        raise QueryFailed(answer[:SHOWN], Status.ERROR)
    width, rows = answer
    return width, rows


def _row(values: Sequence[Any]) -> Row:
    """Raises TypeError for what SQLite cannot give."""
    for value in values:
        if value is not None and not isinstance(value, (int, float, str, bytes)):
            raise TypeError(f"an expected row holds a {type(value).__name__}; SQLite gives None, int, float, str and bytes")
    return tuple(int(value) if isinstance(value, bool) else value for value in values)
