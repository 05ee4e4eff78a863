"""The local sandbox's contract: statuses, files, order, what happens when things die."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from agentrl.errors import UsageError
from agentrl.sandbox import Call, Exec, IsolationError, Sandbox, SandboxError, SandboxLost, SandboxSpec, Status
from agentrl.tools.sandboxes import cgroup
from agentrl.tools.sandboxes.local import LocalPool, LocalSandbox

from .conftest import Local

ROOT = Path(__file__).parents[3]


def in_sandbox(local: Local, work: Any) -> Any:
    """Runs `await work(sandbox)` with a fresh one."""

    async def main() -> Any:
        async with await local.pool.acquire() as sandbox:
            return await work(sandbox)

    return local.run(main())


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


def test_files_last_until_the_sandbox_is_closed(each: Local) -> None:
    async def work(sandbox: LocalSandbox) -> None:
        await sandbox.write("data/in.bin", bytes(range(256)) * 1000)
        done = await sandbox.python("d = open('data/in.bin', 'rb').read(); open('out', 'wb').write(d[::-1]); print(len(d))")
        assert done.stdout == "256000\n"
        assert await sandbox.read("out") == (bytes(range(256)) * 1000)[::-1]
        await sandbox.write("out", b"short")
        assert await sandbox.read("out") == b"short"

    in_sandbox(each, work)
    assert each.python("import os; print(os.listdir('.'))").stdout == "[]\n"


@pytest.mark.parametrize("path", ["../evil", "/etc/passwd", "a/../../evil", "", ".", "link/passwd", "etc", "loop/x", "x\0y"])
def test_paths_do_not_leave_the_working_folder(each: Local, path: str) -> None:
    async def work(sandbox: LocalSandbox) -> None:
        await sandbox.run("ln -s /etc link; ln -s /etc/passwd etc; ln -s loop loop; mkfifo fifo; mkdir folder")
        with pytest.raises((ValueError, OSError)):
            await sandbox.read(path)
        with pytest.raises((ValueError, OSError)):
            await sandbox.write(path, b"x")

    in_sandbox(each, work)


def test_special_files_and_missing_ones(each: Local) -> None:
    async def work(sandbox: LocalSandbox) -> None:
        await sandbox.run("mkfifo fifo; mkdir folder; echo 1 > ok; ln -s ok inside")
        for name in ("fifo", "folder"):
            with pytest.raises(OSError, match=name):
                await sandbox.read(name)
            with pytest.raises(OSError, match=name):
                await sandbox.write(name, b"x")
        with pytest.raises(FileNotFoundError, match="nope"):
            await sandbox.read("nope")
        assert await sandbox.read("inside") == b"1\n"

    in_sandbox(each, work)


def test_a_file_beyond_the_disk_limit_is_refused(best: Local) -> None:
    async def work(sandbox: LocalSandbox) -> None:
        with pytest.raises(OSError, match="big"):
            await sandbox.write("big", bytes(80 << 20))

    in_sandbox(best, work)


def test_a_sandbox_survives_what_a_run_does_to_its_folder(each: Local) -> None:
    async def work(sandbox: LocalSandbox) -> None:
        await sandbox.run('cd ..; rm -rf "$HOME" 2>/dev/null; rmdir "$HOME" 2>/dev/null; true')
        assert (await sandbox.python("open('x', 'w').write('1'); print(open('x').read())")).stdout == "1\n"

    in_sandbox(each, work)


def test_nothing_of_a_run_is_left_for_the_next_user(each: Local) -> None:
    secret = "S3CR3T_" + "1234567890" * 3
    first = f"""
import builtins, os, json, sys, tempfile
for folder in (".", os.environ["TMPDIR"], "/tmp", "/dev/shm"):
    try: open(folder + "/left", "w").write("x")
    except OSError: pass
builtins.LEFT = os.environ["LEFT"] = "1"; json.dumps = None; SECRET = {secret!r}
os.umask(0o777); sys.path.append("/left")
"""
    second = """
