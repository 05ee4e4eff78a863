"""Grades what a candidate has left in an SQLite database file: its tables' content, not how it came about.

The file is hostile. It is copied out of the sandbox as bytes and read here as SQLite's own guide to untrusted files asks:
read-only and immutable, schema not trusted, cells checked, integrity checked first, no extension, small limits, a deadline.
A view or a virtual table does not stand for a table. What only a write-ahead log holds is not seen: commit and close.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agentrl.sandbox import Sandbox, Status

from .equality import ABS_TOL, REL_TOL
from .result import SHOWN, CaseResult, GradeResult, failed, passed
from .rows import Row, difference

Tables = Mapping[str, Sequence[Mapping[str, Any]]]
"""Table -> its rows, each column -> value. All rows of a table name the same columns."""
MAX_BYTES = 64 << 20  # of a database file
MAX_VALUE = 1 << 20  # bytes of one value
STEPS = 10_000  # of SQLite's machine between two looks at the clock
SETTINGS = ("trusted_schema = OFF", "cell_size_check = ON", "mmap_size = 0", "query_only = ON", "temp_store = MEMORY")


class _Bad(Exception):
    """The file is not what it must be."""


async def db_state(sandbox: Sandbox, path: str, expected: Tables, **options: Any) -> GradeResult:
    """Grades the file at `path` of the sandbox's working folder; options and result as of `compare_database`.

    Raises SandboxLost.
    """
    try:
        data = await sandbox.read(path)
    except OSError as error:  # there is none, or it is no regular file: the candidate's doing
        return GradeResult(cases=(failed(f"{path}: {error}"),) * max(1, len(expected)))
    return await asyncio.to_thread(compare_database, data, expected, **options)


def compare_database(
    data: bytes,
    expected: Tables,
    *,
    exact: bool = True,
    timeout: float = 5.0,
    max_bytes: int = MAX_BYTES,
    rel_tol: float = REL_TOL,
    abs_tol: float = ABS_TOL,
) -> GradeResult:
    """One case per expected table: it must hold exactly these rows, in any order. An empty table is expected by no rows.

    Only the columns that the rows name are compared. With `exact`, a table that is not expected is a failed case of its own.
    `timeout` is seconds for all. Raises ValueError for rows that name different columns.
    """
    wanted = {name: _columns(name, rows) for name, rows in expected.items()}
    tolerance = {"rel_tol": rel_tol, "abs_tol": abs_tol}
    if len(data) > max_bytes:
        return _all_failed(expected, f"a file of {len(data)} bytes; at most {max_bytes} are read")
    with tempfile.TemporaryDirectory(prefix="agentrl-db-") as folder:
        file = Path(folder, "database.sqlite")
        file.write_bytes(data)
        try:
            with contextlib.closing(_open(file)) as connection:
                _guard(connection, timeout)
                kinds = _kinds(connection)
                cases = [_case(connection, kinds, name, expected[name], wanted[name], tolerance) for name in expected]
        except (_Bad, sqlite3.Error, UnicodeError) as error:
            return _all_failed(expected, str(error)[:SHOWN], Status.TIMEOUT if str(error) == "interrupted" else Status.OK)
    if exact:
        extra = sorted(name for name in kinds if name not in {other.lower() for other in expected})
        cases += [failed(f"there is a {kinds[name]} {name!r} that is not expected"[:SHOWN]) for name in extra]
    return GradeResult(cases=tuple(cases))


def _all_failed(expected: Tables, error: str, status: Status = Status.OK) -> GradeResult:
    return GradeResult(cases=(failed(error, status),) * max(1, len(expected)))


def _columns(table: str, rows: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    columns = tuple(rows[0]) if rows else ()
    if any(set(row) != set(columns) for row in rows):
        raise ValueError(f"the expected rows of {table!r} name different columns")
    return columns


def _open(file: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{file.as_uri()}?mode=ro&immutable=1", uri=True, isolation_level=None)


def _guard(connection: sqlite3.Connection, timeout: float) -> None:
    deadline = time.monotonic() + timeout
    connection.set_progress_handler(lambda: time.monotonic() > deadline, STEPS)
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_VALUE)
    connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    connection.setlimit(sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH, 1)
    for setting in SETTINGS:
        connection.execute(f"PRAGMA {setting}")


def _kinds(connection: sqlite3.Connection) -> dict[str, str]:
    """Name in lower case (as SQLite compares them) -> table | view | virtual | shadow; checks the file before."""
    (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        raise _Bad(f"the file is damaged: {verdict}")
    rows = connection.execute("SELECT name, type FROM pragma_table_list WHERE schema = 'main'").fetchall()
    return {name.lower(): kind for name, kind in rows if not name.lower().startswith("sqlite_")}


def _case(
    connection: sqlite3.Connection,
    kinds: Mapping[str, str],
    name: str,
    rows: Sequence[Mapping[str, Any]],
    columns: tuple[str, ...],
    tolerance: Mapping[str, float],
) -> CaseResult:
    kind = kinds.get(name.lower())
    if kind != "table":
        return failed(f"there is no table {name!r}" + (f", only a {kind}" if kind else ""))
    present = {row[0].lower() for row in connection.execute("SELECT name FROM pragma_table_xinfo(?)", (name,))}
    missing = [column for column in columns if column.lower() not in present]
    if missing:  # asked for all the same, SQLite would take the quoted name for a text
        return failed(f"the table {name!r} has no column {missing[0]!r}")
    chosen = ", ".join(map(_quoted, columns)) or "1"
    query = f"SELECT {chosen} FROM main.{_quoted(name)}"
    got: list[Row] = connection.execute(query).fetchmany(len(rows) + 1)
    want = [tuple(row[column] for column in columns) for row in rows]
    if len(got) > len(want):
        return failed(f"{name}: more than {len(want)} rows")
    wrong = difference(got, want, ordered=False, rel_tol=tolerance["rel_tol"], abs_tol=tolerance["abs_tol"])
    return failed(f"{name}: {wrong}") if wrong else passed()


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
