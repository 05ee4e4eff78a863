"""Function and stdin cases: sound candidates, and the cheats that pass a grader inside the candidate's process."""

from __future__ import annotations

import asyncio

import pytest

from agentrl.sandbox import Call, SandboxLost, Status
from agentrl.tools.graders import equal, function_cases, record_cases, stdin_cases
from agentrl.tools.sandboxes.scripted import ScriptedPool, ScriptedSandbox

CASES = [((2, 3), 5), ((10, -4), 6)]


def graded(within, code, cases=CASES, **options):
    return within(lambda sandbox: function_cases(sandbox, code, "add", cases, **options))


def test_honest_and_wrong(plain):
    assert graded(plain, "def add(a, b): return a + b").reward == 1.0
    wrong = graded(plain, "def add(a, b): return 5")
    assert [case.passed for case in wrong.cases] == [True, False]
    assert (wrong.pass_rate, wrong.reward, wrong.error) == (0.5, 0.0, "got 5, expected 6")


CHEATS = {
    "equals_all": """
class A(int):
    def __eq__(self, other): return True
def add(a, b): return A()
""",
    "walks_frames": """
import gc, sys
def add(a, b):
    frame = sys._getframe()
    while frame:
        for value in list(frame.f_locals.values()):
            if isinstance(value, list):
                value.append("passed")
        frame = frame.f_back
""",
    "reads_expected": """
import gc, sys
def add(a, b):
    found = [o for o in gc.get_objects() if type(o) is tuple and len(o) == 2 and o[0] == (a, b)]
    return found[0][1] if found else None
""",
    "exits": "import sys, os\nprint('passed')\nsys.exit(0)",
    "exits_hard": "import os\ndef add(a, b): os._exit(0)",
    "redefines": "def check(*a): return True\ndef add(a, b): return check",
    "patches": """
import builtins
builtins.isinstance = builtins.all = lambda *a: True
def add(a, b): return float("nan")
""",
}  # fmt: skip


@pytest.mark.parametrize("cheat", CHEATS)
def test_cheats_fail(plain, cheat):
    assert graded(plain, CHEATS[cheat]).passed == 0


def test_a_hanging_call_is_cut_and_the_next_goes_on(plain):
    result = graded(plain, "def add(a, b):\n    while a == 2: pass\n    return a + b", timeout=0.5)
    assert [(case.passed, case.status) for case in result.cases] == [(False, Status.TIMEOUT), (True, Status.OK)]


def test_nothing_shown_is_nothing_won(plain):
    empty = graded(plain, "def add(a, b): return a + b", cases=[])
    assert (empty.all_passed, empty.pass_rate, empty.reward, bool(empty)) == (False, 0.0, 0.0, False)


def test_a_lost_sandbox_is_no_verdict():
    sandbox = ScriptedSandbox(ScriptedPool(lambda request: SandboxLost("gone")))
    for work in (function_cases(sandbox, "", "add", CASES), stdin_cases(sandbox, "", [("", "")])):
        with pytest.raises(SandboxLost):
            asyncio.run(work)


def test_expected_values_do_not_reach_the_sandbox():
    pool = ScriptedPool(lambda request: Call(status=Status.OK, value=0))
    asyncio.run(function_cases(ScriptedSandbox(pool), "code", "add", [((2, 3), 123_456_789)]))
    assert "123456789" not in repr(pool.requests)
    assert pool.requests[0].arguments == (2, 3)


@pytest.mark.parametrize(
    ("code", "passes"),
    [
        ("print(int(input()) * 2)", True),
        ("print(' 8\\n')", False),
        ("print(int(input()) * 2); raise SystemExit(1)", False),
        ("print(int(input()) * 2, 'passed')", False),
        ("import os; os._exit(0)", False),
        ("while True: pass", False),
    ],
)
def test_programs(plain, code, passes):
    cases = [("4\n", "8\n"), ("5\n", "10\n")]
    assert plain(lambda sandbox: stdin_cases(sandbox, code, cases, timeout=1.0)).all_passed is passes


def test_recorded_cases(plain):
    tests = "def check(candidate):\n    assert candidate(1, 2) == 3\n    assert candidate('a', 'b') == 'ab'"
    reference = "def add(a, b): return a + b"
    assert plain(lambda s: record_cases(s, reference, "add", tests)) == [((1, 2), 3), (("a", "b"), "ab")]
    with pytest.raises(ValueError, match="reference"):
        plain(lambda s: record_cases(s, "def add(a, b): return 0", "add", tests))


@pytest.mark.parametrize(
    ("got", "want", "same"),
    [
        (0.1 + 0.2, 0.3, True),
        (0.3001, 0.3, False),
        ([1, 2], (1, 2), False),
        ("1", 1, False),
        ("nan", float("nan"), False),
        (float("nan"), float("nan"), True),
        (float("inf"), float("-inf"), False),
        ({1: [2.0]}, {1: [2]}, True),
        ({1: 2}, {1: 2, 3: 4}, False),
        (True, 1, True),
        (None, 0, False),
    ],
)
def test_equal(got, want, same):
    assert equal(got, want) is same
