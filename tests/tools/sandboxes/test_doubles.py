"""The sandbox that is none (unsafe_local) and the one that runs nothing (scripted)."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import time
import warnings
from typing import Any

import pytest

from agentrl.registry import find
from agentrl.sandbox import Call, Exec, IsolationError, Sandbox, SandboxError, SandboxLost, SandboxSpec, Status
from agentrl.tools.graders import function_cases, stdin_cases
from agentrl.tools.sandboxes.scripted import Request, ScriptedPool
from agentrl.tools.sandboxes.unsafe_local import UnsafeLocalPool

SPEC = SandboxSpec(timeout=10, output="4K")


def unsafe(work: Any, spec: SandboxSpec = SPEC) -> Any:
    async def main() -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            pool = await UnsafeLocalPool.open(spec, 2)
        async with pool, await pool.acquire() as sandbox:
            return await work(sandbox)

    return asyncio.run(main())


def test_unsafe_local_warns_each_time_and_says_what_it_is(caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        with caplog.at_level(logging.WARNING), pytest.warns(RuntimeWarning, match="without any isolation"):
            pool = asyncio.run(UnsafeLocalPool.open(SPEC, 1))
        assert pool.isolation == "none"
    assert sum("without any isolation" in record.message for record in caplog.records) == 2


@pytest.mark.parametrize("level", ["landlock", "namespace", "namespace+cgroup"])
def test_unsafe_local_refuses_a_spec_that_asks_for_isolation(level: str) -> None:
    with pytest.raises(IsolationError, match=rf"isolates nothing, and isolation={re.escape(level)} is asked for"):
        asyncio.run(UnsafeLocalPool.open(SandboxSpec(isolation=level), 1))


def test_all_backends_open_the_same_way() -> None:
    for name in ("local", "unsafe_local", "scripted"):
        assert asyncio.iscoroutinefunction(find("sandbox", name).open)


@pytest.mark.parametrize(
    ("code", "status", "exit_code"),
    [
        ("print(1)", Status.OK, 0),
        ("1 / 0", Status.ERROR, 1),
        ("import sys; sys.exit(3)", Status.ERROR, 3),
        ("import os; os.kill(os.getpid(), 15)", Status.KILLED, 143),
        ("raise MemoryError", Status.MEMORY, 1),
    ],
)
def test_unsafe_local_statuses(code: str, status: Status, exit_code: int) -> None:
    done = unsafe(lambda sandbox: sandbox.python(code))
    assert (done.status, done.exit_code) == (status, exit_code), done


def test_unsafe_local_kills_the_group_at_the_deadline_and_is_not_held_up() -> None:
    begun = time.monotonic()
    done = unsafe(lambda sandbox: sandbox.run("echo began; sleep 30 & sleep 30", timeout=2))
    assert (done.status, done.stdout) == (Status.TIMEOUT, "began\n")
    held = unsafe(lambda sandbox: sandbox.run("sleep 30 & echo done"))
    assert (held.status, held.stdout) == (Status.OK, "done\n")
    assert time.monotonic() - begun < 25


def test_unsafe_local_output_is_bounded() -> None:
    done = unsafe(lambda sandbox: sandbox.python("while True: print('x' * 1000)"))
    assert (done.status, len(done.stdout), done.stdout_cut) == (Status.OUTPUT, 4096, True)


def test_unsafe_local_files_and_programs() -> None:
    async def work(sandbox: Any) -> None:
        assert isinstance(sandbox, Sandbox)
        await sandbox.write("a/b", b"\0\xff")
        assert await sandbox.read("a/b") == b"\0\xff"
        for path in ("../x", "/etc/passwd", "", "."):
            with pytest.raises(ValueError, match="leads out"):
                await sandbox.read(path)
        with pytest.raises(FileNotFoundError):
            await sandbox.read("none")
        assert (await sandbox.run(["cat", "a/b"])).exit_code == 0
        assert (await sandbox.run(["no-such-program"])).exit_code == 127
        assert [each.stdout for each in await sandbox.run_many(["print(input())"] * 2, stdins=["a", "b"])] == ["a\n", "b\n"]
        assert (await sandbox.python("import os; print(len(os.environ))")).stdout.strip() in {"3", "4"}
        home = (await sandbox.run("pwd")).stdout.strip()
        await sandbox.aclose()
        await sandbox.aclose()
        assert not os.path.exists(home)  # noqa: ASYNC240
        with pytest.raises(SandboxError, match="closed"):
            await sandbox.python("1")

    unsafe(work)


def test_unsafe_local_grades() -> None:
    code = "import os\ndef f(x):\n    if x == 2: os._exit(0)\n    while x == 3: pass\n    return x * x"

    async def work(sandbox: Any) -> tuple[list[Status], list[bool], bool]:
        cases = [((x,), x * x) for x in range(5)]
        result = await function_cases(sandbox, code, "f", cases, timeout=2, total=30)
        lines = await stdin_cases(sandbox, "print(int(input()) + 1)", [("1", "2")])
        return [case.status for case in result.cases], [case.passed for case in result.cases], lines.all_passed

    statuses, passed, lines = unsafe(work)
    assert passed == [True, True, False, False, True]
    assert statuses[2:4] == [Status.ERROR, Status.TIMEOUT]
    assert lines


def test_scripted_answers_records_and_raises() -> None:
    async def main() -> None:
        def answers(request: Request) -> Any:
            if request.kind == "call":
                return Call(status=Status.OK, value=request.arguments[0] + 1)
            return SandboxLost("gone") if request.code == "die" else Exec(status=Status.OK, stdout=request.stdin)

        pool = await ScriptedPool.open(SPEC, 1, answers=answers)
        async with await pool.acquire() as sandbox:
            assert isinstance(sandbox, Sandbox)
            assert (await sandbox.python("x", stdin="in")).stdout == "in"
            assert [each.stdout for each in await sandbox.run_many(["a", "b"], stdins=["1", "2"])] == ["1", "2"]
            assert [call.value for call in await sandbox.call_many("c", "f", [(1,), (2,)], timeout=1)] == [2, 3]
            assert (await sandbox.run(["ls", "-l"])).ok
            with pytest.raises(SandboxLost, match="gone"):
                await sandbox.python("die")
            await sandbox.write("f", b"1")
            assert await sandbox.read("f") == b"1"
            with pytest.raises(FileNotFoundError):
                await sandbox.read("g")
            assert pool.open_now == 1
        assert (pool.open_now, pool.acquired) == (0, 1)
        assert not await sandbox.alive()
        with pytest.raises(SandboxError, match="closed"):
            await sandbox.python("x")
        assert [(each.kind, each.code) for each in pool.requests] == [
            ("python", "x"), ("python", "a"), ("python", "b"), ("call", "c"), ("call", "c"), ("run", "ls -l"),
            ("python", "die"),
        ]  # fmt: skip
        assert pool.requests[3] == Request(kind="call", code="c", function="f", arguments=(1,))

    asyncio.run(main())


def test_scripted_by_a_table_and_its_mistakes() -> None:
    async def main() -> None:
        pool = ScriptedPool({"known": Exec(status=Status.ERROR, exit_code=2), "odd": Call(status=Status.OK)})
        sandbox = await pool.acquire()
        assert (await sandbox.python("known")).exit_code == 2
        assert (await sandbox.python("other")).ok
        with pytest.raises(TypeError, match="must be an Exec"):
            await sandbox.python("odd")
        with pytest.raises(TypeError, match="must be a Call"):
            await sandbox.call_many("known", "f", [()], timeout=1)

    asyncio.run(main())
