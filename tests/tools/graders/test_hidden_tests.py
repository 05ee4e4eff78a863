"""Hidden tests: right and wrong projects, and those that cheat. Every cheat is a wrong solution, so none may pass."""

from __future__ import annotations

import asyncio

import pytest

from agentrl.sandbox import Exec, SandboxError, SandboxLost, Status
from agentrl.tools.graders.hidden_tests import allowed, pytest_cases
from agentrl.tools.sandboxes.scripted import ScriptedPool, ScriptedSandbox

RIGHT = "def add(a, b):\n    return a + b\n\ndef half(n):\n    if n % 2:\n        raise ValueError(n)\n    return n // 2\n"
WRONG = "def add(a, b):\n    return a - b\n\ndef half(n):\n    return n\n"
TESTS = {
    "tests/test_calc.py": """
from calc import add, half

def test_add():
    assert add(2, 3) == 5
    assert add(-1, 1) == 0

def test_half():
    assert half(8) == 4

class TestZero:
    def test_zero(self):
        assert not add(0, 0)
""",
    "tests/test_unit.py": """
import unittest
from calc import half

class Halves(unittest.TestCase):
    def setUp(self):
        self.odd = 3

    def test_odd(self):
        with self.assertRaises(ValueError):
            half(self.odd)

    def test_even(self):
        self.assertEqual(half(10), 5)
""",
}
IDS = (
    "tests/test_calc.py::test_add",
    "tests/test_calc.py::test_half",
    "tests/test_calc.py::TestZero::test_zero",
    "tests/test_unit.py::Halves::test_odd",
    "tests/test_unit.py::Halves::test_even",
)


FEW = (IDS[0], IDS[4])
"""A pytest function and a unittest method: each test is a process, which takes its time on a busy machine."""


def grade(within, files, tests=TESTS, ids=IDS, **options):
    return within(lambda sandbox: pytest_cases(sandbox, files, tests, ids, **options))


def test_a_right_project_passes(each):
    graded = grade(each, {"calc.py": RIGHT})
    assert graded.all_passed, graded.error
    assert (graded.total, graded.tests, graded.forced, graded.reward) == (5, IDS, (), 1.0)


def test_a_wrong_project_passes_what_it_gets_right(each):
    """add(0, 0) is 0 with a minus, too; half of an odd number does not raise, half of 8 and of 10 is wrong."""
    graded = grade(each, {"calc.py": WRONG})
    assert [case.passed for case in graded.cases] == [False, False, True, False, False]
    assert graded.pass_rate == 0.2
    assert "AssertionError" in graded.error or "assert" in graded.error


@pytest.mark.parametrize("code", ["def add(:", "1 / 0", "", "import no_such_module"])
def test_broken_projects_fail(each, code):
    assert grade(each, {"calc.py": code}, ids=FEW).passed == 0


EXIT = "import os\nos._exit(0)\n"
MARKS = """
import json, os, sys
for fd in range(64):
    for line in ("1 passed", json.dumps({"token": "0" * 32, "phases": [[t, p, "passed"] for t in IDS for p in ("setup", "call",
            "teardown")], "error": ""})):
        try:
            os.write(fd, line.encode() + b"\\n")
        except OSError:
            pass
os._exit(0)
""".replace("IDS", repr(IDS))
EQUALS_ALL = """
class Any_(int):
    def __eq__(self, other): return True
    def __bool__(self): return False
    __hash__ = None
def add(a, b): return Any_()
def half(n):
    if n % 2: raise ValueError
    return Any_()
"""
FORGED = """
import gc, json, os, sys
test = None
frame = sys._getframe()
while frame:
    if "job" in frame.f_locals:
        test = frame.f_locals["job"]["id"]
        token, report = frame.f_locals["token"], frame.f_locals["report"]
        said = {"token": os.read(token, 64).decode(), "phases": [[test, p, "passed"] for p in ("setup", "call", "teardown")],
                "error": ""}
        os.write(report, json.dumps(said).encode() + b"\\n")
        os._exit(0)
    frame = frame.f_back
"""
WALKS = """
import sys
def add(a, b):
    frame = sys._getframe(1)
    consts = [c for c in frame.f_code.co_consts if isinstance(c, int)]
    return consts[2] if len(consts) > 2 else 0
half = lambda n: add(n, n)
"""
NO_RAISE = """
import sys, types
for module in list(sys.modules.values()):
    for name, value in list(vars(module).items()) if isinstance(module, types.ModuleType) else []:
        if name == "phases" and isinstance(value, list):
            value.clear()
def patch():
    frame = sys._getframe()
    while frame:
        phases = frame.f_locals.get("phases")
        if isinstance(phases, list):
            class Passing(list):
                def append(self, item): list.append(self, (item[0], item[1] if item[1] != "collect" else "call", "passed"))
                def __iadd__(self, items):
                    for item in items: self.append(item)
                    return self
            test = frame.f_locals.get("test") or frame.f_locals.get("job", {}).get("id")
            phases += [(test, p, "passed") for p in ("setup", "call", "teardown")]
            raise KeyboardInterrupt
        frame = frame.f_back
patch()
"""
PATCHED_PYTEST = """
import sys
def add(a, b): return 0
half = lambda n: n
try:
    import _pytest.runner, _pytest.reports
    make = _pytest.reports.TestReport.from_item_and_call.__func__
    def lie(cls, item, call):
        call.excinfo = None
        return make(cls, item, call)
    _pytest.reports.TestReport.from_item_and_call = classmethod(lie)
except ImportError:
    import unittest
    unittest.TestResult.wasSuccessful = lambda self: True
"""


