"""What one execution costs in the local sandbox, as a table, and beside subprocess.run in the same moments.

    python benchmarks/sandbox.py [--seconds 6] [--level namespace] [--no-cgroup]

CPU time is that of all processes involved (this one, the zygote, all children), from their rusage and /proc. A busy machine
makes it dearer for everyone, so each measurement is cut in rounds and every round runs plain interpreters as well: "of plain"
is the median of the rounds' ratios, and the figure to compare. Rates and waits say as much of the machine as of the sandbox.
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
TICKS = os.sysconf("SC_CLK_TCK")
ROUNDS = 6
PLAIN = {PRINT: 8, NUMPY: 2}  # plain interpreters per round

Once = Callable[[], Awaitable[None]]


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


def plain(code: str) -> float:
    """CPU milliseconds of a fresh interpreter that runs this, now."""
    begun = cpu_seconds()
    for _ in range(PLAIN[code]):
        subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    return 1000 * (cpu_seconds() - begun) / PLAIN[code]


async def burst(once: Once, concurrency: int, seconds: float) -> list[float]:
    """Seconds that each took, all of them started within `seconds`."""
    waits: list[float] = []
    end = time.monotonic() + seconds

    async def worker() -> None:
        begun = 0.0
        while begun < end:  # once at least
            begun = time.monotonic()
            await once()
            waits.append(time.monotonic() - begun)

    await asyncio.gather(*(worker() for _ in range(concurrency)))
    return waits


async def measure(name: str, once: Once, concurrency: int, seconds: float, *, beside: str = PRINT, unit: int = 1) -> None:
    """`once` does `unit` executions; `beside` is what the plain interpreters run."""
    costs, shares, waits, walls = [], [], [], 0.0
    await once()
    for _ in range(ROUNDS):
        reference = plain(beside)
        cpu, wall = cpu_seconds(), time.monotonic()
        done = await burst(once, concurrency, seconds / ROUNDS)
        walls += time.monotonic() - wall
        costs.append(1000 * (cpu_seconds() - cpu) / (len(done) * unit))
        shares.append(costs[-1] / reference)
        waits += done
    waits.sort()
    middle, worst = statistics.median(waits), waits[int(len(waits) * 0.99)]
    print(
        f"{name:44} {concurrency:4} {statistics.median(costs):9.2f} {statistics.median(shares):9.3f} "
        f"{len(waits) * unit / walls:9.0f} {1000 * middle:9.1f} {1000 * worst:9.1f} {worst / middle:9.2f}"
    )


async def main(arguments: argparse.Namespace) -> None:
    load = "{:.1f} {:.1f} {:.1f}".format(*os.getloadavg())
    print(f"plain interpreters: print {plain(PRINT):.1f} ms of CPU, import numpy {plain(NUMPY):.1f} ms; load {load}")
    print(f"{'':44} {'at':>4} {'CPU ms':>9} {'of plain':>9} {'per s':>9} {'p50 ms':>9} {'p99 ms':>9} {'p99/p50':>9}")
    for slots in arguments.slots:
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

        await measure(f"acquire, python, release: {label}", fresh, slots, seconds, beside=code)

    async def many() -> None:
        async with await pool.acquire() as sandbox:
            await sandbox.run_many([PRINT] * 20)

    def graded(count: int) -> Once:
        cases = [((i,), i + 1) for i in range(count)]

        async def once() -> None:
            async with await pool.acquire() as sandbox:
                result = await graders.function_cases(sandbox, "def f(x):\n    return x + 1", "f", cases)
                assert result.all_passed

        return once

    await measure("run_many, 20 programs", many, slots, seconds, unit=20)
    for count in (10, 50):
        await measure(f"function_cases, {count} tests of one candidate", graded(count), slots, seconds, unit=count)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=6.0, help="of each measurement")
    parser.add_argument("--slots", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--level", choices=["namespace", "landlock"], default=None)
    parser.add_argument("--no-cgroup", action="store_true")
    asyncio.run(main(parser.parse_args()))