import builtins, ctypes, json, os, re, sys
found = [f for f in (".", os.environ["TMPDIR"], "/tmp", "/dev/shm") if os.path.exists(f + "/left")]
found += [n for n, bad in dict(builtin=hasattr(builtins, "LEFT"), env="LEFT" in os.environ, module=json.dumps is None,
    path="/left" in sys.path, umask=os.umask(0o22) != 0o22, name="SECRET" in globals()).items() if bad]
pattern = re.compile(b"S3CR" + b"3T_[0-9]{30}")
try: maps = open("/proc/self/maps").read().splitlines()
except OSError: maps = []
for line in maps:
    area, rights = line.split()[:2]
    start, end = (int(x, 16) for x in area.split("-"))
    if rights.startswith("rw") and "[v" not in line and end - start < 64 << 20:
        if pattern.search(ctypes.string_at(start, end - start)): found.append("memory")
print(found)
"""
    for _ in range(3):  # more often than there are slots with a used child
        each.python(first)
    for _ in range(3):
        assert each.python(second).stdout == "[]\n"


def test_hostile_files_are_removed(each: Local) -> None:
    """Deep trees, unreadable folders, links out, odd names, and names that cleaning itself would use."""
    mess = r"""
import os
os.makedirs("closed/in/side"); open("closed/in/side/f", "w").close(); os.symlink("/usr", "closed/out"); os.symlink("x", "x")
open("odd\n\udcff name", "w").close(); os.makedirs("deep/.moved1/.moved2")
top = os.open("deep", os.O_RDONLY)
os.chdir("deep")
for i in range(1500):
    os.mkdir("d" * 100); os.chdir("d" * 100)
    if i % 100 == 0: open("file", "w").close()
os.fchdir(top); os.chdir("..")
os.chmod("closed/in/side", 0); os.chmod("closed/in", 0); os.chmod("closed", 0); os.mkdir("never", 0); os.chmod(".", 0o500)
print("made")
"""
    assert each.python(mess).stdout == "made\n"
    assert each.python("import os; print(os.listdir('.'), os.access('.', os.W_OK))").stdout == "[] True\n"
    assert Path("/usr/bin").is_dir()


def test_random_numbers_differ_between_runs(each: Local) -> None:
    code = "import random, os; print(random.random(), os.urandom(4).hex())"
    assert len({each.python(code).stdout for _ in range(6)}) == 6
    code = "import numpy; print(numpy.random.rand())"
    numbers = {each.python(code).stdout for _ in range(6)}
    assert len(numbers) == 6

    async def by_a_module_of_its_own(sandbox: LocalSandbox) -> set[str]:
        await sandbox.write("helper.py", b"import numpy\ndef draw(): print(numpy.random.rand())")
        return {(await sandbox.python("import helper; helper.draw()")).stdout for _ in range(4)}

    assert len(in_sandbox(each, by_a_module_of_its_own)) == 4


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


def test_slots_do_not_see_each_other(each: Local) -> None:
    async def work() -> tuple[str, str]:
        async with await each.pool.acquire() as one, await each.pool.acquire() as two:
            spin = asyncio.ensure_future(one.python("import time; open('mine', 'w').close(); time.sleep(2.5)"))
            await asyncio.sleep(0.5)
            look = """
import os
try: pids = [int(p) for p in os.listdir("/proc") if p.isdigit()]
except OSError: pids = []
others = set(pids) - {1, os.getpid()}
def can(pid):
    try: os.kill(pid, 0); return True
    except OSError: return False
