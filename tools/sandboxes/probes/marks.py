"""The host's eyes: processes that carry a probe's mark, and what else a backend has made on this machine.

A probe's program names itself by its mark (see target.py), and whatever it forks inherits the name. So the host itself
sees what is left of a run, whatever the run says.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from agentrl.tools.sandboxes import cgroup
from agentrl.tools.sandboxes.zygote import folder, watch

T = TypeVar("T")
POLL = 0.02  # seconds between looks
PATIENCE = 5.0  # seconds that a process may take to be gone: a loaded machine is slow to bury
PLACES = ("/tmp", "/var/tmp", "/dev/shm", "/", "/usr", "/usr/bin", "/etc", "/var", "/home", "/dev")


def marked(mark: str) -> list[int]:
    """Living processes of this machine that carry the mark."""
    found = []
    for name in _processes():
        with contextlib.suppress(OSError):
            if Path("/proc", name, "comm").read_text().strip() == mark and not _is_zombie(name):
                found.append(int(name))
    return found


def uids(pid: int) -> set[int]:
    """Real, effective, saved and file-system uid of a process, as this machine sees them. Raises OSError when it is gone."""
    status = Path(f"/proc/{pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("Uid:"))
    return {int(word) for word in line.split()[1:]}


def below(root: int) -> set[int]:
    """All descendants of a process, zombies left out."""
    return set(watch.descendants(root))


def parents() -> dict[int, int]:
    """Each living process of this machine and its parent."""
    return watch.parents()


def above(pid: int) -> set[int]:
    """A process, its parent, its parent's parent, up to the first."""
    found, known = {pid}, watch.parents()
    while known.get(pid):
        pid = known[pid]
        found.add(pid)
    return found


def children(parent: int) -> set[int]:
    return {pid for pid, above in watch.parents().items() if above == parent}


def zombies_below(root: int) -> set[int]:
    parents = {}
    for name in _processes():
        with contextlib.suppress(OSError, ValueError, IndexError):
            parents[int(name)] = int(Path("/proc", name, "stat").read_bytes().rpartition(b")")[2].split()[1])
    return {pid for pid in watch.descendants(root, lambda: parents) if _is_zombie(str(pid))}


def _processes() -> list[str]:
    """None where there is no /proc, as on macOS."""
    with contextlib.suppress(OSError):
        return [name for name in os.listdir("/proc") if name.isdigit()]
    return []


def _is_zombie(pid: str) -> bool:
    with contextlib.suppress(OSError):
        return Path("/proc", pid, "stat").read_bytes().rpartition(b")")[2].split()[0] in (b"Z", b"X")
    return True


async def until(holds: Callable[[], bool], patience: float = PATIENCE) -> bool:
    """Whether it came to hold within `patience` seconds."""
    end = time.monotonic() + patience
    while not holds():
        if time.monotonic() >= end:
            return False
        await asyncio.sleep(POLL)
    return True


async def most_marked(mark: str, work: Awaitable[T]) -> tuple[T, int]:
    """(what `work` gives, the most marked processes that were seen at once while it ran)."""
    task, most = asyncio.ensure_future(work), 0
    try:
        while not task.done():
            most = max(most, len(marked(mark)))
            await asyncio.wait([task], timeout=POLL)
        return task.result(), most
    finally:
        task.cancel()


async def largest(size: Callable[[], int], work: Awaitable[T]) -> tuple[T, int]:
    """(what `work` gives, the most by which `size` grew meanwhile)."""
    task, before, most = asyncio.ensure_future(work), size(), 0
    try:
        while not task.done():
            await asyncio.wait([task], timeout=POLL)
            most = max(most, size() - before)
        return task.result(), most
    finally:
        task.cancel()


def memory() -> int:
    """Bytes of this process that are in memory; 0 where there is no /proc."""
    with contextlib.suppress(OSError):
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


def kill_marked(mark: str) -> int:
    """Ends what a backend has left running, so that a check harms no one. How many there were."""
    killed = 0
    while pids := marked(mark):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        killed += len(pids)
        time.sleep(POLL)
        if killed > 100_000:
            break
    return killed


def remove_marked(mark: str) -> int:
    """Removes files of the mark's name from where probes may have put them. How many there were."""
    found = []
    for place in {*PLACES, os.path.expanduser("~"), os.getcwd(), tempfile.gettempdir()}:
        for pattern in (f"{mark}*", f"*/{mark}*") if place == tempfile.gettempdir() else (f"{mark}*",):
            with contextlib.suppress(OSError):
                found += [str(path) for path in Path(place).glob(pattern)]
    for path in found:
        with contextlib.suppress(OSError):
            folder.remove(path)
    return len(found)


def traces(owner: int) -> set[str]:
    """What a process with sandboxes may leave on this machine: its children, mounts, control groups, temporary folders."""
    found = {f"process {pid}" for pid in below(owner)}
    with contextlib.suppress(OSError):
        mounts = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines()]
        found |= {f"mount {fields[0]} at {fields[4]}" for fields in mounts if _may_be_ours(fields[4])}
    for place in ("/dev/shm", tempfile.gettempdir(), "/var/tmp"):
        found |= {str(path) for path in Path(place).glob("agentrl-*") if not _of_another(path.name)}
    for group in ("memory", "pids", "unified", "."):
        with contextlib.suppress(OSError):
            paths = Path("/sys/fs/cgroup", group).rglob("agentrl-*")
            found |= {str(path) for path in paths if not _of_another(path.name)}
    return found


def _may_be_ours(point: str) -> bool:
    """A mount where sandboxes make theirs; a container's or a disk's elsewhere is someone else's."""
    return "agentrl" in point or point in {*PLACES, "/proc", "/sys", "/run", "/mnt", tempfile.gettempdir(), os.getcwd()}


def _of_another(name: str) -> bool:
    """Whether a name has another process's tag (see cgroup.py), and that process lives: it is no concern of ours."""
    parts = name.split("-")
    return len(parts) > 2 and parts[1].isdigit() and int(parts[1]) != os.getpid() and not cgroup.is_left_over(name)


def system_v_keys() -> set[int]:
    """Keys of the shared memory, semaphores and queues of this machine."""
    found = set()
    for kind in ("shm", "sem", "msg"):
        with contextlib.suppress(OSError):
            found |= {int(line.split()[0]) for line in Path("/proc/sysvipc", kind).read_text().splitlines()[1:]}
    return found


def containers() -> list[str]:
    """Sandboxes in containers that are left, whoever made them."""
    command = ["docker", "ps", "--all", "--quiet", "--filter", "label=agentrl.sandbox"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return [f"container {name}" for name in done.stdout.split()]