@pytest.mark.parametrize(
    "code", [EXIT, MARKS, EQUALS_ALL, FORGED, WALKS, NO_RAISE, PATCHED_PYTEST],
    ids=["exit", "marks", "equals_all", "forged", "walks", "recorder", "patched"],
)  # fmt: skip
def test_cheats_do_not_pass(each, code):
    graded = grade(each, {"calc.py": code}, ids=FEW)
    assert not graded.all_passed
    assert graded.reward == 0.0


@pytest.mark.parametrize("code", [EQUALS_ALL, FORGED, PATCHED_PYTEST], ids=["equals_all", "forged", "patched"])
def test_what_forces_a_verdict_gets_nothing_at_all(with_pytest, code):
    """These would pass if it were not for the mutants: that is the proof that the mutants catch something."""
    graded = grade(with_pytest, {"calc.py": code}, ids=FEW)
    assert graded.forced
    assert graded.pass_rate == 0.0
    assert "forced" in graded.error
    assert grade(with_pytest, {"calc.py": code}, ids=FEW, controls=0).passed > 0


def test_files_that_steer_tests_are_left_out(each):
    passing = "import pytest\n@pytest.hookimpl(tryfirst=True)\ndef pytest_pyfunc_call(pyfuncitem):\n    return True\n"
    cheats = {
        "conftest.py": passing,
        "tests/conftest.py": passing,
        "pytest.ini": "[pytest]\naddopts = --collect-only\n",
        "sitecustomize.py": EXIT,
        "tests/test_calc.py": "def test_add():\n    pass\n",
        "pytest.py": EXIT,
        "_pytest/__init__.py": "",
        "unittest/__init__.py": EXIT,
        "x.dist-info/entry_points.txt": "[pytest11]\nx = calc\n",
        "evil.pth": "import os; os._exit(0)",
        "../outside.py": "",
        "/etc/absolute.py": "",
    }
    settings = {
        "setup.cfg": "[tool:pytest]\naddopts = --collect-only\n",
        "pyproject.toml": "[tool.pytest.ini_options]\naddopts='-k x'",
    }
    graded = grade(each, {"calc.py": WRONG, **cheats, **settings}, ids=FEW)
    assert graded.ignored == tuple(cheats)
    assert graded.passed == 0
    assert grade(each, {"calc.py": RIGHT, **cheats, **settings}, ids=FEW).all_passed


def test_a_file_cannot_stand_in_the_way_of_a_hidden_one():
    assert allowed({"tests": "", "tests/test_a.py/x": "", "a/b": "", "a": "", "./c.py": "1"}, ["tests/test_a.py"]) == (
        {"a": b"", "c.py": b"1"},
        ("tests", "tests/test_a.py/x", "a/b"),
    )


