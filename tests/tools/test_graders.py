# ruff: noqa: E501  # programs in strings, tables
"""Graders: right answers pass, wrong ones do not, and no trick turns the one into the other."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentrl.sandbox import Call, Exec, SandboxLost, Status
from agentrl.tools.graders import CaseResult, GradeResult, equal, function_cases, record_cases, same_tokens, stdin_cases
from agentrl.tools.graders.result import shown
from agentrl.tools.sandboxes.scripted import ScriptedPool

from .sandboxes.conftest import Local

CASES: list[tuple[Sequence[Any], Any]] = [((2,), 4), ((3,), 9), ((-7,), 49)]


def grade(local: Local, code: str, cases: Sequence[tuple[Sequence[Any], Any]] = CASES, **options: Any) -> GradeResult:
    async def main() -> GradeResult:
        async with await local.pool.acquire() as sandbox:
            return await function_cases(sandbox, code, "f", cases, **options)

    return local.run(main())


def test_right_and_wrong(each: Local) -> None:
    assert grade(each, "def f(x): return x * x").all_passed
    half = grade(each, "def f(x): return x ** 2 if x != 3 else 10")
    assert (half.passed, half.total, half.pass_rate) == (2, 3, 2 / 3)
    assert [case.passed for case in half.cases] == [True, False, True]
    assert half.error == "got 10, expected 9"
    assert not half.all_passed


CHEATS = {
    "an object equal to all": "class A:\n    def __eq__(self, o): return True\n    def __hash__(self): return 0\ndef f(x): return A()",
    "an int equal to all": "class A(int):\n    def __eq__(self, o): return True\n    __hash__ = int.__hash__\ndef f(x): return A(0)",
    "a list equal to all": "class A(list):\n    def __eq__(self, o): return True\n    def __len__(self): return 1\ndef f(x): return A()",
    "a float that is not itself": "class A(float):\n    def __float__(self): return 4.0\n    __index__ = __int__ = __float__\ndef f(x): return A(0)",
    "leave early": "import os\ndef f(x): os._exit(0)",
    "leave at load": "import os; os._exit(0)",
    "sys.exit": "import sys\ndef f(x): sys.exit(0)",
    "sys.exit at load": "import sys; sys.exit(0)",
    "printed marks": "def f(x):\n    print('PASSED', '1 passed', 'OK', '{\"passed\": true}'); return None",
    "written to every descriptor": (
        "import os\ndef f(x):\n    for fd in range(3, 64):\n        try: os.write(fd, b'PASS\\n')\n        except OSError: pass\n    os._exit(0)"
    ),
    "results forged by kind": (
        "import os, struct\ndef f(x):\n    for fd in range(3, 64):\n        try:\n"
        "            for _ in range(9): os.write(fd, struct.pack('<cI', b'V', 4) + b'true')\n        except OSError: pass\n    os._exit(0)"
    ),
    "walked frames": (
        "import sys\ndef f(x):\n    frame = sys._getframe()\n    while frame:\n"
        "        for name in ('expected', 'want', 'cases', 'answer', 'asked'):\n"
        "            if name in frame.f_locals: return frame.f_locals[name]\n        frame = frame.f_back"
    ),
    "searched memory": (
        "import gc\ndef f(x):\n    found = [o for o in gc.get_objects() if isinstance(o, (dict, list)) and 'expected' in o]\n"
        "    return found[0]['expected'] if found else None"
    ),
    "read the tests": (
        "import os\ndef f(x):\n    for folder in ('.', '/tmp', os.path.expanduser('~'), '/'):\n        try: names = os.listdir(folder)\n"
        "        except OSError: continue\n        for name in names:\n            try:\n                text = open(folder + '/' + name).read()\n"
        "                if '49' in text: return 49\n            except OSError: pass"
    ),
    "json replaced": "import json\njson.dumps = lambda *a, **k: 'true'\njson.loads = lambda *a: True\ndef f(x): return 0",
    "builtins replaced": (
        "import builtins\nbuiltins.isinstance = lambda *a: True\nbuiltins.len = lambda x: 0\nbuiltins.type = lambda x: int\ndef f(x): return 0"
    ),
    "the driver replaced": (
        "import sys\nfor name, module in list(sys.modules.items()):\n    if name.startswith('zygote'):\n        for key in list(vars(module)):\n"
        "            if callable(vars(module)[key]): setattr(module, key, lambda *a, **k: b'true')\ndef f(x): return 0"
    ),
    "operators replaced": "import operator, math\noperator.eq = lambda a, b: True\nmath.isclose = lambda *a, **k: True\ndef f(x): return 0",
    "a generator": "def f(x):\n    yield 4",
    "an endless generator": "def f(x):\n    while True: yield x",
    "a list in itself": "def f(x):\n    a = []; a.append(a); return a",
    "recursion": "def f(x): return f(x)",
    "endless": "def f(x):\n    while True: pass",
    "endless, exceptions swallowed": "def f(x):\n    while True:\n        try:\n            while True: pass\n        except BaseException: pass",
    "a lie about time": (
        "import sys, time\npages = [o for o in __import__('gc').get_objects() if type(o).__name__ == 'mmap']\ndef f(x):\n"
        "    for page in pages: page[8:16] = b'\\xff' * 8\n    while True: time.sleep(.01)"
    ),
    "not a number": "def f(x): return float('nan')",
    "infinity": "def f(x): return float('inf')",
    "none": "def f(x): pass",
    "text": "def f(x): return str(x * x)",
    "in a list": "def f(x): return [x * x]",
    "an exception with a name": "class PASS(BaseException): pass\ndef f(x): raise PASS('passed')",
    "an exception that fails": "class E(Exception):\n    def __str__(self): raise ValueError\ndef f(x): raise E",
    "a fork that answers": "import os\ndef f(x):\n    os.fork(); os._exit(0)",
    "fork and return": "import os\ndef f(x):\n    os.fork(); return 0",
    "a thread that leaves": "import os, threading\nthreading.Thread(target=lambda: os._exit(0)).start()\ndef f(x): import time; time.sleep(1)",
    "an atexit": "import atexit, os\natexit.register(lambda: os._exit(0))\ndef f(x): raise SystemExit(0)",
    "a trace function": "import sys\nsys.settrace(lambda *a: None); sys.setprofile(lambda *a: None)\ndef f(x): return 0",
    "no function": "g = 1",
    "function replaced by a number": "f = 4",
    "a syntax error": "def f(x) return 4",
    "a file for the grader": "def f(x):\n    open('result.json', 'w').write('{\"passed\": 3}'); open('conftest.py', 'w').write('x'); return 0",
    "too large": "def f(x): return 'x' * (50 << 20)",
    "too large to print": "def f(x): return 10 ** 200_000",
    "a huge set": "def f(x): return set(range(100_000))",
    "memory": "def f(x):\n    a = []\n    while True: a.append(b'x' * (64 << 20))",
    "killed": "import os\ndef f(x): os.kill(os.getpid(), 9)",
    "stopped": "import os\ndef f(x): os.kill(os.getpid(), 19)",
}  # fmt: skip


@pytest.mark.parametrize("name", CHEATS)
def test_a_cheat_passes_nothing(best: Local, name: str) -> None:
    result = grade(best, CHEATS[name], timeout=0.5, total=2.5)
    assert (result.passed, result.total) == (0, 3), result
    assert all(case.error for case in result.cases)


def test_what_is_printed_is_no_harm(best: Local) -> None:
    assert grade(best, "def f(x):\n    print('x' * 1_000_000); import sys; sys.stderr.write('no'); return x * x").all_passed


def test_cases_go_on_after_one_that_ends_the_process(best: Local) -> None:
    code = "import os\ndef f(x):\n    if x == 3: os._exit(0)\n    return x * x"
    result = grade(best, code)
    assert [case.passed for case in result.cases] == [True, False, True]
    assert result.error == "the process ended: exit code 0"


def test_each_case_has_its_own_deadline(best: Local) -> None:
    code = "import time\ndef f(x):\n    time.sleep(0.8)\n    while x == 3: pass\n    return x * x"
    result = grade(best, code, timeout=2, total=20)  # three times 0.8 s are more than one deadline
    assert [case.status for case in result.cases] == [Status.OK, Status.TIMEOUT, Status.OK]
    assert result.passed == 2


def test_types_arrive_and_return_as_they_are(each: Local) -> None:
    code = "def f(x): return x"
    things = [
        None, True, 0, -1, 2**80, 1.5, -0.0, math.inf, math.nan, "é\udcff\0", b"\0\xff", [1, [2]], (1, (2,)), {1, "a"}, frozenset([3]),
        {1: "a", (1, 2): [None], None: {}, "b": 2}, 1 + 2j, Decimal("1.50"), Fraction(1, 3), [], (), {}, set(),
    ]  # fmt: skip
    assert grade(each, code, [((x,), x) for x in things], strict_types=True).all_passed
    assert grade(each, "def f(x): return type(x).__name__", [((x,), type(x).__name__) for x in things]).all_passed


def test_arguments_are_positional_and_fresh(best: Local) -> None:
    code = "def f(a, b=[]):\n    a.append(1); return a, b"
    assert grade(best, code, [(([],), ([1], [])), (([], 5), ([1], 5)), ((), None)]).passed == 2


def test_a_method_of_a_class(best: Local) -> None:
    async def main() -> GradeResult:
        async with await best.pool.acquire() as sandbox:
            code = "class Solution:\n    def __init__(self): self.k = 2\n    def square(self, x): return x ** self.k"
            return await function_cases(sandbox, code, "Solution.square", CASES)

    assert best.run(main()).all_passed


def test_cases_that_are_no_data_are_the_authors_mistake(best: Local) -> None:
    with pytest.raises(TypeError, match="no plain data"):
        grade(best, "def f(x): pass", [((1,), object())])
    with pytest.raises(TypeError, match="no plain data"):
        grade(best, "def f(x): pass", [((object(),), 1)])


def test_no_cases_are_no_pass(best: Local) -> None:
    result = grade(best, "def f(x): pass", [])
    assert (result.total, result.pass_rate, result.all_passed, result.error) == (0, 0.0, False, "")


@pytest.mark.parametrize(
    ("got", "want", "same"),
    [
        (1, 1, True), (1, 1.0, True), (True, 1, True), (0, False, True), (1, 2, False), (0.1 + 0.2, 0.3, True), (1e-12, 0, True),
        (0, 1e-12, True), (1e6, 1e6 + 0.5, True), (1.0, 1.001, False), (math.nan, math.nan, True), (math.nan, 1.0, False),
        (1, math.nan, False), (math.inf, math.inf, True), (-math.inf, math.inf, False), (1e308, math.inf, False), (10**400, 1.0, False),
        (10**400, math.inf, False), ("1.0", 1.0, False), (1.0, "1.0", False), (None, 0.0, False), (None, None, True), ([], (), False),
        ([1, 2], [1, 2.0], True), ([1, 2], [1], False), ([1], [1, 2], False), ((1, [2]), (1, [2]), True), ({1, 2}, {2, 1}, True),
        ({1}, frozenset([1]), True), ({1: 0.1 + 0.2}, {1: 0.3}, True), ({1: 1}, {1: 1, 2: 2}, False), ({1: 1}, {2: 1}, False),
        ({1.0: 1}, {1: 1}, True), ({}, [], False), ([], {}, False), (1 + 0j, 1, True), (1j, 1, False), (1 + 1e-9j, 1.0, True),
        (Decimal("0.5"), 0.5, True), (Fraction(1, 2), Decimal("0.5"), True), (b"a", "a", False), ("a", "a", True), (2**53 + 1, 2**53, False),
        ([math.nan], [math.nan], True), ([[1]], [1.0], False), ([1], 1.0, False), ({1: 2}, 1.0, False),
    ],
)  # fmt: skip
def test_equal(got: Any, want: Any, same: bool) -> None:
    assert equal(got, want) is same


@pytest.mark.parametrize(
    ("got", "want", "same"),
    [
        (True, 1, False),
        (1, 1.0, False),
        (1, 1, True),
        ([1], [True], False),
        ({1}, frozenset([1]), False),
        (1.0, 1.0 + 1e-12, True),
    ],
)
def test_equal_with_strict_types(got: Any, want: Any, same: bool) -> None:
    assert equal(got, want, strict_types=True) is same


@settings(max_examples=50, deadline=None)
@given(st.recursive(st.none() | st.integers() | st.floats() | st.text(), lambda x: st.lists(x) | st.tuples(x, x), max_leaves=8))
def test_everything_equals_itself(value: Any) -> None:
    assert equal(value, value)
    assert equal(value, value, strict_types=True)


def test_shown_is_short_and_never_fails() -> None:
    assert shown("a" * 1000).endswith("...")
    assert len(shown("a" * 1000)) < 210
    assert shown(10**100_000) == "<int>"


def stdin_grade(local: Local, code: str, cases: Sequence[tuple[str, str]], **options: Any) -> GradeResult:
    async def main() -> GradeResult:
        async with await local.pool.acquire() as sandbox:
            return await stdin_cases(sandbox, code, cases, **options)

    return local.run(main())


def test_stdin_cases(each: Local) -> None:
    code = "n = int(input())\nprint(n * n)\nprint(f'{n / 3:.9f}')"
    assert stdin_grade(each, code, [("2\n", "4\n0.6666667"), ("3", " 9\n1.0 \n\n")]).all_passed
    result = stdin_grade(each, code, [("2", "5 0.67"), ("x", "1")])
    assert result.passed == 0
    assert result.cases[0].error.startswith("printed '4")
    assert result.cases[1].error == "error: ValueError: invalid literal for int() with base 10: 'x'"


@pytest.mark.parametrize(
    "code",
    [
        "print(4); import sys; sys.exit(1)",
        "print(4); 1 / 0",
        "print(4); import os; os.kill(os.getpid(), 9)",
        "print(4, flush=True)\nwhile True: pass",
        "print('PASSED')",
        "print(4, 4)",
        "import os; os._exit(0)",
        "print('4' + 'x' * 100_000)",
        "print(4); print(' ' * 100_000)",
    ],
)
def test_stdin_cases_that_must_fail(best: Local, code: str) -> None:
    assert stdin_grade(best, code, [("", "4")], timeout=0.7).passed == 0


def test_each_stdin_case_starts_anew(best: Local) -> None:
    code = "import os\nprint(len(os.listdir('.')))\nopen('state', 'w').close()"
    assert stdin_grade(best, code, [("", "0")] * 3).all_passed


@pytest.mark.parametrize(
    ("got", "want", "same"),
    [("1 2", "1\n2\n", True), ("1", "1.0", True), ("1.0", "1", False), ("1", "2", False), ("yes", "YES", False), ("", "", True),
     ("", "0", False), ("nan", "1.5", False), ("0.3000000001", "0.3", True), ("x", "1.5", False), ("1e400", "1.5", False)],
)  # fmt: skip
def test_same_tokens(got: str, want: str, same: bool) -> None:
    assert same_tokens(got, want) is same


def test_tests_of_a_reference_become_cases(each: Local) -> None:
    reference = "def add(a, b):\n    return a + b\n"
    tests = (
        "def check(candidate):\n    assert candidate(1, 2) == 3\n    for x in ([1], (2,)): assert candidate(x, x) == x + x\n"
    )

    async def main() -> tuple[list[Any], GradeResult, GradeResult]:
        async with await each.pool.acquire() as sandbox:
            cases = await record_cases(sandbox, reference, "add", tests)
        async with await each.pool.acquire() as sandbox:
            right = await function_cases(sandbox, "def add(x, y): return y.__radd__(x) if 0 else x + y", "add", cases)
            wrong = await function_cases(sandbox, "def add(x, y): return 3", "add", cases)
        return cases, right, wrong

    cases, right, wrong = each.run(main())
    assert cases == [((1, 2), 3), (([1], [1]), [1, 1]), (((2,), (2,)), (2, 2))]
    assert right.all_passed
    assert wrong.passed == 1


def test_a_reference_that_fails_is_an_error(best: Local) -> None:
    async def main() -> None:
        async with await best.pool.acquire() as sandbox:
            await record_cases(sandbox, "def f(x): return 1", "f", "def check(candidate): assert candidate(1) == 2")

    with pytest.raises(ValueError, match="does not pass its tests"):
        best.run(main())


def scripted(answers: Any) -> Any:
    async def main() -> GradeResult:
        pool = ScriptedPool(answers)
        sandbox = await pool.acquire()
        return await function_cases(sandbox, "code", "f", CASES)

    return asyncio.run(main())


def test_a_lost_sandbox_is_no_verdict() -> None:
    with pytest.raises(SandboxLost, match="gone"):
        scripted(lambda request: SandboxLost("gone"))


def test_results_are_judged_by_status_and_value() -> None:
    calls = iter([Call(status=Status.OK, value=4), Call(status=Status.MEMORY), Call(status=Status.ERROR, error="E")])
    assert scripted(lambda request: next(calls)).cases == (
        CaseResult(passed=True, status=Status.OK),
        CaseResult(passed=False, status=Status.MEMORY, error="memory"),
        CaseResult(passed=False, status=Status.ERROR, error="E"),
    )


def test_a_cut_output_does_not_pass() -> None:
    async def main() -> GradeResult:
        pool = ScriptedPool(lambda request: Exec(status=Status.OK, stdout="4", stdout_cut=True))
        return await stdin_cases(await pool.acquire(), "code", [("", "4")])

    assert asyncio.run(main()).passed == 0
