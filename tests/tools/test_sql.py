"""SQL in a real sandbox: reading and writing, what is refused, and what a model is told."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

import agentrl as rl
from agentrl.errors import UsageError
from agentrl.messages import ToolCall
from agentrl.tool import ToolBox, ToolCrash
from agentrl.toolbox import toolbox
from agentrl.tools.graders import compare_database
from agentrl.tools.sql import FILE, table

SHOP = """
CREATE TABLE items (id INTEGER PRIMARY KEY, name TEXT, price REAL);
INSERT INTO items VALUES (1, 'tea', 2.5), (2, 'rice', NULL), (3, 'soap', 4);
CREATE TABLE orders (item INTEGER REFERENCES items (id), count INTEGER);
"""


class Shop(rl.Env):
    sandbox = rl.SandboxSpec()
    database: Any = None


def box(**settings: Any) -> ToolBox:
    env = Shop()
    env.tools = [rl.use("sql", **settings)]
    return toolbox(env)


def ask(best: Any, *queries: str, own: Any = SHOP, **settings: Any) -> list[str]:
    """The answers to queries in one episode."""
    return asked(best, *queries, own=own, **settings)[0]


def asked(best: Any, *queries: str, own: Any = SHOP, **settings: Any) -> tuple[list[str], bytes]:
    async def work() -> tuple[list[str], bytes]:
        env = Shop()
        env.database = own
        async with await best.pool.acquire() as sandbox:
            calls = [ToolCall(id="1", name="sql", arguments={"query": query}) for query in queries]
            answers = await box(**settings).run(calls, {"sandbox": sandbox, "env": env})
            return [message.text for message, _ in answers], await sandbox.read(FILE)

    done: tuple[list[str], bytes] = best.run(work())
    return done


def test_rows_are_shown_as_a_table(best: Any) -> None:
    assert ask(best, "SELECT name, price FROM items ORDER BY id", "SELECT 1 WHERE 0") == [
        "name | price\ntea | 2.5\nrice | NULL\nsoap | 4.0\n(3 rows)",
        "1\n(0 rows)",
    ]
    assert ask(best, "SELECT id FROM items", rows=2) == ["id\n1\n2\n(the first 2 rows; there are more)"]


def test_the_tables_can_be_looked_up(best: Any) -> None:
    schema, columns = ask(best, "SELECT sql FROM sqlite_schema WHERE name = 'items'", "PRAGMA table_info(orders)")
    assert "price REAL" in schema
    assert "0 | item | INTEGER" in columns


def test_long_values_and_bytes_are_cut() -> None:
    assert table(["a"], [("x" * 300,), (b"abc",), ("a\nb",)], False) == f"a\n{'x' * 200}[...]\n[3 bytes]\na\\nb\n(3 rows)"


def test_a_database_that_can_only_be_read(best: Any) -> None:
    answers, data = asked(best, "DELETE FROM items", "CREATE TABLE t (a)", "SELECT count(*) FROM items")
    assert answers[:2] == ["Error: not authorized: the database can only be read"] * 2
    assert answers[2] == "count(*)\n3\n(1 row)"
    assert compare_database(data, {"orders": []}, exact=False).passed


def test_changes_stay_and_can_be_graded(best: Any) -> None:
    answers, data = asked(
        best,
        "INSERT INTO orders VALUES (1, 2), (3, 1)",
        "UPDATE items SET price = 3 WHERE id = 2 RETURNING name",
        "DELETE FROM orders WHERE item = 3",
        "CREATE TABLE notes (a)",
        "SELECT price FROM items WHERE id = 2",
        writable=True,
    )
    assert answers == [
        "done; 2 rows changed",
        "name\nrice\n(1 row)",
        "done; 1 row changed",
        "done; 0 rows changed",
        "price\n3.0\n(1 row)",
    ]
    assert compare_database(data, {"orders": [{"item": 1, "count": 2}]}, exact=False).passed


def test_a_failed_statement_changes_nothing(best: Any) -> None:
    failed, count = ask(best, "INSERT INTO orders VALUES (1, 1), (99, 1)", "SELECT count(*) FROM orders", writable=True)
    assert failed == "Error: FOREIGN KEY constraint failed"
    assert count == "count(*)\n0\n(1 row)"


@pytest.mark.parametrize("writable", [False, True])
@pytest.mark.parametrize(
    "query",
    [
        "ATTACH DATABASE '/etc/passwd' AS p",
        "PRAGMA journal_mode = WAL",
        "PRAGMA writable_schema = ON",
        "SELECT load_extension('x')",
        "COMMIT",
        "SAVEPOINT a",
        "VACUUM INTO 'x'",
    ],
)
def test_what_reaches_beyond_the_database_is_refused(best: Any, query: str, writable: bool) -> None:
    (text,) = ask(best, query, writable=writable)
    assert text.startswith("Error: ")
    assert "not authorized" in text or "VACUUM" in text


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("SELECT nme FROM items", "no such column: nme"),
        ("SELECT 1; SELECT 2", "You can only execute one statement at a time."),
        ("SELEC 1", 'near "SELEC": syntax error'),
        ("SELECT zeroblob(100000000)", "string or blob too big"),
        ("SELECT 'a\0b'", "the query contains a null character"),
    ],
)
def test_mistakes_are_told(best: Any, query: str, told: str) -> None:
    (text,) = ask(best, query)
    assert text.startswith("Error: ")
    assert told in text


def test_a_query_without_end_is_stopped(best: Any) -> None:
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT sum(i) FROM n"
    first, second = ask(best, endless, "SELECT 1 AS one", timeout=2.0)
    assert first == "Error: the query took longer than 2 s and was stopped"
    assert second == "one\n1\n(1 row)"


def test_a_database_file_and_a_script_are_taken(best: Any, tmp_path: Path) -> None:
    script, file = tmp_path / "shop.sql", tmp_path / "shop.sqlite"
    script.write_text(SHOP)
    connection = sqlite3.connect(file)
    connection.executescript(SHOP)
    connection.close()
    for own, settings in ((script, {}), (file, {}), (file.read_bytes(), {}), (None, {"database": str(script)})):
        assert ask(best, "SELECT count(*) AS n FROM items", own=own, **settings) == ["n\n3\n(1 row)"]
    assert ask(best, "DELETE FROM items", own=None, database=str(file), writable=True) == ["done; 3 rows changed"]
    assert sqlite3.connect(file).execute("SELECT count(*) FROM items").fetchone() == (3,)


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"database": "nowhere.sqlite"}, "the database nowhere.sqlite cannot be read: No such file"),
        ({"database": __file__}, "is no SQLite database; a script's name ends in .sql"),
        ({"rows": 0}, "sql: rows=0 must be at least 1"),
        ({"writeable": True}, "Sql has no setting 'writeable'; did you mean 'writable'"),
    ],
)
def test_what_cannot_be_had_is_said_before_anything_is_played(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        box(**settings)


def test_without_any_database_the_run_stops(best: Any) -> None:
    with pytest.raises(UsageError, match=r"sql has no database: .* or set self\.database in Shop\.reset"):
        ask(best, "SELECT 1", own=None)
    with pytest.raises(UsageError, match="not int"):
        ask(best, "SELECT 1", own=3)


def test_a_script_that_fails_is_the_authors_fault(best: Any) -> None:
    with pytest.raises(ToolCrash, match="the database cannot be made: near"):
        ask(best, "SELECT 1", own="CREATE TABEL x")
