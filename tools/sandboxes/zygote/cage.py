"""What one execution may do: the last steps from a fresh fork of the slot to a process without any rights.

The slot takes the limits that it can bear itself, once; only the rest is left to each child. Page faults are what a fork
costs, so the child only goes through a list that the slot has made, and the usual one has no ctypes in it.
"""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from . import landlock, linux, seccomp

OPEN_FILES = 256
ADDRESS_SPACE_FACTOR = 4
"""With a cgroup, the address space is bounded only against absurd requests, so that these raise MemoryError at once."""

Step = tuple[Callable[..., object], tuple[Any, ...]]


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
        for which, value in (
            (resource.RLIMIT_AS, space),
            (resource.RLIMIT_FSIZE, self.disk),
            (resource.RLIMIT_NOFILE, OPEN_FILES),
        ):
            resource.setrlimit(which, _limits(which, value))
        for none in (resource.RLIMIT_CORE, resource.RLIMIT_MEMLOCK, resource.RLIMIT_MSGQUEUE):
            resource.setrlimit(none, (0, 0))

    def steps(self) -> tuple[Step, ...]:
        """What a child does, in this order, to be shut in. Whatever it needs of the outside must be open already."""
        seconds = max(1, round(self.cpu + 0.5))
        same_rights = self.uid is None or not self.in_namespace
        return (
            (os.setsid, ()),
            # Until the last step: else our own files in /proc are not ours
            *([(linux.prctl, (linux.PR_SET_DUMPABLE, 1))] if same_rights else []),
            (_write_oom_score, ()),
            (resource.setrlimit, (resource.RLIMIT_NPROC, _limits(resource.RLIMIT_NPROC, self.processes_before + self.pids))),
            (resource.setrlimit, (resource.RLIMIT_CPU, _limits(resource.RLIMIT_CPU, seconds, 1))),
            *self._change_of_uid(),
            *(self._drop_the_rest() if same_rights else ()),
        )

    def _change_of_uid(self) -> Iterable[Step]:
        """From 0 to another: takes all capabilities, and hides us from our like."""
        if self.uid is None:
            return
        if not self.in_namespace:  # there, the master has done it for all
            yield os.setgroups, ([],)
        yield os.setresgid, (self.uid,) * 3
        yield os.setresuid, (self.uid,) * 3

    def _drop_the_rest(self) -> Iterable[Step]:
        """What a change of uid in a pid namespace of the slot does by itself."""
        yield linux.prctl, (linux.PR_SET_PDEATHSIG, signal.SIGKILL)
        yield linux.prctl, (linux.PR_SET_DUMPABLE, 0)
        yield linux.drop_capabilities, ()
        if self.ruleset is not None:
            yield landlock.restrict, (self.ruleset,)
        if self.filter is not None:
            yield seccomp.install, (self.filter,)


def follow(steps: Iterable[Step]) -> None:
    for call, arguments in steps:
        call(*arguments)


def is_closed() -> bool:
    """Whether this process has no capability, cannot gain any, is filtered and hidden from its like."""
    return (
        not linux.has_capabilities()
        and linux.libc.prctl(linux.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1
        and linux.libc.prctl(linux.PR_GET_SECCOMP, 0, 0, 0, 0) == 2
        and linux.libc.prctl(linux.PR_GET_DUMPABLE, 0, 0, 0, 0) == 0
    )


def _limits(which: int, soft: int, more: int = 0) -> tuple[int, int]:
    """(soft, hard); without CAP_SYS_RESOURCE one that is lower already stays."""
    ceiling = resource.getrlimit(which)[1]
    hard = soft + more if ceiling == resource.RLIM_INFINITY else min(soft + more, ceiling)
    return min(soft, hard), hard


def _write_oom_score() -> None:
    """When memory runs out, this process goes before the slot and before anything on the host."""
    file = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
    os.write(file, b"1000")
    os.close(file)
