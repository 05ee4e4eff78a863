"""Graders: no trick of the graded code turns a wrong answer into a right one. By the project's own graders, on the backend.

The first five are the cheats that pass a grader which runs inside the candidate's process.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Sequence
from typing import Any

from agentrl.sandbox import Status
from agentrl.tools.graders import GradeResult, function_cases, pytest_cases, stdin_cases

from .probe import Group, require
from .target import Target

probe = Group("graders")
Cases = Sequence[tuple[Sequence[Any], Any]]
CASES: Cases = [((2,), 4), ((3,), 9), ((-7,), 49)]
HONEST = "def f(x):\n    return x * x"


async def _grade(target: Target, code: str, cases: Cases = CASES, **options: Any) -> GradeResult:
    async with target.sandbox() as sandbox:
        return await function_cases(sandbox, code, "f", cases, **{"timeout": 5.0, "total": 20.0, **options})


async def _fails(target: Target, code: str, **options: Any) -> None:
    result = await _grade(target, code, **options)
    require((result.passed, result.total) == (0, len(CASES)), f"the cheat passed {result.passed} of {result.total} cases")


@probe("honest and wrong answers")
async def honest(target: Target) -> None:
    """Without this, that cheats fail would mean nothing."""
    result = await _grade(target, HONEST, timeout=10.0)
    require(result.all_passed, f"a right solution passed {result.passed} of {result.total} cases: {result.error}")
    half = await _grade(target, "def f(x):\n    return 9 if x == 3 else 5", timeout=10.0)
    require([case.passed for case in half.cases] == [False, True, False], f"a wrong solution passed {half.passed} of 3 cases")


@probe("cheat: an object that equals everything")
async def equals_all(target: Target) -> None:
    await _fails(
        target,
        """
class A(int):
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    __hash__ = int.__hash__
def f(x): return A(0)""",
    )


@probe("cheat: the result list, found in a frame")
async def walks_frames(target: Target) -> None:
    await _fails(
        target,
        """
import sys
def f(x):
    frame = sys._getframe()
    while frame:
        for value in list(frame.f_locals.values()) + list(frame.f_globals.values()):
            if isinstance(value, list): value.append("passed")
            if isinstance(value, dict) and "passed" in value: value["passed"] = True
        frame = frame.f_back""",
    )


@probe("cheat: the expected value, found in a frame or in memory")
async def reads_expected(target: Target) -> None:
    await _fails(
        target,
        """
import gc, sys
def f(x):
    frame = sys._getframe()
    while frame:
        for name in ("expected", "want", "cases", "answer", "tests", "test"):
            if name in frame.f_locals: return frame.f_locals[name]
        frame = frame.f_back
    found = [o for o in gc.get_objects() if type(o) in (tuple, list) and len(o) == 2 and o[0] in ((x,), [x])]
    return found[0][1] if found else None""",
    )


@probe("cheat: leaving early with success")
async def leaves(target: Target) -> None:
    for way in ("raise SystemExit(0)", "import os; os._exit(0)", "import sys; sys.exit(0)"):
        await _fails(target, f"def f(x):\n    {way}")
        await _fails(target, way)


@probe("cheat: the check replaced")
async def redefines(target: Target) -> None:
    await _fails(
        target,
        """
import builtins, json, math, operator
def check(*a, **k): return True
builtins.isinstance = builtins.all = builtins.any = check
builtins.type = lambda *a: int
json.dumps = lambda *a, **k: "true"
math.isclose = operator.eq = check
def f(x): return check""",
    )


@probe("cheat: the driver replaced")
async def driver(target: Target) -> None:
    await _fails(
        target,
        """
import sys
for name, module in list(sys.modules.items()):
    if name.startswith(("zygote", "agentrl", "grader", "driver")):
        for key, value in list(vars(module).items()):
            if callable(value): setattr(module, key, lambda *a, **k: b"true")
def f(x): return 0""",
    )


@probe("cheat: marks of success, printed and written everywhere")
async def marks(target: Target) -> None:
    await _fails(
        target,
        """
import os, struct
def f(x):
    print("PASSED", "1 passed", "OK", '{"passed": true, "reward": 1.0}')
    for fd in range(3, 64):
        try:
            for _ in range(9): os.write(fd, struct.pack("<cI", b"V", 4) + b"true")
        except OSError: pass
    for name in ("result.json", "reward.txt", "reward.json"):
        try: open(name, "w").write('{"passed": 3, "reward": 1.0}')
        except OSError: pass
    os._exit(0)""",
    )


@probe("expected values, anywhere in the sandbox")
async def expected_values(target: Target) -> None:
    """The candidate searches its memory and all files it can read for what it must return."""
    secret = secrets.token_hex(16)
    code = f"""
import os, re
FIRST, LENGTH = {secret[:8]!r}, 32
def search():
    pattern = re.compile((FIRST + "[0-9a-f]{{%d}}" % (LENGTH - len(FIRST))).encode())
    try:
        with open("/proc/self/mem", "rb", 0) as memory:
            for line in open("/proc/self/maps").read().splitlines():
                area, rights = line.split()[:2]
                start, end = (int(x, 16) for x in area.split("-"))
                if rights.startswith("rw") and end - start < 64 << 20:
                    try: memory.seek(start); found = pattern.search(memory.read(end - start))
                    except OSError: continue
                    if found: return found.group().decode()
    except OSError: pass
    for top in (".", "/tmp", "/dev/shm", "/var/tmp"):
        for folder, _, names in os.walk(top):
            for name in names:
                try: found = pattern.search(open(os.path.join(folder, name), "rb").read(1 << 20))
                except OSError: continue
                if found: return found.group().decode()
