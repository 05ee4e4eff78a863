"""What the processes of a running job use, read from /proc. For what no cgroup counts, and for CPU time of all of them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass

TICKS = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    processes: int = 0
    memory: int = 0
    """Bytes beyond what each process shares with the slot it was forked from. Approximate."""
    cpu: float = 0.0
    """Seconds, of the living and of the dead they waited for."""


def own_size() -> tuple[int, int]:
    """(address space, resident) bytes of this process; a guess without /proc."""
    try:
        with open("/proc/self/statm") as file:
            size, resident = file.read().split()[:2]
    except FileNotFoundError:
        return 512 << 20, 0
    return int(size) * PAGE_BYTES, int(resident) * PAGE_BYTES


def usage(pids: list[int], base_size: int, base_resident: int) -> Usage:
    """Sums over `pids`; those that ended meanwhile count nothing.

    A fork shares the slot's pages until it writes them, so they are taken off; a program that was executed is told by its
    smaller address space and counts whole.
    """
    memory, cpu = 0, 0.0
    for pid in pids:
        with contextlib.suppress(OSError, ValueError, IndexError):
            with open(f"/proc/{pid}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
            cpu += sum(map(int, fields[11:15])) / TICKS
            size, resident = int(fields[20]), int(fields[21]) * PAGE_BYTES
            memory += resident if size < base_size * 0.9 else max(0, resident - base_resident)
    return Usage(processes=len(pids), memory=memory, cpu=cpu)


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
