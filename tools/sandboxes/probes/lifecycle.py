"""Lifecycle: what is closed, cancelled, lost or killed leaves nothing, and no one waits for ever."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from agentrl.sandbox import Exec, IsolationError, SandboxError, SandboxPool, Status

from . import marks
from .probe import Broken, Group, NotApplicable, require
from .target import Target, ending

probe = Group("lifecycle")
ENDLESS = "print('begun', flush=True)\nwhile True: time.sleep(.01)"
FORKING = "for _ in range(2): os.fork()\nwhile True: time.sleep(.01)"


def _busy(target: Target) -> str:
    return target.program(FORKING if "fork" in target.features else ENDLESS)


async def _until_marked(target: Target, run: asyncio.Future[Any]) -> None:
    """Until the run is under way, where that can be seen."""
    if target.sees_processes:
        await marks.until(lambda: bool(marks.marked(target.bait.mark)) or run.done(), 20.0)
    else:
        await asyncio.sleep(0.5)


@probe("closing a busy sandbox")
async def close_busy(target: Target) -> None:
    before = len(marks.below(os.getpid()))
    sandbox = await target.pool.acquire()
    run = asyncio.ensure_future(sandbox.python(_busy(target), timeout=60.0))
    await _until_marked(target, run)
    await asyncio.wait_for(sandbox.aclose(), 30)
    try:
        await asyncio.wait_for(run, 30)
    except SandboxError:
        pass
    except TimeoutError:
        raise Broken("the run goes on, or whoever waits for it waits for ever") from None
    await _no_more_than(target, before)


@probe("a run that is cancelled")
async def cancel_run(target: Target) -> None:
    before = len(marks.below(os.getpid()))
    async with target.sandbox() as sandbox:
        run = asyncio.ensure_future(sandbox.python(_busy(target), timeout=60.0))
        await _until_marked(target, run)
        run.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await run
        with contextlib.suppress(SandboxError):  # it may be lost with its run; if not, it works
            after = await asyncio.wait_for(sandbox.python("print(1 + 1)", timeout=20.0), 40)
            require(after.stdout.strip() == "2", ending(after))
    await _no_more_than(target, before)


async def _no_more_than(target: Target, count: int) -> None:
    """Processes below this one, marked or not."""
    await target.is_gone()
    fewer = await marks.until(lambda: len(marks.below(os.getpid())) <= count)
    require(fewer, f"{len(marks.below(os.getpid())) - count} processes go on")


@probe("a wait that is cancelled")
async def cancel_wait(target: Target) -> None:
    """Twenty who give up waiting take no sandbox with them."""
    held = [await target.pool.acquire() for _ in range(target.slots)]
    waiting = [asyncio.ensure_future(target.pool.acquire()) for _ in range(20)]
    await asyncio.sleep(0.05)
    for each in waiting[::2]:
        each.cancel()
    for sandbox in held:
        await sandbox.aclose()
    for each in waiting[1::2]:
        each.cancel()
    for given in await asyncio.gather(*waiting, return_exceptions=True):
        if not isinstance(given, BaseException):
            await given.aclose()
    again = [await asyncio.wait_for(target.pool.acquire(), 60) for _ in range(target.slots)]
    for sandbox in again:
        await sandbox.aclose()


@probe("first come, first served")
async def order(target: Target) -> None:
    served: list[int] = []

    async def wait(number: int) -> None:
        async with target.sandbox(pool):
            served.append(number)

    async with target.another() as pool:
        held = await pool.acquire()
        tasks = []
        for number in range(6):
            tasks.append(asyncio.ensure_future(wait(number)))
            await asyncio.sleep(0.01)
        await held.aclose()
        await asyncio.wait_for(asyncio.gather(*tasks), 120)
    require(served == sorted(served), f"they were served in the order {served}")


@probe("no more at once than slots")
async def bounded(target: Target) -> None:
    held = [await target.pool.acquire() for _ in range(target.slots)]
    extra = asyncio.ensure_future(target.pool.acquire())
    done, _ = await asyncio.wait([extra], timeout=0.3)
    extra.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await (await extra).aclose()
    for sandbox in held:
        await sandbox.aclose()
    require(not done, f"{target.slots + 1} sandboxes at once, of {target.slots} slots")


@probe("sixty in a row, each with its own answer")
async def many(target: Target) -> str:
    mine = f"{target.bait.mark}-mine"

    async def one(number: int) -> bool:
        async with target.sandbox() as sandbox:
            done = await sandbox.python(f"open('{mine}', 'x').close(); print({number} * 2, input())", stdin=f"{number}")
        return done.stdout.split() == [str(number * 2), str(number)]

    begun = time.monotonic()
    right = await asyncio.gather(*(one(number) for number in range(60)))
    require(all(right), f"{right.count(False)} of 60 got another's answer, or none")
    return f"{60 / (time.monotonic() - begun):.0f} a second"


@probe("use after closing")
async def after_closing(target: Target) -> None:
    sandbox = await target.pool.acquire()
    await sandbox.aclose()
    await asyncio.wait_for(sandbox.aclose(), 10)
    require(not await sandbox.alive(), "a closed sandbox says that it is alive")
    with contextlib.suppress(SandboxError):
        await asyncio.wait_for(sandbox.python("print(1)"), 10)
        raise Broken("a closed sandbox still runs code")
    async with target.another() as pool:
        await pool.aclose()
        await asyncio.wait_for(pool.aclose(), 10)
        with contextlib.suppress(SandboxError):
            await asyncio.wait_for(pool.acquire(), 10)
            raise Broken("a closed pool still gives sandboxes")


@probe("isolation that cannot be had")
async def fail_closed(target: Target) -> str:
    """A backend gives the level that is asked for, or none; never less in silence."""
    try:
        async with target.another(isolation="namespace+cgroup") as pool:
            require(pool.isolation == "namespace+cgroup", f"namespace+cgroup was asked for, {pool.isolation} was given")
            return "given"
    except IsolationError:
        return "refused"


@probe("its supervisor is killed", seen=True)
async def killed(target: Target) -> str:
    """The backend's own process dies under a run: that is no result of the code, and no one waits for it for ever."""
    before = marks.children(os.getpid())
    async with target.another() as pool:
        workers = marks.children(os.getpid()) - before
        if not workers:
            raise NotApplicable("the backend keeps no processes of its own below this one")
        run = asyncio.ensure_future(_one_run(target, pool))
        await _until_marked(target, run)
        for pid in workers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        try:
            done = await asyncio.wait_for(run, 60)
        except SandboxError as error:
            told = str(error)
        except TimeoutError:
            raise Broken("whoever waits for the run waits for ever") from None
        else:  # it may have gone on without its supervisor, up to its deadline
            require(done.status is Status.TIMEOUT, f"it was taken for a result: {ending(done)}")
            told = "the run went on to its deadline"
        await target.is_gone()
        with contextlib.suppress(SandboxError):
            async with target.sandbox(pool) as sandbox:
                after = await sandbox.python("print(1 + 1)")
            require(after.stdout.strip() == "2", ending(after))
    return told[:80]