print(sorted(others), [p for p in range(2, 40000) if p != os.getpid() and can(p)][:3], os.listdir("."))
"""
            return (await two.python(look)).stdout, (await spin).status.value

    seen, status = each.run(work())
    assert seen == "[] [] []\n"
    assert status == "ok"


def test_acquire_is_first_come_first_served(background: Any) -> None:
    async def main() -> list[int]:
        async with await LocalPool.open(SandboxSpec(), 1) as pool:
            order: list[int] = []
            held = await pool.acquire()

            async def worker(i: int) -> None:
                for _ in range(2):  # who comes back must queue again
                    async with await pool.acquire():
                        order.append(i)

            tasks = [asyncio.ensure_future(worker(i)) for i in range(5)]
            await asyncio.sleep(0.05)
            tasks[3].cancel()
            await held.aclose()
            await asyncio.gather(*tasks, return_exceptions=True)
            return order

    assert background.run(main()) == [0, 1, 2, 4, 0, 1, 2, 4]


def test_a_cancelled_call_ends_its_program_and_leaves_the_sandbox_usable(each: Local) -> None:
    async def work(sandbox: LocalSandbox) -> None:
        task = asyncio.ensure_future(sandbox.python("import time; open('began', 'w').close()\nwhile True: time.sleep(1)"))
        await asyncio.sleep(0.3)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        begun = time.monotonic()
        done = await sandbox.python("import os; print(os.listdir('.'))")
        assert done.stdout == "['began']\n"
        assert time.monotonic() - begun < 30  # far below the cancelled program's 60 s

    in_sandbox(each, work)


def test_closing_a_busy_sandbox_ends_its_program(best: Local) -> None:
    async def main() -> None:
        sandbox = await best.pool.acquire()
        task = asyncio.ensure_future(sandbox.python("while True: pass"))
        await asyncio.sleep(0.2)
        begun = time.monotonic()
        await sandbox.aclose()
        await sandbox.aclose()  # idempotent
        assert time.monotonic() - begun < 30
        assert (await task).status is Status.KILLED
        assert not await sandbox.alive()
        with pytest.raises(SandboxError, match="closed"):
            await sandbox.python("1")

    best.run(main())


def test_a_late_kill_never_hits_the_next_run(best: Local) -> None:
    """A deadline that falls on the end of a program must not end the one after it."""

    async def work(sandbox: LocalSandbox) -> tuple[int, int]:
        timeouts = hits = 0
        for i in range(150):
            seconds = 0.004 + i % 10 * 0.001
            timeouts += (await sandbox.python("import time; time.sleep(0.005)", timeout=seconds)).status is Status.TIMEOUT
            task = asyncio.ensure_future(sandbox.python("import time; time.sleep(0.005)"))
            await asyncio.sleep(seconds)
            task.cancel()  # a kill from the host, about when the program ends
            await asyncio.gather(task, return_exceptions=True)
            hits += not (await sandbox.python("print(1)")).ok
        return timeouts, hits

    timeouts, hits = in_sandbox(best, work)
    assert hits == 0
    assert timeouts > 0  # the race was there


def test_calls_on_one_sandbox_are_done_in_turn(best: Local) -> None:
    async def work(sandbox: LocalSandbox) -> list[str]:
        done = await asyncio.gather(
            *(sandbox.python(f"open('log', 'a').write('{i}'); print(open('log').read())") for i in range(5))
        )
        return [each.stdout for each in done]

    assert in_sandbox(best, work) == ["0\n", "01\n", "012\n", "0123\n", "01234\n"]


def slot_pids(pool: LocalPool) -> dict[int, int]:
    """All processes of a pool and their parents, from the host's view."""
    popen = pool._zygote._popen  # type: ignore[union-attr]
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_bytes().rpartition(b")")[2].split()
        except OSError:
            continue
        if fields[0] != b"Z":
            parents[int(path.parent.name)] = int(fields[1])
    found = {popen.pid: 0}
    while more := {pid: parent for pid, parent in parents.items() if parent in found and pid not in found}:
        found.update(more)
    return found


@pytest.mark.parametrize(("level", "use_cgroup"), [("namespace", True), ("landlock", False)])
def test_a_dead_slot_is_started_anew_and_its_user_told(background: Any, level: str, use_cgroup: bool) -> None:
    async def main() -> None:
        async with await _open(level, use_cgroup, slots=1) as pool:
            sandbox = await pool.acquire()
            await sandbox.write("file", b"1")
            running = asyncio.ensure_future(sandbox.python("while True: pass"))
            await asyncio.sleep(0.2)
            os.kill(_slot_of(pool), signal.SIGKILL)
            with pytest.raises(SandboxLost):
                await running
            assert not await sandbox.alive()
            for call in (sandbox.python("1"), sandbox.read("file"), sandbox.run("true")):
                with pytest.raises(SandboxLost):
                    await call
            await sandbox.aclose()
            async with await pool.acquire() as fresh:
                assert (await fresh.python("import os; print(os.listdir('.'))")).stdout == "[]\n"
            # and while nothing runs
            os.kill(_slot_of(pool), signal.SIGKILL)
            await asyncio.sleep(0.5)
            async with await pool.acquire() as fresh:
                assert (await fresh.python("print(2)")).stdout == "2\n"

    background.run(main())


