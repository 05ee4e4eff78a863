"""Slots, and what happens when programs are cancelled and processes die: here of the code, of a slot, of the zygote, of us."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from typing import Any

import pytest

from agentrl.sandbox import Exec, SandboxError, SandboxLost, SandboxSpec, Status
from agentrl.tools.sandboxes.local import LocalPool, LocalSandbox

from .conftest import Local, pick
from .looking import ROOT, alive, in_sandbox, slot_of, slot_pids, traces


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


@pytest.mark.parametrize(("level", "use_cgroup"), [("namespace", True), ("landlock", False)])
def test_a_dead_slot_is_started_anew_and_its_user_told(
    background: Any, pools: dict[str, Any], level: str, use_cgroup: bool
) -> None:
    pick(pools, level)

    async def main() -> None:
        async with await LocalPool.open(SandboxSpec(), 1, level=level, use_cgroup=use_cgroup) as pool:
            sandbox = await pool.acquire()
            await sandbox.write("file", b"1")
            running = asyncio.ensure_future(sandbox.python("while True: pass"))
            await asyncio.sleep(0.2)
            os.kill(slot_of(pool), signal.SIGKILL)
            with pytest.raises(SandboxLost):
                await running
            assert not await sandbox.alive()
            for call in (sandbox.python("1"), sandbox.read("file"), sandbox.run("true")):
                with pytest.raises(SandboxLost):
                    await call
            await sandbox.aclose()
            async with await pool.acquire() as fresh:
                assert (await fresh.python("import os; print(os.listdir('.'))")).stdout == "[]\n"
            # and while nothing runs: who comes next need not know, even where the job was sent before anyone saw the death
            os.kill(slot_of(pool), signal.SIGKILL)
            async with await pool.acquire() as fresh:
                assert (await fresh.python("print(2)")).stdout == "2\n"

    background.run(main())


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
    assert alive(pids) == []
    assert traces() == before


OWNER = """
import asyncio, os, sys
from agentrl.sandbox import SandboxSpec
from agentrl.tools.sandboxes.local import LocalPool
from tests.tools.sandboxes.looking import slot_pids
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
    pick(pools, level)
    owner = subprocess.Popen([sys.executable, "-c", OWNER, level], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert owner.stdout is not None
    pids = {int(pid) for pid in owner.stdout.readline().split()}
    assert len(pids) > 6
    owner.kill()
    owner.wait()
    owner.stdout.close()
    assert alive(pids) == []
    assert traces(owner.pid) != []
    pool = background.run(LocalPool.open(SandboxSpec(), 1, level=level))
    assert traces(owner.pid) == []
    background.run(pool.aclose())


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
