"""What tests of the local sandbox look at: a fresh sandbox, the processes of a pool, and what pools make on the host."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from agentrl.tools.sandboxes.local import LocalPool

from .conftest import Local

ROOT = Path(__file__).parents[3]


def in_sandbox(local: Local, work: Any) -> Any:
    """Runs `await work(sandbox)` with a fresh one."""

    async def main() -> Any:
        async with await local.pool.acquire() as sandbox:
            return await work(sandbox)

    return local.run(main())


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


def slot_of(pool: LocalPool) -> int:
    """The slot of a pool that has one: the child of the master, which with namespaces has a stub above it."""
    pids = slot_pids(pool)
    wanted = 2 if pool.isolation.startswith("namespace") else 1
    return next(pid for pid in pids if _depth(pid, pids) == wanted)


def _depth(pid: int, parents: dict[int, int]) -> int:
    return 0 if parents.get(pid, 0) == 0 else 1 + _depth(parents[pid], parents)


def traces(pid: int | None = None) -> list[str]:
    """What the pools of a process (this one) have made on the host."""
    name = f"agentrl-{os.getpid() if pid is None else pid}-*"
    groups = [path for version in ("memory", "pids", "unified") for path in Path("/sys/fs/cgroup", version).rglob(name)]
    return sorted(map(str, [*groups, *Path("/dev/shm").glob(name)]))


def alive(pids: set[int], seconds: float = 5.0) -> list[int]:
    end = time.monotonic() + seconds
    while True:
        left = [pid for pid in pids if Path(f"/proc/{pid}").exists() and b") Z" not in Path(f"/proc/{pid}/stat").read_bytes()]
        if not left or time.monotonic() > end:
            return left
        time.sleep(0.05)


async def eventually(true: Callable[[], bool], seconds: float = 20.0) -> None:
    """Waits until something is so. Raises TimeoutError."""
    async with asyncio.timeout(seconds):
        while not true():  # noqa: ASYNC110  # nothing here would set an event
            await asyncio.sleep(0.01)