def _slot_of(pool: LocalPool) -> int:
    """The slot is the only process that has both a parent and a child, below the zygote's own two."""
    pids = slot_pids(pool)
    parents = set(pids.values())
    depth = {pid: _depth(pid, pids) for pid in pids}
    return max((pid for pid in pids if pid in parents), key=lambda pid: depth[pid])


def _depth(pid: int, parents: dict[int, int]) -> int:
    return 0 if parents.get(pid, 0) == 0 else 1 + _depth(parents[pid], parents)


async def _open(level: str, use_cgroup: bool, slots: int) -> LocalPool:
    try:
        return await LocalPool.open(SandboxSpec(), slots, level=level, use_cgroup=use_cgroup)
    except IsolationError as error:
        pytest.skip(str(error))


def test_a_dead_zygote_is_replaced(background: Any) -> None:
    async def main() -> None:
        async with await LocalPool.open(SandboxSpec(), 1) as pool:
            sandbox = await pool.acquire()
            running = asyncio.ensure_future(sandbox.python("while True: pass"))
            waiting = asyncio.ensure_future(pool.acquire())
            await asyncio.sleep(0.2)
            pool._zygote._popen.kill()  # type: ignore[union-attr]
            with pytest.raises(SandboxLost):
                await running
            await sandbox.aclose()
            async with await waiting as fresh:
                assert (await fresh.python("print(3)")).stdout == "3\n"

    background.run(main())


def test_opening_and_closing_leaves_nothing(background: Any) -> None:
    async def main() -> set[int]:
        pool = await LocalPool.open(SandboxSpec(), 2)
        pids = set(slot_pids(pool))
        sandbox = await pool.acquire()
        running = asyncio.ensure_future(sandbox.python("import os\nos.fork()\nwhile True: pass"))
        await asyncio.sleep(0.3)
        pids |= set(slot_pids(pool))
        await pool.aclose()
        await pool.aclose()
        with pytest.raises(SandboxLost):
            await running
        with pytest.raises(SandboxError, match="closed"):
            await pool.acquire()
        return pids

    before = traces()
    pids = background.run(main())
    assert len(pids) >= 6
    assert _alive(pids) == []
    assert traces() == before


def traces() -> list[str]:
    """What pools make on the host."""
    groups = [path for version in ("memory", "pids", "unified") for path in Path("/sys/fs/cgroup", version).rglob("agentrl-*")]
    return sorted(map(str, [*groups, *Path("/dev/shm").glob("agentrl-*")]))


def _alive(pids: set[int], seconds: float = 5.0) -> list[int]:
    end = time.monotonic() + seconds
    while True:
        left = [pid for pid in pids if Path(f"/proc/{pid}").exists() and b") Z" not in Path(f"/proc/{pid}/stat").read_bytes()]
        if not left or time.monotonic() > end:
            return left
        time.sleep(0.05)


OWNER = """
import asyncio, os, sys
from agentrl.sandbox import SandboxSpec
from agentrl.tools.sandboxes.local import LocalPool
from tests.tools.sandboxes.test_local import slot_pids
async def main():
    pool = await LocalPool.open(SandboxSpec(timeout=100, cpu=100), 2, level=sys.argv[1])
    boxes = [await pool.acquire() for _ in range(2)]
    code = "import os, signal\\nfor n in (1, 2, 15): signal.signal(n, signal.SIG_IGN)\\n"
    code += "os.fork()\\nif os.fork() == 0: os.setsid()\\nwhile True: pass"
    tasks = [asyncio.ensure_future(box.python(code)) for box in boxes]
    await asyncio.sleep(.7)
    if os.fork() == 0:  # a child of the trainer that keeps all its descriptors and outlives it
        import time; time.sleep(20); os._exit(0)
    print(*slot_pids(pool), flush=True)
    await asyncio.gather(*tasks)
asyncio.run(main())
"""


