"""SQL results and rows: right, wrong and hostile queries."""

from __future__ import annotations

import asyncio
import sqlite3

import pytest

from agentrl.sandbox import Call, SandboxLost, Status
from agentrl.tools.graders import sql_result
from agentrl.tools.graders.rows import difference
from agentrl.tools.graders.sql import sql_rows
from agentrl.tools.sandboxes.scripted import ScriptedPool, ScriptedSandbox

SETUP = """
CREATE TABLE city (name TEXT, people INTEGER, area REAL);
INSERT INTO city VALUES ('Oslo', 700, 454.0), ('Bergen', 290, 465.3), ('Narvik', 14, NULL);
"""
BY_SIZE = [("Oslo", 700), ("Bergen", 290)]


def grade(within, query, expected, **options):
    return within(lambda sandbox: sql_result(sandbox, query, SETUP, expected, **options))


@pytest.mark.parametrize(
    ("query", "expected", "options", "passes"),
    [
        ("SELECT name, people FROM city WHERE people > 100", BY_SIZE, {}, True),
        ("SELECT name, people FROM city WHERE people > 100 ORDER BY people", BY_SIZE, {}, True),
        ("SELECT name, people FROM city WHERE people > 100 ORDER BY people", BY_SIZE, {"ordered": True}, False),
        ("SELECT name, people FROM city WHERE people > 100 ORDER BY people DESC", BY_SIZE, {"ordered": True}, True),
        ("SELECT name AS n, people FROM city WHERE people > 100;", BY_SIZE, {}, True),
        ("SELECT name FROM city WHERE people > 100", BY_SIZE, {}, False),
        ("SELECT name, people, 1 FROM city WHERE people > 100", BY_SIZE, {}, False),
        ("SELECT name, people FROM city", BY_SIZE, {}, False),
        ("SELECT sum(area) / 3 FROM city", [(306.43333333,)], {}, True),  # (454 + 465.3) / 3
        ("SELECT area FROM city WHERE name = 'Narvik'", [(None,)], {}, True),
        ("SELECT 0", [(None,)], {}, False),
        ("SELECT ''", [(None,)], {}, False),
        ("SELECT '14'", [(14,)], {}, False),
        ("SELECT people FROM city WHERE people > 999", [], {}, True),
        ("SELECT people, 1 FROM city WHERE people > 999", [], {"columns": 1}, False),
        ("SELECT 1 UNION ALL SELECT 1", [(1,)], {}, False),
        ("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 3) SELECT sum(i) FROM n", [(6,)], {}, True),
        ("SELEC 1", [(1,)], {}, False),
        ("", [], {}, False),
        ("-- nothing", [], {}, False),
    ],
)  # fmt: skip
def test_queries(plain, query, expected, options, passes):
    assert grade(plain, query, expected, **options).passed is passes


@pytest.mark.parametrize(
    "query",
    [
        "DELETE FROM city",
        "INSERT INTO city VALUES ('x', 1, 1) RETURNING 1",
        "CREATE TABLE t AS SELECT 1",
        "ATTACH '/etc/passwd' AS p",
        "PRAGMA trusted_schema = 1",
        "SELECT load_extension('x')",
        "SELECT 1; SELECT 1",
        "VACUUM INTO 'x'",
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i FROM n) SELECT i FROM n",
        "SELECT length(zeroblob(100000000))",
    ],
)
def test_hostile_queries_fail(plain, query):
    assert not grade(plain, query, [(1,)])


def test_an_endless_query_is_cut(plain):
    query = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i FROM n) SELECT count(*) FROM n"
    assert grade(plain, query, [(1,)], timeout=0.5).status is Status.TIMEOUT


def test_a_database_file_is_a_setup_too(plain):
    made = sqlite3.connect(":memory:")
    made.executescript(SETUP)
    data, query = made.serialize(), "SELECT count(*) FROM city"
    assert plain(lambda sandbox: sql_result(sandbox, query, data, [(3,)]))
    assert plain(lambda sandbox: sql_rows(sandbox, query, SETUP)) == (1, [(3,)])


@pytest.mark.parametrize("setup", ["CREATE TABEL x", b"no database at all" * 100])
def test_a_broken_setup_is_the_authors_mistake(plain, setup):
    with pytest.raises(ValueError, match="cannot be made"):
        plain(lambda sandbox: sql_result(sandbox, "SELECT 1", setup, [(1,)]))


def test_what_is_expected_stays_outside_and_a_lost_sandbox_is_no_verdict():
    pool = ScriptedPool(lambda request: Call(status=Status.OK, value=("rows", (1, [(7,)]))))
    assert asyncio.run(sql_result(ScriptedSandbox(pool), "SELECT 7", SETUP, [("secret-answer",)])).passed is False
    assert "secret-answer" not in repr(pool.requests)
    lost = ScriptedPool(lambda request: SandboxLost("gone"))
    with pytest.raises(SandboxLost):
        asyncio.run(sql_result(ScriptedSandbox(lost), "SELECT 7", SETUP, [(7,)]))


def test_expected_rows_are_what_sqlite_can_give(plain):
    with pytest.raises(TypeError, match="list"):
        grade(plain, "SELECT 1", [([1],)])


@pytest.mark.parametrize(
    ("got", "want", "same"),
    [
        ([(1, "a"), (1, "a"), (2, "b")], [(1, "a"), (2, "b"), (2, "b")], False),
        ([("a", 1.0000000001), ("a", 2.0)], [("a", 2), ("a", 1)], True),
        ([(None,), (1,)], [(1,), (None,)], True),
        ([(b"x",)], [("x",)], False),
        ([(2**53 + 1,)], [(2**53,)], False),
        # sorted, the first columns pair the wrong rows: both are within the tolerance of both
        ([(1.0, 5.0), (1.0000000001, 2.0)], [(1.0, 2.0), (1.0000000001, 5.0)], True),
        ([(1.0, 5.0), (1.0000000001, 5.0)], [(1.0, 2.0), (1.0000000001, 5.0)], False),
    ],
)
def test_rows_as_a_multiset(got, want, same):
    assert (difference(got, want, ordered=False) == "") is same
