"""What the processes of a running job use, read from /proc. For what no cgroup counts, and for CPU time of all of them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass

TICKS = os.sysconf("SC_CLK_TCK")


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
                cpu += sum(map(int, file.read().rpartition(b")")[2].split()[11:15])) / TICKS
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


def threads_of_uid(uid: int) -> int:
    """How many RLIMIT_NPROC would count."""
    total = 0
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                if os.stat(f"/proc/{name}").st_uid == uid:
                    total += len(os.listdir(f"/proc/{name}/task"))
    return total


def disk_bytes(folder: str) -> int:
    """Blocks in use below a folder, links not followed. Each entry counts at least 4 KiB, so that empty files do."""
    total, stack = 0, [folder]
    while stack:
        with contextlib.suppress(OSError), os.scandir(stack.pop()) as entries:
            for entry in entries:
                total += 4096
                with contextlib.suppress(OSError):  # a path that is too long, in a tree made to be so
                    if entry.is_dir(follow_symlinks=False):
                        stack.append(entry.path)
                    else:
                        total += max(0, entry.stat(follow_symlinks=False).st_blocks * 512 - 4096)
    return total
