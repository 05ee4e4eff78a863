"""SQL on an SQLite database of the episode, in its sandbox: SQLite is C code that hostile SQL has broken before."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agentrl.errors import UsageError
from agentrl.sandbox import Sandbox, Status
from agentrl.tool import ToolError, tool

from . import sql_program

FILE = "database.sqlite"
"""In the working folder: what an agent has changed is read from there, for `db_state` for one."""

LONGEST_CELL = 200
"""Characters of one value that are shown."""

MAKING = 30.0  # seconds that the setup script may take
TIMEOUT = 60.0  # seconds of a call, the making of the database included


class Sql:
    """SQL on an SQLite database that is the episode's own.

    `database` is a database's file or a script (.sql). Without it, it is the environment's own `database`, a Path, a script or
    a database's bytes, that `reset` may set. `writable` lets the agent change its copy. `rows` are shown, a query may take
    `timeout` seconds.
    """

    def __init__(
        self, env: Any, database: str | Path = "", writable: bool = False, rows: int = 50, timeout: float = 5.0
    ) -> None:
        """Raises UsageError when there is no database."""
        given: Any = Path(database) if database else getattr(env, "database", None)
        if given is None:
            own = f"{type(env).__name__}.reset"
            raise UsageError(f"sql has no database: write rl.use('sql', database='shop.sqlite'), or set self.database in {own}")
        self._given: bytes | str = _content(given) if isinstance(given, Path) else given
        if not isinstance(self._given, (bytes, str)):
            raise UsageError(f"a database is a path, an SQL script or a file's bytes, not {type(given).__name__}")
        self._writable, self._rows, self._timeout = writable, rows, timeout
        self._is_made = False

    @classmethod
    def prepare(cls, database: str | Path = "", rows: int = 50, **settings: Any) -> None:
        """Raises UsageError."""
        if database:
            _content(Path(database))
        if rows < 1:
            raise UsageError(f"sql: rows={rows} must be at least 1")

    @tool(timeout=TIMEOUT, max_output=8000)
    async def sql(self, query: str, sandbox: Sandbox) -> str:
        """Run one SQL statement on the SQLite database and get its rows. The tables are listed by
        SELECT sql FROM sqlite_schema.

        Args:
            query: one statement
        """
        if not self._is_made:
            await self._make(sandbox)
            self._is_made = True
        kind, answer = await _call(sandbox, "run", (FILE, query, self._writable, self._rows), self._timeout)
        if kind == "error":
            raise ToolError(_explained(answer, self._writable))
        if kind == "changed":
            return f"done; {answer} row{'' if answer == 1 else 's'} changed"
        return table(*answer)

    async def _make(self, sandbox: Sandbox) -> None:
        if isinstance(self._given, bytes):
            await sandbox.write(FILE, self._given)
        elif wrong := await _call(sandbox, "make", (FILE, self._given), MAKING):
            raise RuntimeError(f"the database cannot be made: {wrong}")


def table(columns: Sequence[str], rows: Sequence[Sequence[Any]], more: bool) -> str:
    """Rows for a model to read.

    >>> print(table(["a", "b"], [(1, None), (2, "x")], False))
    a | b
    1 | NULL
    2 | x
    (2 rows)
    """
    lines = [" | ".join(columns), *(" | ".join(map(_cell, row)) for row in rows)]
    count = f"the first {len(rows)} rows; there are more" if more else f"{len(rows)} row{'' if len(rows) == 1 else 's'}"
    return "\n".join([*lines, f"({count})"])


def _cell(value: Any) -> str:
    if value is None:
        return "NULL"
    text = f"[{len(value)} bytes]" if isinstance(value, bytes) else str(value).replace("\n", "\\n")
    return text if len(text) <= LONGEST_CELL else f"{text[:LONGEST_CELL]}[...]"


async def _call(sandbox: Sandbox, function: str, arguments: tuple[Any, ...], timeout: float) -> Any:
    program = inspect.getsource(sql_program)
    (call,) = await sandbox.call_many(program, function, [arguments], timeout=timeout)
    if call.status is Status.OK:
        return call.value
    if call.status is Status.TIMEOUT:
        raise ToolError(f"the query took longer than {timeout:g} s and was stopped")
    raise ToolError(f"the query was stopped: {call.status.value} {call.error}".strip())


def _explained(error: str, writable: bool) -> str:
    if error in ("not authorized", "attempt to write a readonly database"):
        return f"{error}: {'no transactions, settings or other files' if writable else 'the database can only be read'}"
    return error


def _content(path: Path) -> bytes | str:
    """A database's bytes, or a script. Raises UsageError."""
    try:
        data = path.expanduser().read_bytes()
    except OSError as error:
        raise UsageError(f"the database {path} cannot be read: {error.strerror}") from error
    if path.suffix == ".sql":
        return data.decode()
    if not data.startswith(b"SQLite format 3\0"):
        raise UsageError(f"{path} is no SQLite database; a script's name ends in .sql")
    return data