def test_hidden_files_overwritten_on_disk_at_import_change_nothing(each):
    """Each test has its files written anew: what one process does to them is gone in the next."""
    code = """
import glob
for path in glob.glob("**/*.py", recursive=True):
    if "test" in path:
        open(path, "w").write("def test_add(): pass")
"""
    assert grade(each, {"calc.py": code + WRONG}, ids=FEW).passed == 0


SPECIAL = {
    "test_special.py": """
import pytest, calc

@pytest.mark.skip
def test_skipped(): pass

def test_skips_itself():
    pytest.skip()

@pytest.mark.xfail
def test_xfails():
    assert False

@pytest.mark.xfail
def test_xpasses(): pass

@pytest.mark.parametrize(("a", "want"), [(1, 2), (2, 4)])
def test_double(a, want):
    assert calc.add(a, a) == want

@pytest.fixture
def broken():
    yield 1
    assert False

def test_teardown_fails(broken):
    assert broken == 1

def test_approx():
    assert calc.add(0.1, 0.2) == pytest.approx(0.3)
"""
}


@pytest.mark.parametrize(
    ("name", "passes"),
    [
        ("test_skipped", False),
        ("test_skips_itself", False),
        ("test_xfails", False),
        ("test_xpasses", False),
        ("test_double[1-2]", True),
        ("test_double[9-9]", False),  # there is none
        ("test_double", False),  # two tests ran, neither of this id
        ("test_teardown_fails", False),
        ("test_missing", False),
        ("test_approx", True),
    ],
)
def test_only_a_test_that_ran_and_passed_counts(with_pytest, name, passes):
    graded = grade(with_pytest, {"calc.py": RIGHT}, SPECIAL, [f"test_special.py::{name}"])
    assert graded.all_passed is passes, graded.error


def test_a_test_that_skips_fails_in_our_runner(plain):
    tests = {"test_a.py": "import unittest\ndef test_a():\n    raise unittest.SkipTest\n"}
    assert not grade(plain, {}, tests, ["test_a.py::test_a"])


def test_a_hang_is_cut_and_the_others_count(plain):
    code = RIGHT + "\n_add = add\ndef add(a, b):\n    while a == 2: pass\n    return _add(a, b)\n"
    graded = grade(plain, {"calc.py": code}, timeout=0.5)
    assert [case.passed for case in graded.cases] == [False, True, True, True, True]
    assert graded.cases[0].status is Status.TIMEOUT


def test_the_time_for_all_is_bounded(plain):
    tests = {"test_a.py": "".join(f"def test_{i}():\n    while True: pass\n" for i in range(20))}
    graded = grade(plain, {}, tests, [f"test_a.py::test_{i}" for i in range(20)], timeout=0.1, total=0.2, controls=0)
    assert graded.passed == 0
    assert {case.status for case in graded.cases} == {Status.TIMEOUT}
    assert sum("not run" in case.error for case in graded.cases) == 12  # all but the first batch of 8


def test_no_expected_test_is_no_success(plain):
    assert not grade(plain, {"calc.py": RIGHT}, TESTS, [])


@pytest.mark.parametrize("test", ["test_x.py::test_a", "tests/test_calc.py", "calc.py::add"])
def test_ids_that_are_not_of_hidden_tests_are_the_authors_mistake(plain, test):
    with pytest.raises(ValueError, match="no id"):
        grade(plain, {"calc.py": RIGHT}, TESTS, [test])


def test_without_pytest_its_tests_are_no_verdict(plain):
    with pytest.raises(SandboxError, match="PYTEST_PACKAGES"):
        grade(plain, {"calc.py": RIGHT}, SPECIAL, ["test_special.py::test_approx"])


def test_import_roots(each):
    tests = {"test_a.py": "from calc import add\ndef test_a():\n    assert add(1, 1) == 2\n"}
    assert grade(each, {"src/calc.py": RIGHT, "src/pytest.py": EXIT}, tests, ["test_a.py::test_a"], import_roots=["src"])


def test_a_lost_sandbox_is_no_verdict():
    for answer, error in ((Exec(status=Status.LOST), SandboxError), (SandboxLost("gone"), SandboxLost)):
        sandbox = ScriptedSandbox(ScriptedPool(lambda request, answer=answer: answer))
        with pytest.raises(error):
            asyncio.run(pytest_cases(sandbox, {"calc.py": RIGHT}, TESTS, IDS))
