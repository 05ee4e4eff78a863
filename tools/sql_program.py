"""What the sql tool runs inside the sandbox. Its text is a program of its own: stdlib only.

One statement a call, committed at its end; nothing attached, no extension, no setting changed. The sandbox bounds time and
memory, and holds what a bug of SQLite would let out.
"""

from __future__ import annotations

import sqlite3
from typing import Any

READING = (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, 33)  # 33: SQLITE_RECURSIVE
REFUSED = (sqlite3.SQLITE_ATTACH, sqlite3.SQLITE_DETACH, sqlite3.SQLITE_TRANSACTION, 32)  # 32: SQLITE_SAVEPOINT
REFUSED_FUNCTIONS = ("load_extension", "fts3_tokenizer", "writefile", "edit", "readfile")
PRAGMAS = ("table_info", "table_xinfo", "table_list", "index_list", "index_info", "foreign_key_list")
MAX_VALUE = 1 << 20  # bytes of one value


def make(path: str, script: str) -> str:
    """Writes a database by an SQL script. What went wrong; empty when nothing did."""
    connection = sqlite3.connect(path)
    try:
        connection.executescript(script)
        connection.commit()
    except (sqlite3.Error, sqlite3.Warning) as error:
        return str(error)
    finally:
        connection.close()
    return ""


def run(path: str, query: str, writable: bool, max_rows: int) -> tuple[str, Any]:
    """("rows", (columns, rows, were there more)), ("changed", number of rows), or ("error", message)."""
    connection = sqlite3.connect(f"file:{path}?mode={'rw' if writable else 'ro'}", uri=True)
    try:
        connection.execute("PRAGMA foreign_keys = ON")
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_VALUE)
        connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        connection.isolation_level = None
        connection.execute("BEGIN")
        connection.set_authorizer(_allow_all if writable else _allow_reading)
        cursor = connection.execute(query)
        rows = cursor.fetchmany(max_rows + 1) if cursor.description is not None else []
        cursor_columns = [column[0] for column in cursor.description or ()]
        changed = cursor.rowcount
        cursor.close()
        connection.set_authorizer(None)
        connection.execute("COMMIT")
    except (sqlite3.Error, sqlite3.Warning, UnicodeError, ValueError) as error:
        return "error", str(error)
    finally:
        connection.close()
    if cursor_columns:
        return "rows", (cursor_columns, rows[:max_rows], len(rows) > max_rows)
    return "changed", max(changed, 0)


def _allow_reading(action: int, first: str | None, second: str | None, database: str | None, via: str | None) -> int:
    if action == sqlite3.SQLITE_PRAGMA:
        return sqlite3.SQLITE_OK if first in PRAGMAS else sqlite3.SQLITE_DENY
    if action not in READING or (action == sqlite3.SQLITE_FUNCTION and second in REFUSED_FUNCTIONS):
        return sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK


def _allow_all(action: int, first: str | None, second: str | None, database: str | None, via: str | None) -> int:
    if action == sqlite3.SQLITE_PRAGMA:
        return sqlite3.SQLITE_OK if first in PRAGMAS else sqlite3.SQLITE_DENY
    if action in REFUSED or (action == sqlite3.SQLITE_FUNCTION and second in REFUSED_FUNCTIONS):
        return sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK
