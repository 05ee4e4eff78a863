"""What one execution may do: the last steps from a fresh fork of the slot to a process without any rights.

The slot takes the limits that it can bear itself, once; only the rest is left to each child. Page faults are what a fork
costs, so little Python and no ctypes runs in the usual child.
"""

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

    def prepare(self) -> None:
        """In the slot: limits that it passes on and that do not hurt it."""
        space = self.base_address_space + self.memory * (ADDRESS_SPACE_FACTOR if self.counted else 1)
        _limit(resource.RLIMIT_AS, space)
        _limit(resource.RLIMIT_FSIZE, self.disk)
        _limit(resource.RLIMIT_NOFILE, OPEN_FILES)
        for none in (resource.RLIMIT_CORE, resource.RLIMIT_MEMLOCK, resource.RLIMIT_MSGQUEUE):
            _limit(none, 0)

    def close(self) -> None:
        """In the child: shuts it in. Whatever it needs of the outside must be open already."""
        os.setsid()
        if self.uid is None or not self.in_namespace:
            linux.prctl(linux.PR_SET_DUMPABLE, 1)  # until the end of this function: else our own /proc files are not ours
        _write_oom_score()
        _limit(resource.RLIMIT_NPROC, self.processes_before + self.pids)
        _limit(resource.RLIMIT_CPU, max(1, round(self.cpu + 0.5)), 1)
        if self.uid is not None:
            if not self.in_namespace:  # there, the master has done it for all
                os.setgroups([])
            os.setresgid(self.uid, self.uid, self.uid)
            os.setresuid(self.uid, self.uid, self.uid)  # from 0 to another: takes all capabilities, and ptrace of us
        if self.uid is None or not self.in_namespace:
            self._drop_the_rest()

    def _drop_the_rest(self) -> None:
        """What a change of uid in a pid namespace of the slot does by itself."""
        linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
        linux.prctl(linux.PR_SET_DUMPABLE, 0)
        linux.drop_capabilities()
        if self.ruleset is not None:
            landlock.restrict(self.ruleset)
        if self.filter is not None:
            seccomp.install(self.filter)

    def is_closed(self) -> bool:
        """Whether this process has no capability, cannot gain any, is filtered and hidden from its like."""
        return (
            not linux.has_capabilities()
            and linux.libc.prctl(linux.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1
            and linux.libc.prctl(linux.PR_GET_SECCOMP, 0, 0, 0, 0) == 2
            and linux.libc.prctl(linux.PR_GET_DUMPABLE, 0, 0, 0, 0) == 0
        )


def _limit(which: int, soft: int, more: int = 0) -> None:
    """Sets a limit; without CAP_SYS_RESOURCE one that is lower already stays."""
    ceiling = resource.getrlimit(which)[1]
    hard = soft + more if ceiling == resource.RLIM_INFINITY else min(soft + more, ceiling)
    resource.setrlimit(which, (min(soft, hard), hard))


def _write_oom_score() -> None:
    """When memory runs out, this process goes before the slot and before anything on the host."""
    file = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
    os.write(file, b"1000")
    os.close(file)
