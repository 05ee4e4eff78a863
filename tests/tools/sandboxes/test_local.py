"""The local sandbox's contract: how programs end, what they print, what they are given."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import pytest

from agentrl.sandbox import Exec, Sandbox, SandboxSpec, Status
from agentrl.tools.sandboxes.local import LocalPool, LocalSandbox

from .conftest import Local
from .looking import in_sandbox


def test_it_is_a_sandbox(best: Local) -> None:
    async def work(sandbox: LocalSandbox) -> bool:
        return isinstance(sandbox, Sandbox)

    assert in_sandbox(best, work)


@pytest.mark.parametrize(
    ("code", "status", "exit_code"),
    [
        ("print(1)", Status.OK, 0),
        ("1 / 0", Status.ERROR, 1),
        ("import sys; sys.exit(3)", Status.ERROR, 3),
        ("exit(4)", Status.ERROR, 4),
        ("raise SystemExit('bye')", Status.ERROR, 1),
        ("import os; os._exit(0)", Status.OK, 0),
        ("import os; os._exit(9)", Status.ERROR, 9),
        ("def f(:", Status.ERROR, 1),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", Status.KILLED, 128 + 15),
        ("import ctypes; ctypes.string_at(1)", Status.KILLED, 128 + 11),
        ("import os; os.abort()", Status.KILLED, 128 + 6),
        ("import signal, time; signal.alarm(1); time.sleep(9)", Status.KILLED, 128 + 14),
        ("bytearray(1 << 40)", Status.MEMORY, 1),
        ("raise MemoryError", Status.MEMORY, 1),
        ("import resource; resource.setrlimit(resource.RLIMIT_CPU, (1, 2))\nwhile True: pass", Status.TIMEOUT, 128 + 24),
    ],
)
def test_how_it_ended(each: Local, code: str, status: Status, exit_code: int) -> None:
    if "setrlimit" in code and each.pool.isolation != "namespace":
        pytest.skip("a second of CPU time; one level is enough")
    done = each.python(code)
    assert (done.status, done.exit_code) == (status, exit_code), done


def test_timeout_kills_and_keeps_what_was_printed(each: Local) -> None:
    done = each.python("print('so far')\nwhile True: pass", timeout=2)
    assert done.status is Status.TIMEOUT
    assert done.exit_code == 137
    assert done.stdout == "so far\n"
    assert 1.9 < done.wall_s < 30


def test_cpu_time_of_all_processes_together_is_bounded(background: Any) -> None:
    code = "import os\nfor _ in range(3): os.fork()\nwhile True: pass"  # 8 processes: a second of each is 8 in all

    async def main() -> Exec:
        async with await LocalPool.open(SandboxSpec(cpu=1.0, timeout=60), 1) as pool, await pool.acquire() as sandbox:
            return await sandbox.python(code)

    done = background.run(main())
    assert done.status is Status.TIMEOUT
    assert done.wall_s < 40


def test_a_failure_shows_the_source_line(each: Local) -> None:
    done = each.python("x = 1\ny = x / 0")
    assert done.stderr.splitlines()[1:3] == ['  File "main.py", line 2, in <module>', "    y = x / 0"]
    assert done.stderr.splitlines()[-1] == "ZeroDivisionError: division by zero"


def test_endless_recursion_ends(each: Local) -> None:
    done = each.python("def f(n): return f(n + 1)\nf(0)")
    assert done.status is Status.ERROR
    assert done.stderr.rstrip().splitlines()[-1].startswith("RecursionError")


def test_output_is_cut_and_flagged(each: Local) -> None:
    limit = 64 << 10
    whole = each.python(f"import sys; sys.stdout.write('x' * {limit})")
    assert (whole.status, len(whole.stdout), whole.stdout_cut) == (Status.OK, limit, False)
    over = each.python(f"import sys; sys.stdout.write('x' * {limit + 1})")
    assert (over.status, len(over.stdout), over.stdout_cut) == (Status.OK, limit, True)
    flood = each.python("import sys\nwhile True: print('y' * 1000, file=sys.stderr)")
    assert (flood.status, len(flood.stderr), flood.stderr_cut) == (Status.OUTPUT, limit, True)
    assert flood.stderr.startswith("yyy")


def test_output_of_any_bytes(each: Local) -> None:
    done = each.python(r"import sys; print('é🚀', '\udcff'); sys.stdout.flush(); sys.stdout.buffer.write(b'\xff\x00ok')")
    assert done.stdout == "é🚀 \\udcff\n\ufffd\x00ok"


def test_input(each: Local) -> None:
    assert each.python("print(input(), input())", stdin="ä\nb\n").stdout == "ä b\n"
    assert each.python("import sys; print(repr(sys.stdin.read()))").stdout == "''\n"
    assert each.python("import sys; print(len(sys.stdin.read()))", stdin="x" * 300_000).stdout == "300000\n"


def test_run_takes_arguments_or_a_shell_text(each: Local) -> None:
    async def work(sandbox: LocalSandbox) -> list[Exec]:
        return [
            await sandbox.run(["echo", "a b", ""]),
            await sandbox.run("echo $((1 + 2)); cat; exit 5", stdin="given"),
            await sandbox.run(["no-such-program"]),
            await sandbox.run(["python", "-c", "import sys; print(sys.version_info[:2])"]),
            await sandbox.run("sleep 20 & wait", timeout=0.3),
        ]

    echo, shell, missing, python, slow = in_sandbox(each, work)
    assert (echo.stdout, echo.status) == ("a b \n", Status.OK)
    assert (shell.stdout, shell.exit_code, shell.status) == ("3\ngiven", 5, Status.ERROR)
    assert missing.exit_code == 127
    assert "no-such-program" in missing.stderr
    assert python.stdout == f"{sys.version_info[:2]}\n"
    assert slow.status is Status.TIMEOUT


def test_run_refuses_what_are_no_arguments(best: Local) -> None:
    for argv in ([], ["a\0b"]):
        with pytest.raises(ValueError, match="no list of arguments"):
            in_sandbox(best, lambda sandbox, argv=argv: sandbox.run(argv))


def test_a_timeout_beyond_the_spec_is_not_granted(background: Any) -> None:
    async def main() -> Exec:
        async with await LocalPool.open(SandboxSpec(timeout=0.3), 1) as pool, await pool.acquire() as sandbox:
            return await sandbox.python("while True: pass", timeout=60)

    assert background.run(main()).status is Status.TIMEOUT


def test_environment(background: Any) -> None:
    async def main() -> str:
        spec = SandboxSpec(env={"GIVEN": "1"})
        async with await LocalPool.open(spec, 1) as pool, await pool.acquire() as sandbox:
            return (await sandbox.run("echo $GIVEN $HOME $USER; env | wc -l")).stdout

    first, count = background.run(main()).splitlines()
    assert first.split()[0] == "1"
    assert first.split()[2] == "sandbox"
    assert int(count) < 20


def test_64_at_once(background: Any) -> None:
    async def main() -> list[str]:
        async with await LocalPool.open(SandboxSpec(), 8) as pool:

            async def one(i: int) -> str:
                async with await pool.acquire() as sandbox:
                    return (await sandbox.python(f"print({i})")).stdout

            return await asyncio.gather(*(one(i) for i in range(64)))

    assert background.run(main()) == [f"{i}\n" for i in range(64)]