@pytest.mark.parametrize("level", ["namespace", "landlock"])
def test_when_the_owner_is_killed_everything_dies_and_the_next_one_cleans_up(
    background: Any, level: str, pools: dict[str, Any]
) -> None:
    if isinstance(pools[level], str):
        pytest.skip(pools[level])
    before = traces()
    owner = subprocess.Popen([sys.executable, "-c", OWNER, level], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert owner.stdout is not None
    pids = {int(pid) for pid in owner.stdout.readline().split()}
    assert len(pids) > 6
    owner.kill()
    owner.wait()
    owner.stdout.close()
    assert _alive(pids) == []
    pool = background.run(LocalPool.open(SandboxSpec(), 1, level=level))
    background.run(pool.aclose())
    assert traces() == before


def test_deadlines_are_kept_while_the_event_loop_is_busy(background: Any) -> None:
    async def main() -> Exec:
        async with await LocalPool.open(SandboxSpec(), 1) as pool, await pool.acquire() as sandbox:
            running = asyncio.ensure_future(sandbox.python("while True: pass", timeout=0.3))
            await asyncio.sleep(0.05)
            time.sleep(5)  # noqa: ASYNC251  # a training step that holds the loop
            return await running

    done = background.run(main())
    assert done.status is Status.TIMEOUT
    assert done.wall_s < 4


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


@pytest.mark.parametrize(
    ("spec", "slots", "error", "match"),
    [
        (SandboxSpec(isolation="namspace"), 1, UsageError, "did you mean 'namespace'"),
        (SandboxSpec(timeout=0), 1, UsageError, "above 0"),
        (SandboxSpec(pids=0), 1, UsageError, "pids must be at least 1"),
        (SandboxSpec(memory="x"), 1, ValueError, "is no size"),
        (SandboxSpec(), 0, UsageError, "slots must be at least 1"),
    ],
)
def test_mistakes_are_named(spec: SandboxSpec, slots: int, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        asyncio.run(LocalPool.open(spec, slots))


def test_without_linux_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(IsolationError, match=r"needs Linux .* this is darwin; .*unsafe_local"):
        asyncio.run(LocalPool.open(SandboxSpec(), 1))


def test_less_than_asked_for_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: Any, **__: Any) -> None:
        raise cgroup.NoCgroup("not today")

    monkeypatch.setattr(cgroup, "make", none)
    with pytest.raises(IsolationError, match=r"'namespace\+cgroup'(.|\n)*not today(.|\n)*unsafe_local"):
        asyncio.run(LocalPool.open(SandboxSpec(isolation="namespace+cgroup"), 1))


def test_a_level_that_does_not_work_falls_to_the_next_or_is_refused(monkeypatch: pytest.MonkeyPatch, pools: Any) -> None:
    if isinstance(pools["landlock"], str):
        pytest.skip(pools["landlock"])

    async def main(isolation: str) -> str:
        async with await LocalPool.open(SandboxSpec(isolation=isolation), 1) as pool:
            return pool.isolation

    monkeypatch.setattr("agentrl.tools.sandboxes.process.Settings", _broken_namespace)
    assert asyncio.run(main("auto")) == "landlock"
    with pytest.raises(IsolationError, match=r"namespace: .*mount"):
        asyncio.run(main("namespace"))


def _broken_namespace(**fields: Any) -> Any:
    """Settings whose namespace level cannot work: the kernel refuses such a file system."""
    from agentrl.tools.sandboxes.zygote.settings import Settings

    if fields["level"] == "namespace":
        fields["disk"] = -1
    return Settings(**fields)


def test_64_at_once(background: Any) -> None:
    async def main() -> list[str]:
        async with await LocalPool.open(SandboxSpec(), 8) as pool:

            async def one(i: int) -> str:
                async with await pool.acquire() as sandbox:
                    return (await sandbox.python(f"print({i})")).stdout

            return await asyncio.gather(*(one(i) for i in range(64)))

    assert background.run(main()) == [f"{i}\n" for i in range(64)]
