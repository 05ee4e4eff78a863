"""Control groups for the slots: memory and number of processes of each, by the kernel. Version 1 or 2, made by hand.

One folder per pool, `agentrl-<pid>-<start>-<serial>`, with one group per slot. What a killed run left behind is removed
by the next one that starts.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

PREFIX = "agentrl"
OVERHEAD = 8 << 20  # bytes that the slot itself may come to own: a limit is meant for the code
_serial = itertools.count()


class NoCgroup(OSError):
    """No group can be made here; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """One slot's. Paths of the host."""

    procs: tuple[str, ...]
    """Files to write a pid to, one per controller."""
    oom: str
    """The file that counts kills for want of memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    version: str
    """v1 | v2"""
    folders: tuple[Path, ...]
    slots: tuple[Group, ...]

    def remove(self, patience: float = 2.0) -> None:
        """Waits up to `patience` seconds for the last processes to be gone. Raises OSError when they are not."""
        for folder in self.folders:
            _remove(folder, patience)


def make(slots: int, memory: int, pids: int, *, proc: str = "/proc/self") -> Groups:
    """Groups for all slots; `memory` in bytes. Raises NoCgroup."""
    mounts = list(_mounts(Path(proc)))
    problems = []
    for version, build in (("v2", _make_v2), ("v1", _make_v1)):
        try:
            return build(mounts, slots, memory, pids)
        except NoCgroup as error:
            problems.append(f"{version}: {error}")
        except OSError as error:
            problems.append(f"{version}: {error.strerror} ({error.filename})")
    raise NoCgroup("; ".join(problems))


def process_tag(pid: int | None = None) -> str:
    """A process's name that no later one shares: pid and start time. Raises OSError when there is none."""
    pid = os.getpid() if pid is None else pid
    return f"{pid}-{Path(f'/proc/{pid}/stat').read_bytes().rpartition(b')')[2].split()[19].decode()}"


def is_left_over(name: str) -> bool:
    """Whether a name made of PREFIX and a process's tag is that of a process that is gone."""
    parts = name.split("-")
    if len(parts) < 3 or parts[0] != PREFIX or not parts[1].isdigit():
        return False
    try:
        return process_tag(int(parts[1])) != f"{parts[1]}-{parts[2]}"
    except OSError:
        return True


@dataclass(frozen=True, slots=True)
class _Mount:
    kind: str  # cgroup | cgroup2
    controllers: frozenset[str]
    own: Path  # the folder of this process's own group
    top: Path  # where it is mounted


def _mounts(proc: Path) -> Iterator[_Mount]:
    groups = {}
    for line in _lines(proc / "cgroup"):
        _, names, path = line.split(":", 2)
        groups.update(dict.fromkeys(names.split(","), path))
    for line in _lines(proc / "mountinfo"):
        left, _, right = line.partition(" - ")
        fields, (kind, _, options) = left.split(), right.split()[:3]
        if kind not in ("cgroup", "cgroup2"):
            continue
        controllers = frozenset(options.split(",")) & groups.keys() if kind == "cgroup" else frozenset([""])
        for path in {groups[name] for name in controllers if name in groups}:
            within = os.path.relpath(path, fields[3])
            if not within.startswith(".."):
                yield _Mount(kind, controllers, Path(fields[4], within), Path(fields[4]))


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError as error:
        raise NoCgroup(f"{path} cannot be read: {error.strerror}") from None


def _make_v1(mounts: Sequence[_Mount], slots: int, memory: int, pids: int) -> Groups:
    found = {
        name: mount for mount in mounts if mount.kind == "cgroup" for name in ("memory", "pids") if name in mount.controllers
    }
    if len(found) < 2:
        raise NoCgroup("no memory and pids controllers are mounted")
    folders = {name: _create(mount.own) for name, mount in found.items()}
    made = []
    for index in range(slots):
        groups = {name: folder / str(index) for name, folder in folders.items()}
        for group in dict.fromkeys(groups.values()):
            group.mkdir()
        limit = str(memory + OVERHEAD)
        (groups["memory"] / "memory.limit_in_bytes").write_text(limit)
        with contextlib.suppress(FileNotFoundError, PermissionError):  # only where the kernel counts swap
            (groups["memory"] / "memory.memsw.limit_in_bytes").write_text(limit)
        (groups["pids"] / "pids.max").write_text(str(pids + 1))  # the slot is one
        procs = tuple(str(group / "cgroup.procs") for group in dict.fromkeys(groups.values()))
        made.append(Group(procs=procs, oom=str(groups["memory"] / "memory.oom_control")))
    return Groups(version="v1", folders=tuple(folders.values()), slots=tuple(made))


def _make_v2(mounts: Sequence[_Mount], slots: int, memory: int, pids: int) -> Groups:
    """Below the nearest group that hands both controllers down: our own cannot, for it holds processes."""
    for mount in (mount for mount in mounts if mount.kind == "cgroup2"):
        for parent in (mount.own, *mount.own.parents):
            handed = (parent / "cgroup.subtree_control").read_text().split()
            if {"memory", "pids"} <= set(handed) and os.access(parent, os.W_OK):
                return _fill_v2(_create(parent), slots, memory, pids)
            if parent == mount.top:
                break
        raise NoCgroup(f"no group above {mount.own} hands memory and pids down and lets us make one")
    raise NoCgroup("it is not mounted")


def _fill_v2(folder: Path, slots: int, memory: int, pids: int) -> Groups:
    (folder / "cgroup.subtree_control").write_text("+memory +pids")
    made = []
    for index in range(slots):
        group = folder / str(index)
        group.mkdir()
        (group / "memory.max").write_text(str(memory + OVERHEAD))
        with contextlib.suppress(FileNotFoundError):
            (group / "memory.swap.max").write_text("0")
        (group / "pids.max").write_text(str(pids + 1))
        made.append(Group(procs=(str(group / "cgroup.procs"),), oom=str(group / "memory.events")))
    return Groups(version="v2", folders=(folder,), slots=tuple(made))


def _create(parent: Path) -> Path:
    for name in os.listdir(parent):
        if is_left_over(name):
            with contextlib.suppress(OSError):  # someone else removes it, too, or its last process is still ending
                _remove(parent / name, 0.0)
    folder = parent / f"{PREFIX}-{process_tag()}-{next(_serial)}"
    folder.mkdir()
    return folder


def _remove(folder: Path, patience: float) -> None:
    """The groups in it, then itself."""
    if not folder.exists():
        return
    end = time.monotonic() + patience
    for path in (*(Path(entry.path) for entry in os.scandir(folder) if entry.is_dir()), folder):
        while True:
            try:
                path.rmdir()
                break
            except OSError:
                if time.monotonic() >= end:
                    raise
                time.sleep(0.01)
