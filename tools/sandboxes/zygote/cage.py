"""What one execution may do: the last steps from a fresh fork of the slot to a process without any rights."""

from __future__ import annotations

import os
import resource
import signal
from dataclasses import dataclass

from . import landlock, linux, seccomp

OPEN_FILES = 256
ADDRESS_SPACE_FACTOR = 4
"""With a cgroup, the address space is bounded only against absurd requests, so that these raise MemoryError at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cage:
    """Sizes in bytes, times in seconds."""

    home: str
    """The working folder."""
    temporary: str
    uid: int | None
    """To change to; None keeps the slot's."""
    memory: int
    pids: int
    disk: int
    cpu: float
    counted: bool
    """A cgroup holds the memory limit."""
    in_namespace: bool
    base_address_space: int
    """Of the slot itself: what a fork of it starts with."""
    filter: bytes | None
    """seccomp program that the child itself loads; None where the slot has."""
    ruleset: int | None
    """Landlock ruleset, a file descriptor."""
    processes_before: int = 0
    """Of the same uid outside the sandbox, where RLIMIT_NPROC counts them along."""

    def close(self) -> None:
        """Shuts this process in. Whatever it needs of the outside must be open already."""
        os.setsid()
        linux.prctl(linux.PR_SET_DUMPABLE, 1)  # until the end of this function: else our own /proc files are not ours
        _write_oom_score()
        self._limit()
        if self.uid is not None:
            os.setgroups([])
            os.setresgid(self.uid, self.uid, self.uid)
            os.setresuid(self.uid, self.uid, self.uid)
        linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
        linux.prctl(linux.PR_SET_DUMPABLE, 0)
        linux.drop_capabilities()
        if self.ruleset is not None:
            landlock.restrict(self.ruleset)
        if self.filter is not None:
            seccomp.install(self.filter)

    def _limit(self) -> None:
        space = self.base_address_space + self.memory * (ADDRESS_SPACE_FACTOR if self.counted else 1)
        cpu = max(1, round(self.cpu + 0.5))
        limits = {
            resource.RLIMIT_AS: (space, space),
            resource.RLIMIT_CPU: (cpu, cpu + 1),
            resource.RLIMIT_FSIZE: (self.disk, self.disk),
            resource.RLIMIT_CORE: (0, 0),
            resource.RLIMIT_NPROC: (self.processes_before + self.pids,) * 2,
            resource.RLIMIT_NOFILE: (OPEN_FILES, OPEN_FILES),
            resource.RLIMIT_MEMLOCK: (0, 0),
            resource.RLIMIT_MSGQUEUE: (0, 0),
        }
        for limit, (soft, hard) in limits.items():
            _, ceiling = resource.getrlimit(limit)
            if ceiling != resource.RLIM_INFINITY:  # without CAP_SYS_RESOURCE it cannot be raised
                soft, hard = min(soft, ceiling), min(hard, ceiling)
            resource.setrlimit(limit, (soft, hard))


def _write_oom_score() -> None:
    """When memory runs out, this process goes before the slot and before anything on the host."""
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")
    except FileNotFoundError:
        return  # no /proc of our own: the kernel's own choice will do
