"""What the processes of a running job use, read from /proc. For what no cgroup counts, and for CPU time of all of them."""

from __future__ import annotations

import contextlib
import errno
import math
import os
from collections.abc import Callable
from dataclasses import dataclass

DEEPEST = 100  # folders within folders; programs have no need of more
ENTRY = 4096  # bytes that each entry of a folder counts at least


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    processes: int = 0
    memory: int = 0
    """Bytes beyond what each process shares with the slot it was forked from. Approximate."""
    cpu: float = 0.0
    """Seconds, of the living and of the dead they waited for."""


def own_size() -> tuple[int, int]:
    """(address space, memory that a fork shares) of this process, in bytes."""
    return _sizes("self")


def usage(pids: list[int], base_space: int, base_memory: int, *, with_memory: bool = True) -> Usage:
    """Sums over `pids`; those that ended meanwhile count nothing. Memory costs most to read, and may be left out.

    A fork shares the slot's pages until it writes them, so they are taken off; a program that was executed is told by its
    smaller address space and counts whole. Memory shared among the processes counts for each.
    """
    memory, cpu = 0, 0.0
    for pid in pids:
        with contextlib.suppress(OSError, ValueError, IndexError):
            with open(f"/proc/{pid}/stat", "rb") as file:
                cpu += sum(map(int, file.read().rpartition(b")")[2].split()[11:15])) / os.sysconf("SC_CLK_TCK")
            if with_memory:
                space, own = _sizes(str(pid))
                memory += own if space < base_space * 0.9 else max(0, own - base_memory)
    return Usage(processes=len(pids), memory=memory, cpu=cpu)


def _sizes(pid: str) -> tuple[int, int]:
    """(address space, memory that no file backs) in bytes; of a dead process, 0."""
    found = {b"VmSize": 0, b"RssAnon": 0, b"RssShmem": 0}
    with open(f"/proc/{pid}/status", "rb") as lines:
        for line in lines:
            name, _, rest = line.partition(b":")
            if name in found:
                found[name] = int(rest.split()[0]) << 10
    return found[b"VmSize"], found[b"RssAnon"] + found[b"RssShmem"]


def others_in_namespace() -> list[int]:
    """All processes of this pid namespace but its first, which is the slot."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and name != "1"]


def parents() -> dict[int, int]:
    """Each visible living process and its parent."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{name}/stat", "rb") as file:
                state, parent = file.read().rpartition(b")")[2].split()[:2]
                if state not in b"ZX":
                    found[int(name)] = int(parent)
    return found


def descendants(root: int, parents_of: Callable[[], dict[int, int]] = parents) -> list[int]:
    """All below `root`, which must be a subreaper so that none gets away.

    >>> descendants(1, lambda: {2: 1, 3: 2, 9: 8})
    [2, 3]
    """
    children: dict[int, list[int]] = {}
    for pid, parent in parents_of().items():
        children.setdefault(parent, []).append(pid)
    found = list(children.get(root, ()))
    for pid in found:
        found += children.get(pid, ())
    return found


def children_of(pid: int) -> list[int]:
    """All that its threads have started and not yet buried. Raises OSError where it is gone, or the kernel does not tell."""
    found: list[int] = []
    for thread in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{thread}/children") as file:
            found += map(int, file.read().split())
    return found


def living_below(root: int) -> list[int]:
    """As `descendants`, at a cost that does not grow with the machine; one that changes its parent meanwhile may be missed."""
    try:
        found = children_of(root)
    except OSError:
        return descendants(root)
    for pid in found:
        with contextlib.suppress(OSError):
            found += children_of(pid)
    return found


def threads_of_uid(uid: int) -> int:
    """How many RLIMIT_NPROC would count."""
    total = 0
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                if os.stat(f"/proc/{name}").st_uid == uid:
                    total += len(os.listdir(f"/proc/{name}/task"))
    return total


def disk_bytes(folder: str, enough: float = math.inf) -> float:
    """Blocks in use below a folder. Beyond `enough` it stops counting; each entry counts at least 4 KiB, an empty file as well.

    What cannot be looked at, for it lies too deep or is closed to its owner, counts as infinite: nothing may hide there. Links
    are not followed, and every folder is opened below the last: a program that swaps them meanwhile leads this nowhere.
    """
    return _disk_bytes(folder, None, enough, DEEPEST)


def _disk_bytes(name: str, above: int | None, enough: float, depth: int) -> float:
    if depth == 0:
        return math.inf
    try:
        at = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=above)
    except OSError as error:
        return math.inf if error.errno == errno.EACCES else 0  # else it is gone, or no folder any more
    try:
        total, folders = _entries(at, enough)
        for folder in folders:
            if total > enough:
                break
            total += _disk_bytes(folder, at, enough - total, depth - 1)
        return total
    finally:
        os.close(at)


def _entries(at: int, enough: float) -> tuple[float, list[str]]:
    """(bytes of the entries of an open folder, names of the folders among them)."""
    total, folders = 0.0, []
    with os.scandir(at) as entries:
        for entry in entries:
            total += ENTRY
            if total > enough:
                break
            with contextlib.suppress(OSError):  # it is gone
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.name)
                else:
                    total += max(0, entry.stat(follow_symlinks=False).st_blocks * 512 - ENTRY)
    return total, folders