async def _one_run(target: Target, pool: SandboxPool) -> Exec:
    async with target.sandbox(pool) as sandbox:
        return await sandbox.python(_busy(target), timeout=6.0)


OWNER = """
import asyncio, json, sys
from agentrl.sandbox import SandboxSpec
from agentrl.tools.sandboxes.probes.target import Backend
async def main():
    asked = json.load(sys.stdin)
    pool = await Backend(name=asked["backend"], options=asked["options"]).open(SandboxSpec(**asked["spec"]), 1)
    sandbox = await pool.acquire()
    print("ready", flush=True)
    await sandbox.python(asked["code"], timeout=100.0)
asyncio.run(main())
"""


@contextlib.contextmanager
def owner(target: Target) -> Iterator[subprocess.Popen[str]]:
    """Another process with a busy sandbox of the same backend."""
    asked = {"backend": target.backend.name, "options": dict(target.backend.options), "spec": asdict(target.spec)}
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    with subprocess.Popen(
        [sys.executable, "-c", OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdin is not None
        process.stdin.write(json.dumps({**asked, "code": _busy(target)}))
        process.stdin.close()
        try:
            yield process
        finally:
            process.kill()


@probe("its owner is killed", seen=True)
async def owner_killed(target: Target) -> str:
    """Not ended: killed, with no chance to clean up. Then the next one opens a pool, and removes what was left."""
    traces = _others_traces()
    with owner(target) as process:
        assert process.stdout is not None
        line = await asyncio.wait_for(asyncio.to_thread(process.stdout.readline), 120)
        require(line == "ready\n", "the other process could not open the backend")
        require(await marks.until(lambda: bool(marks.marked(target.bait.mark)), 20.0), "its run did not begin")
        begun = time.monotonic()
        process.kill()
        await asyncio.to_thread(process.wait)
    gone = await marks.until(lambda: not marks.marked(target.bait.mark), 15.0)
    seconds = time.monotonic() - begun
    await target.is_gone()
    require(gone, "its processes were still there after 15 s")
    async with target.another():
        pass
    new = _others_traces() - traces
    require(not new, f"left on this machine: {', '.join(sorted(new)[:3])}")
    return f"all was gone after {seconds:.1f} s"


def _others_traces() -> set[str]:
    return {trace for trace in marks.traces(os.getpid()) if not trace.startswith("process")}


@probe("nothing is left")
async def nothing_left(target: Target) -> str:
    """Processes, mounts, control groups, temporary folders, descriptors: as before the pool was opened."""
    async with target.another():
        pass  # what is made once and kept, as an imported library's, is no leak
    before, open_before = marks.traces(os.getpid()), _descriptors()
    async with target.another(slots=3) as pool:
        for turn in range(6):
            async with target.sandbox(pool) as sandbox:
                await sandbox.python(target.program(f"open(MARK, 'w').close(); tell({turn})"))
                with contextlib.suppress(NotImplementedError):
                    await sandbox.write("a", b"b")
    clean = await marks.until(lambda: marks.traces(os.getpid()) <= before)
    left = marks.traces(os.getpid()) - before
    require(clean, f"left on this machine: {', '.join(sorted(left)[:4])}")
    require(_descriptors() <= open_before, f"{_descriptors() - open_before} descriptors were left open")
    return "after three slots and six runs"


def _descriptors() -> int:
    gc.collect()  # a file that nobody holds any more is closed by now
    with contextlib.suppress(OSError):
        return len(os.listdir("/proc/self/fd"))
    return 0
