"""`agentrl sandbox bench --soak N`: thousands of runs, hostile ones, cancelled ones and a killed supervisor among them.

What is looked for is what shows only after long: a wrong result, a result of another's, growing memory, and left-overs.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from agentrl.sandbox import SandboxError, SandboxSpec

from . import bench
from .probes import files, marks, output, processes, resources
from .probes.bait import Bait
from .probes.target import Backend, Target

SPEC = SandboxSpec(memory="128M", pids=32, disk="32M", output="64K", timeout=20.0, cpu=20.0)
PROGRAMS = (
    processes.FORKS, processes.FORKS_OF_FORKS, processes.THREADS, processes.DAEMON, processes.HOLDER, processes.DEAF,
    processes.SIGNALS, resources.ONE, resources.MANY, resources.OUTSIDE, resources.DISK, resources.INODES, resources.DEEP,
    files.RESISTANT, files.LEAVE, output.FORGED,
    "while True: print('x' * 1000)", "9 ** 9 ** 8", "os.kill(os.getpid(), signal.SIGKILL)", "os.abort()",
)  # fmt: skip
"""Programs of the probes, each with its worst in it, taken in turn."""
HARMLESS, HOSTILE, CANCELLED = "harmless", "hostile", "cancelled"
HOSTILE_TIMEOUT = 1.0  # seconds
GROWTH = 1.2
"""The memory at the end may be that much of what it was after the first tenth of the runs, and no more."""
SAMPLES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Soak:
    """What came of it. Memory in bytes, of this process and the pool's, after each part of the runs [SAMPLES]."""

    runs: int
    wrong: tuple[str, ...]
    """Harmless runs that did not give their own result."""
    hostile: dict[str, int]
    """How the hostile ones ended -> how many."""
    lost: int
    """Runs that were under way when the supervisor was killed, and said so."""
    supervisor: str
    """What was killed."""
    seconds: float
    cpu: float
    """Seconds of a run, of all processes; the part in which the supervisor was killed left out."""
    memory: tuple[int, ...]
    left: tuple[str, ...]

    @property
    def growth(self) -> float:
        """Memory at the end against that after a tenth of the runs. 1.0: flat."""
        early = self.memory[max(1, len(self.memory) // 10)]
        return self.memory[-1] / early

    @property
    def ok(self) -> bool:
        return not self.wrong and not self.left and self.growth <= GROWTH


async def soak(
    backend: Backend,
    runs: int,
    *,
    hostile: int = 200,
    cancelled: int = 20,
    slots: int = 8,
    spec: SandboxSpec = SPEC,
    seed: int = 0,
    progress: Callable[[int], None] = lambda done: None,
) -> Soak:
    """`runs` in all, in random order, as many at once as there are slots. Raises what opening the backend raises."""
    work = _plan(runs, hostile, cancelled, seed)
    before = marks.traces(os.getpid())
    with Bait() as bait:
        children = marks.children(os.getpid())
        pool = await backend.open(spec, slots)
        target = Target(backend=backend, spec=spec, pool=pool, bait=bait)
        run = _Run(target, work, slots, tops=marks.children(os.getpid()) - children, progress=progress)
        try:
            await run.all()
        finally:
            await pool.aclose()
        living = marks.marked(bait.mark)
    left = [*await _left(before), *(f"process {pid}" for pid in living)]
    left += await asyncio.to_thread(marks.containers) if backend.name == "docker" else []
    return run.result(tuple(left))


def _plan(runs: int, hostile: int, cancelled: int, seed: int) -> list[str]:
    work = [HOSTILE] * hostile + [CANCELLED] * cancelled
    work += [HARMLESS] * max(0, runs - len(work))
    random.Random(seed).shuffle(work)
    return work[:runs]


async def _left(before: set[str]) -> list[str]:
    await marks.until(lambda: marks.traces(os.getpid()) <= before, 10.0)
    return sorted(marks.traces(os.getpid()) - before)


def memory() -> int:
    """Bytes of this process and all below it that no file backs; what forks share counts for each."""
    total = 0
    for pid in [os.getpid(), *marks.below(os.getpid())]:
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{pid}/status").read_text().splitlines():
                if line.startswith(("RssAnon:", "RssShmem:")):
                    total += int(line.split()[1]) << 10
    return total


class _Run:
    """The runs under way, and what came of those that are done."""

    def __init__(self, target: Target, work: list[str], slots: int, *, tops: set[int], progress: Callable[[int], None]) -> None:
        self._target, self._work, self._slots, self._total = target, work, slots, len(work)
        self._tops, self._progress = tops, progress
        self._ways = {HARMLESS: self._harmless, HOSTILE: self._hostile, CANCELLED: self._cancelled}
        self._part: list[str] = []
        self._endings: Counter[str] = Counter()
        self._wrong: list[str] = []
        self._memory: list[int] = []
        self._numbers, self._attacks = itertools.count(), itertools.cycle(PROGRAMS)
        self._done = self._lost = 0
        self._killed = ""
        self._costs: list[float] = []
        self._kill_at = 0
        self._clock = time.monotonic()

    async def all(self) -> None:
        """In parts, so that memory is measured while nothing runs."""
        size = -(-self._total // SAMPLES)
        self._kill_at = self._total // 2 // size * size + size // 2  # in the middle of a part
        while self._work:
            self._part, self._work = self._work[:size], self._work[size:]
            begun, count, killed = bench.cpu_seconds(), len(self._part), self._killed
            async with asyncio.TaskGroup() as group:
                for _ in range(self._slots):
                    group.create_task(self._loop())
            if killed == self._killed:  # else the CPU time of what was killed is lost with it
                self._costs.append((bench.cpu_seconds() - begun) / count)
            self._memory.append(memory())

    async def _loop(self) -> None:
        while self._part:
            kind = self._part.pop()
            try:
                await self._ways[kind]()
            except SandboxError as error:
                self._lost += 1
                if not self._killed or self._lost > self._slots:  # only those that were under way have an excuse
                    self._wrong.append(f"{kind}: {type(error).__name__}: {error}")
            self._done += 1
            self._progress(self._done)
            if self._done == self._kill_at:
                self._kill_supervisor()

    async def _harmless(self) -> None:
        number = next(self._numbers)
        async with self._target.sandbox() as sandbox:
            done = await sandbox.python(
                f"open('{self._target.bait.mark}', 'x').close(); print({number} * 2, input())", stdin=f"{number}"
            )
        if done.stdout.split() != [str(number * 2), str(number)]:
            self._wrong.append(f"{done.status}, exit code {done.exit_code}: {(done.stdout + done.stderr)[-200:]!r}")

    async def _hostile(self) -> None:
        _, done = await self._target.attack(next(self._attacks), timeout=HOSTILE_TIMEOUT)
        self._endings[str(done.status)] += 1

    async def _cancelled(self) -> None:
        """At any moment between asking for the sandbox and the middle of its run."""
        run = asyncio.ensure_future(self._target.attack(processes.DEAF, timeout=20.0))
        await asyncio.wait([run], timeout=random.uniform(0.0, 0.3))
        run.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await run

    def _kill_supervisor(self) -> None:
        """The backend's own process; those whose run is under way are to be told that their sandbox is lost."""
        for pid in sorted(self._tops)[:1]:
            os.kill(pid, signal.SIGKILL)
            self._killed = f"process {pid}, after {self._done} runs"

    def result(self, left: tuple[str, ...]) -> Soak:
        return Soak(
            runs=self._done, wrong=tuple(self._wrong), hostile=dict(self._endings), lost=self._lost,
            supervisor=self._killed or "nothing: the backend has no process of its own below this one",
            seconds=time.monotonic() - self._clock, cpu=sum(self._costs) / max(1, len(self._costs)),
            memory=tuple(self._memory), left=left,
        )  # fmt: skip
