"""Runs one untrusted SQL query on a database made for it. Its text is a program that runs inside a sandbox: stdlib only."""

from __future__ import annotations

import sqlite3
from typing import Any

READING = (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, 33)  # 33: SQLITE_RECURSIVE
REFUSED_FUNCTIONS = ("load_extension", "fts3_tokenizer", "writefile", "edit", "readfile")
MAX_VALUE = 1 << 20  # bytes of one value


def run(setup: str | bytes, query: str, max_rows: int) -> tuple[str, Any]:
    """("rows", (columns, rows)); ("setup", message) when the author's part fails, ("error", message) when the query does."""
    connection = sqlite3.connect(":memory:")
    try:
        if isinstance(setup, bytes):
            connection.deserialize(setup)
            connection.execute("SELECT count(*) FROM sqlite_schema")
        else:
            connection.executescript(setup)
            connection.commit()
    except (sqlite3.Error, sqlite3.Warning) as error:
        return "setup", str(error)
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_VALUE)
    connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    connection.set_authorizer(_allow)
    try:
        cursor = connection.execute(query)
        if cursor.description is None:
            return "error", "the query gives no rows"
        rows = cursor.fetchmany(max_rows + 1)
    except (sqlite3.Error, sqlite3.Warning, UnicodeError, ValueError) as error:
        return "error", str(error)
    if len(rows) > max_rows:
        return "error", f"more than {max_rows} rows"
    return "rows", (len(cursor.description), rows)


def _allow(action: int, first: str | None, second: str | None, database: str | None, via: str | None) -> int:
    if action not in READING or (action == sqlite3.SQLITE_FUNCTION and second in REFUSED_FUNCTIONS):
        return sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK
