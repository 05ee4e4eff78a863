"""`agentrl sandbox bench`: what one execution costs on a backend, beside `subprocess.run` in the same run.

CPU time is that of all processes that work for it: this one, its descendants, and a docker daemon with its containers where
the backend uses one. A busy machine makes it dearer for everyone, so each measurement is cut in rounds and every round runs
plain interpreters as well: the share of those is the figure to compare. Rates and waits say as much of the machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from agentrl.sandbox import Sandbox, SandboxError, SandboxPool, SandboxSpec

from .probes.target import Backend
from .zygote import watch

Once = Callable[[], Awaitable[None]]
PRINT, NUMPY = "print(1 + 1)", "import numpy; print(int(numpy.ones(2).sum()))"
CANDIDATE = "def f(x):\n    return x + 1"
WITH_NUMPY = "import numpy"
ROUNDS = 5
PLAIN = {PRINT: 6, NUMPY: 2}
"""Plain interpreters of a round."""
PROGRAMS = 20
CALLS = (10, 100)
PARALLEL = (1, 8, 64)
TICKS = os.sysconf("SC_CLK_TCK")
DAEMONS = ("dockerd", "containerd")
GROUPS = (
    "cpuacct/docker/cpuacct.usage",
    "cpu,cpuacct/docker/cpuacct.usage",
    "system.slice/docker.slice/cpu.stat",
    "docker/cpu.stat",
)
"""Where the CPU time of all containers stands, those that are gone included; below /sys/fs/cgroup."""


class Wrong(SandboxError):
    """An execution did not give what it must: what was measured would mean nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One measurement. Times in milliseconds, `cpu` of one execution, latencies of what is asked for at once.

    >>> Row(name="print(1 + 1)", parallel=8, cpu=2.8, of_plain=0.25, p50=13.0, p99=20.9, rate=601.0).parallel
    8
    """

    name: str
    parallel: int
    cpu: float
    of_plain: float
    """The share of the CPU time that a plain interpreter took at the same time. 0.1: ten times less."""
    p50: float
    p99: float
    rate: float
    """Executions per second."""


async def bench(
    backend: Backend, spec: SandboxSpec, *, parallel: Sequence[int] = PARALLEL, seconds: float = 2.0
) -> AsyncIterator[Row]:
    """Each row as it is measured, `seconds` or a little more each.

    Raises Wrong, SandboxError, and what opening the backend raises.
    """
    for name, code in (("subprocess.run: print(1 + 1)", PRINT), ("subprocess.run: import numpy", NUMPY)):
        for count in sorted({1, min(8, max(parallel))}):
            yield await measure(name, partial(_plain, code), count, seconds, cpu_seconds, beside=code)
    for count in parallel:
        pool = await backend.open(spec, count)
        try:
            clock = _with_daemon if getattr(pool, "uses_docker", backend.name == "docker") else cpu_seconds
            async for row in _executions(pool, count, seconds, clock):
                yield row
        finally:
            await pool.aclose()


async def _executions(pool: SandboxPool, count: int, seconds: float, clock: Callable[[], float]) -> AsyncIterator[Row]:
    held = [await pool.acquire() for _ in range(count)]
    try:
        free = list(held)
        yield await measure("print(1 + 1), sandbox kept", lambda: _kept(free), count, seconds, clock)
    finally:
        for sandbox in held:
            await sandbox.aclose()
    for name, once, unit in _asked(pool):
        try:
            beside = NUMPY if name == WITH_NUMPY else PRINT
            row = await measure(name, once, count, seconds, clock, unit=unit, beside=beside)
        except NotImplementedError:
            continue
        except Wrong:
            if name != WITH_NUMPY:  # there may be none inside
                raise
            continue
        yield row


def _asked(pool: SandboxPool) -> list[tuple[str, Once, int]]:
    """(what it is called, what is done, how many executions that is). A sandbox is taken and given back each time."""
    tests = [(f"call_many, {calls} tests of a function", partial(_called, pool, calls), calls) for calls in CALLS]
    return [
        ("print(1 + 1)", partial(_fresh, pool, PRINT), 1),
        (WITH_NUMPY, partial(_fresh, pool, NUMPY), 1),
        (f"run_many, {PROGRAMS} programs", partial(_many, pool), PROGRAMS),
        *tests,
    ]


async def _plain(code: str) -> None:
    await asyncio.to_thread(subprocess.run, [sys.executable, "-c", code], capture_output=True, check=True)


async def _fresh(pool: SandboxPool, code: str) -> None:
    sandbox = await pool.acquire()
    try:
        _right((await sandbox.python(code)).stdout)
    finally:
        await sandbox.aclose()


async def _kept(free: list[Sandbox]) -> None:
    sandbox = free.pop()
    try:
        _right((await sandbox.python(PRINT)).stdout)
    finally:
        free.append(sandbox)


async def _many(pool: SandboxPool) -> None:
    sandbox = await pool.acquire()
    try:
        for done in await sandbox.run_many([PRINT] * PROGRAMS):
            _right(done.stdout)
    finally:
        await sandbox.aclose()


async def _called(pool: SandboxPool, calls: int) -> None:
    sandbox = await pool.acquire()
    try:
        done = await sandbox.call_many(CANDIDATE, "f", [(i,) for i in range(calls)], timeout=30.0)
    finally:
        await sandbox.aclose()
    if [call.value for call in done] != list(range(1, calls + 1)):
        raise Wrong(f"a function that adds 1 gave {done[0]}")


def _right(stdout: str) -> None:
    if stdout.strip() != "2":
        raise Wrong(f"{stdout[:200]!r} was printed, not 2")


async def measure(
    name: str,
    once: Once,
    parallel: int,
    seconds: float,
    clock: Callable[[], float],
    *,
    unit: int = 1,
    beside: str = PRINT,
) -> Row:
    """`once`, which does `unit` executions, in `parallel` loops for so many seconds; plain interpreters run `beside`."""
    costs, shares, waits, walls = [], [], list[float](), 0.0
    await once()  # what is made at the first use is not measured
    for _ in range(ROUNDS):
        plain = await _plain_cpu(beside)
        cpu, wall = clock(), time.monotonic()
        done = await _burst(once, parallel, seconds / ROUNDS)
        walls += time.monotonic() - wall
        costs.append(1000 * (clock() - cpu) / (len(done) * unit))
        shares.append(costs[-1] / plain)
        waits += done
    waits.sort()
    return Row(
        name=name,
        parallel=parallel,
        cpu=statistics.median(costs),
        of_plain=statistics.median(shares),
        p50=1000 * statistics.median(waits),
        p99=1000 * waits[int(len(waits) * 0.99)],
        rate=len(waits) * unit / walls,
    )


async def _plain_cpu(code: str) -> float:
    """CPU milliseconds of a plain interpreter that runs this, now."""
    cpu = cpu_seconds()
    for _ in range(PLAIN[code]):
        await _plain(code)
    return 1000 * (cpu_seconds() - cpu) / PLAIN[code]


async def _burst(once: Once, parallel: int, seconds: float) -> list[float]:
    """Seconds that each took, all of them begun within `seconds`; one of each loop at least."""
    waits: list[float] = []
    end = time.monotonic() + seconds

    async def loop() -> None:
        begun = 0.0
        while begun < end:
            begun = time.monotonic()
            await once()
            waits.append(time.monotonic() - begun)

    async with asyncio.TaskGroup() as group:
        for _ in range(parallel):
            group.create_task(loop())
    return waits


def cpu_seconds() -> float:
    """Of this process and all below it, dead or alive."""
    below = sum(_used(pid) for pid in watch.descendants(os.getpid()))
    own, dead = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return below + own.ru_utime + own.ru_stime + dead.ru_utime + dead.ru_stime


def _used(pid: int) -> float:
    """CPU seconds of a process, and of its children that it has waited for; 0 when it is gone."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return sum(map(int, fields[11:15])) / TICKS
    return 0.0


def _with_daemon() -> float:
    """And of the docker daemon and all containers, also those that are gone."""
    own, daemons = watch.descendants(os.getpid()), 0.0
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        with contextlib.suppress(OSError):
            if pid not in own and Path(f"/proc/{pid}/comm").read_text().startswith(DAEMONS):
                daemons += _used(pid)
    return cpu_seconds() + daemons + _containers()


def _containers() -> float:
    for group in GROUPS:
        with contextlib.suppress(OSError):
            text = Path("/sys/fs/cgroup", group).read_text()
            return int(text.split()[1]) / 1e6 if group.endswith("cpu.stat") else int(text) / 1e9
    return 0.0
