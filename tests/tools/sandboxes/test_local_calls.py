"""Many programs and many calls of a function in one local sandbox."""

from __future__ import annotations

import asyncio
import time

import pytest

from agentrl.sandbox import Call, Status
from agentrl.tools.sandboxes.local import LocalSandbox

from .conftest import Local
from .looking import in_sandbox


def test_run_many_programs_do_not_see_each_other(each: Local) -> None:
    program = """
import os
print(sorted(os.listdir(".")), open("given").read())
open("new", "w").close(); os.makedirs("sub/deeper"); open("folder/more", "w").close()
if os.fork() == 0:
    import time; time.sleep(.05); open("late", "w").close()
"""

    async def work(sandbox: LocalSandbox) -> list[str]:
        await sandbox.write("given", b"1")
        await sandbox.write("folder/kept", b"2")
        done = await sandbox.run_many([program] * 4)
        after = await sandbox.run("ls; ls folder; cat folder/kept")
        return [*(each.stdout for each in done), after.stdout]

    *programs, after = in_sandbox(each, work)
    assert programs == ["['folder', 'given'] 1\n"] * 4
    assert after == "folder\ngiven\nkept\n2"


def test_run_many_gives_each_its_input(best: Local) -> None:
    done = in_sandbox(best, lambda sandbox: sandbox.run_many(["print(input())", "1 / 0"], stdins=["a", ""]))
    assert [each.status for each in done] == [Status.OK, Status.ERROR]
    assert done[0].stdout == "a\n"
    with pytest.raises(ValueError, match="zip"):
        in_sandbox(best, lambda sandbox: sandbox.run_many(["print(input())"], stdins=["a", "b"]))


def test_calls(each: Local) -> None:
    code = """
import os, sys
state = []
def f(x):
    state.append(x)
    if x == "exit": os._exit(0)
    if x == "hang":
        while True: pass
    if x == "raise": raise ValueError("no " + x)
    if x == "leave": sys.exit(0)
    if x == "big": return "y" * (20 << 20)
    if x == "object": return object()
    return len(state), {x: (None, True, {1.5}, b"z")}
"""
    inputs = ["a", "b", "exit", "c", "raise", "leave", "hang", "d", "big", "e", "object", "f"]
    calls = in_sandbox(each, lambda sandbox: sandbox.call_many(code, "f", [(x,) for x in inputs], timeout=3, total=60))
    by_input = dict(zip(inputs, calls, strict=True))

    def value(x: str, count: int) -> Call:
        return Call(status=Status.OK, value=(count, {x: (None, True, {1.5}, b"z")}))

    assert by_input["a"] == value("a", 1)
    assert by_input["b"] == value("b", 2)  # the same process
    assert by_input["exit"] == Call(status=Status.ERROR, error="the process ended: exit code 0")
    assert by_input["c"] == value("c", 1)  # a new one
    assert by_input["raise"] == Call(status=Status.ERROR, error="ValueError: no raise")
    assert by_input["leave"] == Call(status=Status.ERROR, error="SystemExit: 0")
    assert by_input["hang"].status is Status.TIMEOUT
    assert by_input["d"] == value("d", 1)
    assert by_input["big"].error == "the values are too large"
    assert by_input["e"] == value("e", 1)
    assert by_input["object"] == Call(status=Status.ERROR, error="TypeError: a object is no plain data")
    assert by_input["f"] == value("f", 3)


def test_calls_are_bounded_in_total(best: Local) -> None:
    code = "def f(x):\n    while True: pass"
    begun = time.monotonic()
    calls = in_sandbox(best, lambda sandbox: sandbox.call_many(code, "f", [(i,) for i in range(50)], timeout=0.2, total=0.6))
    assert [call.status for call in calls] == [Status.TIMEOUT] * 50
    assert time.monotonic() - begun < 10


def test_code_that_cannot_be_loaded_fails_all_calls_at_once(best: Local) -> None:
    for code, text in [
        ("1 / 0", "ZeroDivisionError"),
        ("g = 1", "no 'f'"),
        ("f = 1", "is no function"),
        ("import os; os._exit(0)", "exit code 0"),
        ("def f(:", "SyntaxError"),
    ]:
        calls = in_sandbox(best, lambda sandbox, code=code: sandbox.call_many(code, "f", [(1,)] * 30, timeout=5))
        assert {call.status for call in calls} == {Status.ERROR}
        assert text in calls[0].error
        assert len(calls) == 30


def test_arguments_must_be_plain_data(best: Local) -> None:
    with pytest.raises(TypeError, match="no plain data"):
        in_sandbox(best, lambda sandbox: sandbox.call_many("def f(x): pass", "f", [(object(),)], timeout=1))


def test_calls_on_one_sandbox_are_done_in_turn(best: Local) -> None:
    async def work(sandbox: LocalSandbox) -> list[str]:
        done = await asyncio.gather(
            *(sandbox.python(f"open('log', 'a').write('{i}'); print(open('log').read())") for i in range(5))
        )
        return [each.stdout for each in done]

    assert in_sandbox(best, work) == ["0\n", "01\n", "012\n", "0123\n", "01234\n"]