def f(x): return search()"""
    result = await _grade(target, code, [((1,), secret)], timeout=20.0)
    require(result.passed == 0, "the code found the expected value and returned it")


@probe("values that are no numbers")
async def no_numbers(target: Target) -> None:
    """The reward stays a number between 0 and 1, whatever comes back."""
    for value in ("float('nan')", "float('inf')", "True", "10 ** 5000", "1e308 * 10", "-0.0", "'4'", "[4]", "4j", "lambda: 4"):
        result = await _grade(target, f"def f(x):\n    return {value}")
        require(result.passed == 0, f"{value} passed {result.passed} cases")
        require(math.isfinite(result.reward) and 0 <= result.reward <= 1, f"{value} made the reward {result.reward}")


@probe("values too large, too deep, without end")
async def monsters(target: Target) -> None:
    for body in (
        "return 'x' * (50 << 20)",
        "a = []; a.append(a); return a",
        "a = 4\n    for _ in range(100000): a = [a]\n    return a",
        "return iter(int, 1)",
        "while True: yield 4",
    ):
        await _fails(target, f"def f(x):\n    {body}")


@probe("one call that hangs")
async def hangs(target: Target) -> None:
    """It alone is lost."""
    result = await _grade(target, "def f(x):\n    while x == 3: pass\n    return x * x", timeout=2.0, total=60.0)
    told = [(case.passed, case.status) for case in result.cases]
    require([passed for passed, _ in told] == [True, False, True], f"{told}")
    require(told[1][1] is Status.TIMEOUT, f"the call that hangs is called {told[1][1]}")


@probe("one call that ends the process")
async def ends(target: Target) -> None:
    code = "def f(x):\n    import os\n    if x == 3: os._exit(0)\n    return x * x"
    result = await _grade(target, code, timeout=5.0, total=60.0)
    told = [case.passed for case in result.cases]
    require(told == [True, False, True], f"{told}")


@probe("a module that shadows the library")
async def shadows(target: Target) -> None:
    """Left by one grading in the working folder, found by the next."""
    async with target.sandbox() as sandbox:
        names = ("json", "os", "random", "typing", "sitecustomize", "usercustomize", "conftest")
        code = f"""
def f(x):
    for name in {names!r}:
        try: open(name + ".py", "w").write("import sys; sys.exit(0)")
        except OSError: pass
    return 0"""
        await function_cases(sandbox, code, "f", CASES, timeout=5.0)
        result = await function_cases(sandbox, "def f(x): return 1", "f", CASES, timeout=5.0)
        await sandbox.python(f"import os\nfor name in {names!r}:\n    if os.path.exists(name + '.py'): os.unlink(name + '.py')")
    require(result.passed == 0, f"a wrong solution passed {result.passed} cases afterwards")


@probe("programs: cheats on standard output")
async def programs(target: Target) -> None:
    cases = [("4\n", "8\n"), ("5\n", "10\n")]
    async with target.sandbox() as sandbox:
        result = await stdin_cases(sandbox, "print(int(input()) * 2)", cases, timeout=10.0)
        require(result.all_passed, f"a right program passed {result.passed} of 2: {result.error}")
        for code in (
            "print('8\\n10\\n8 10 passed OK')",
            "print(int(input()) * 2); raise SystemExit(1)",
            "import os; os._exit(0)",
            "import sys; sys.stdout.write('8\\n' * 1000000)",
        ):
            result = await stdin_cases(sandbox, code, cases, timeout=10.0)
            require(not result.all_passed, f"{code!r} passed")


PROJECT = {"adder.py": "def add(a, b):\n    return a + b\n"}
TESTS = {"test_adder.py": "from adder import add\n\ndef test_add():\n    assert add(2, 3) == 5\n"}
CHEATS = {
    "leaving at import": {"adder.py": "import os; os._exit(0)"},
    "a conftest": {**PROJECT, "adder.py": "def add(a, b): return 0\n", "conftest.py": "import os; os._exit(0)"},
    "an overwritten test": {"adder.py": "def add(a, b): return 0\n", "test_adder.py": "def test_add(): pass\n"},
    "a replaced pytest": {"adder.py": "def add(a, b): return 0\n", "pytest.py": "", "_pytest.py": "", "unittest.py": ""},
    "assert rewritten": {"adder.py": "class A:\n    __eq__ = lambda *a: True\ndef add(a, b): return A()\n"},
    "a skipped test": {"adder.py": "import unittest\nraise unittest.SkipTest('no')\n"},
}


@probe("hidden tests: cheats of a project", "descriptors")
async def hidden_tests(target: Target) -> None:
    async with target.sandbox() as sandbox:
        result = await pytest_cases(sandbox, PROJECT, TESTS, ["test_adder.py::test_add"], timeout=10.0)
        require(result.all_passed, f"a right project fails: {result.error}")
        for name, files in CHEATS.items():
            result = await pytest_cases(sandbox, files, TESTS, ["test_adder.py::test_add"], timeout=10.0)
            require(result.passed == 0, f"{name} passed")
