"""What one execution costs in the local sandbox, beside subprocess.run, as a table.

    python benchmarks/sandbox.py [--seconds 3] [--level namespace] [--no-cgroup]

CPU time is that of all processes involved (this one, the zygote, all children), from their rusage and /proc, so it can be
trusted on a busy machine; rates cannot.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from agentrl.sandbox import SandboxSpec
from agentrl.tools import graders
from agentrl.tools.sandboxes.local import LocalPool

PRINT, NUMPY = "print(1 + 1)", "import numpy; print(numpy.ones(3).sum())"
CANDIDATE = "def f(x):\n    return x + 1"
TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds() -> float:
    """Of this process and all below it, dead or alive."""
    parents, used = {}, {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                fields = Path("/proc", name, "stat").read_bytes().rpartition(b")")[2].split()
            except OSError:
                continue
            parents[int(name)], used[int(name)] = int(fields[1]), sum(map(int, fields[11:15]))
    below, changed = {os.getpid()}, True
    while changed:
        new = {pid for pid, parent in parents.items() if parent in below} - below
        below |= new
        changed = bool(new)
    living = sum(used[pid] for pid in below - {os.getpid()}) / TICKS
    own = resource.getrusage(resource.RUSAGE_SELF)
    dead = resource.getrusage(resource.RUSAGE_CHILDREN)
    return living + own.ru_utime + own.ru_stime + dead.ru_utime + dead.ru_stime


async def measure(name: str, once: Callable[[], Awaitable[None]], concurrency: int, seconds: float, unit: int = 1) -> None:
    """`once` does `unit` executions."""
    waits: list[float] = []
    end = time.monotonic() + seconds

    async def worker() -> None:
        begun = 0.0
        while begun < end:  # once at least
            begun = time.monotonic()
            await once()
            waits.append(time.monotonic() - begun)

    await once()
    cpu, wall = cpu_seconds(), time.monotonic()
    await asyncio.gather(*(worker() for _ in range(concurrency)))
    wall, cpu = time.monotonic() - wall, cpu_seconds() - cpu
    done = len(waits) * unit
    waits.sort()
    worst = waits[int(len(waits) * 0.99)]
    print(
        f"{name:44} {concurrency:4} {1000 * cpu / done:9.2f} {done / wall:9.0f} "
        f"{1000 * statistics.median(waits):9.1f} {1000 * worst:9.1f}"
    )


async def main(arguments: argparse.Namespace) -> None:
    print(f"{'':44} {'at':>4} {'CPU ms':>9} {'per s':>9} {'p50 ms':>9} {'p99 ms':>9}")
    for code, label in ((PRINT, "print"), (NUMPY, "import numpy")):
        for concurrency in (1, 8):

            async def plain(code: str = code) -> None:
                await asyncio.to_thread(subprocess.run, [sys.executable, "-c", code], capture_output=True, check=True)

            await measure(f"subprocess.run, {label}", plain, concurrency, arguments.seconds)
    for slots in (1, 8, 64):
        options = {"level": arguments.level, "use_cgroup": not arguments.no_cgroup}
        begun = time.monotonic()
        async with await LocalPool.open(SandboxSpec(), slots, **options) as pool:
            print(f"{pool.isolation}: {slots} slots opened in {time.monotonic() - begun:.2f} s")
            await executions(pool, slots, arguments.seconds)


async def executions(pool: LocalPool, slots: int, seconds: float) -> None:
    for code, label in ((PRINT, "print"), (NUMPY, "import numpy")):

        async def fresh(code: str = code) -> None:
            async with await pool.acquire() as sandbox:
                assert (await sandbox.python(code)).ok

        await measure(f"acquire, python, release: {label}", fresh, slots, seconds)

    async def many() -> None:
        async with await pool.acquire() as sandbox:
            await sandbox.run_many([PRINT] * 20)

    async def graded() -> None:
        async with await pool.acquire() as sandbox:
            result = await graders.function_cases(
                sandbox, "def f(x):\n    return x + 1", "f", [((i,), i + 1) for i in range(10)]
            )
            assert result.all_passed

    await measure("run_many, 20 programs", many, slots, seconds, unit=20)
    await measure("function_cases, 10 tests of one candidate", graded, slots, seconds, unit=10)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each measurement")
    parser.add_argument("--level", choices=["namespace", "landlock"], default=None)
    parser.add_argument("--no-cgroup", action="store_true")
    asyncio.run(main(parser.parse_args()))
