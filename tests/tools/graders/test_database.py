"""The state of a database: what is right, what is wrong, and files made to deceive or to harm the reader."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from agentrl.sandbox import Status
from agentrl.tools.graders import compare_database, db_state

EXPECTED = {"orders": [{"id": 1, "total": 9.5}, {"id": 2, "total": None}], "log": []}
RIGHT = """
CREATE TABLE log (line TEXT);
CREATE TABLE orders (id INTEGER PRIMARY KEY, total REAL, note TEXT);
INSERT INTO orders VALUES (2, NULL, 'x'), (1, 9.5, 'y');
"""


def made(script: str) -> bytes:
    connection = sqlite3.connect(":memory:")
    connection.executescript(script)
    return connection.serialize()


def test_right():
    result = compare_database(made(RIGHT), EXPECTED)
    assert result.all_passed, result.error
    assert result.total == 2


@pytest.mark.parametrize(
    ("change", "case", "words"),
    [
        ("UPDATE orders SET total = 9.6 WHERE id = 1", 0, "missing"),
        ("DELETE FROM orders WHERE id = 1", 0, "got 1 rows, expected 2"),
        ("INSERT INTO orders VALUES (3, 1, '')", 0, "more than 2 rows"),
        ("INSERT INTO log VALUES ('x')", 1, "more than 0 rows"),
        ("DROP TABLE log", 1, "no table 'log'"),
        ("ALTER TABLE orders RENAME COLUMN total TO sum", 0, "no column 'total'"),
        ("CREATE TABLE extra (x)", 2, "not expected"),
    ],
)
def test_wrong(change, case, words):
    result = compare_database(made(RIGHT + change), EXPECTED)
    assert [i for i, one in enumerate(result.cases) if not one.passed] == [case]
    assert words in result.error


def test_other_tables_may_be_let_be():
    assert compare_database(made(RIGHT + "CREATE TABLE extra (x)"), EXPECTED, exact=False)


def test_a_view_is_no_table():
    rows = "SELECT 1 AS id, 9.5 AS total UNION ALL SELECT 2, NULL"
    result = compare_database(made(f"CREATE TABLE log (line); CREATE VIEW orders AS {rows}"), EXPECTED)
    assert "only a view" in result.error


def test_a_missing_column_is_not_taken_for_a_text():
    """SQLite reads "status" as the text 'status' where there is no such column."""
    assert not compare_database(made("CREATE TABLE t (a); INSERT INTO t VALUES (1)"), {"t": [{"status": "status"}]})


def test_names_are_quoted():
    script = 'CREATE TABLE "a""; DROP TABLE x; --" ("c d" TEXT); INSERT INTO "a""; DROP TABLE x; --" VALUES (\'v\')'
    assert compare_database(made(script), {'a"; DROP TABLE x; --': [{"c d": "v"}]})


def corrupted() -> bytes:
    data = bytearray(
        made("CREATE TABLE log (line TEXT); CREATE TABLE orders (id, total);" + "INSERT INTO log VALUES (zeroblob(9000));" * 9)
    )
    data[4096 * 2 : 4096 * 2 + 200] = b"\xff" * 200
    return bytes(data)


@pytest.mark.parametrize(
    "data", [b"", b"SQLite format 3\0", b"x" * 5000, corrupted(), made(RIGHT)[:5000]],
    ids=["empty", "header", "noise", "corrupted", "cut"],
)  # fmt: skip
def test_what_is_no_sound_database_fails(data):
    assert compare_database(data, EXPECTED).passed == 0


def test_large_files_and_values_are_not_read():
    assert "at most 100" in compare_database(made(RIGHT), EXPECTED, max_bytes=100).error
    assert not compare_database(made("CREATE TABLE t (a); INSERT INTO t VALUES (zeroblob(3000000))"), {"t": [{"a": b""}]})


def test_a_slow_file_is_cut():
    """A generated column that takes long to compute."""
    slow = "length(replace(hex(zeroblob(400000)), '0', 'abcdef'))"
    script = f"CREATE TABLE t (a, b AS ({slow})); INSERT INTO t (a) SELECT 1 FROM " + ", ".join(
        ["(SELECT 1 UNION SELECT 2)"] * 12
    )
    expected = {"t": [{"b": 1}] * 4096}
    result = compare_database(made(script), expected, timeout=0.0)
    assert result.passed == 0
    assert result.cases[0].status is Status.TIMEOUT


def test_a_file_in_write_ahead_mode_is_read(tmp_path: Path):
    file = tmp_path / "x.sqlite"
    connection = sqlite3.connect(file)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.executescript(RIGHT)
    connection.close()
    assert compare_database(file.read_bytes(), EXPECTED)


def test_rows_must_agree_on_their_columns():
    with pytest.raises(ValueError, match="different columns"):
        compare_database(made(RIGHT), {"orders": [{"id": 1}, {"total": 2}]})


def test_out_of_a_sandbox(plain):
    async def work(sandbox):
        await sandbox.python(f"import sqlite3; c = sqlite3.connect('shop.db'); c.executescript({RIGHT!r})")
        right = await db_state(sandbox, "shop.db", EXPECTED)
        missing = await db_state(sandbox, "none.db", EXPECTED)
        await sandbox.python("import os; os.mkfifo('pipe.db'); os.symlink('/etc/passwd', 'link.db')")
        return right, missing, await db_state(sandbox, "pipe.db", EXPECTED)

    right, missing, pipe = plain(work)
    assert right.all_passed, right.error
    assert (missing.passed, missing.total, pipe.passed) == (0, 2, 0)
