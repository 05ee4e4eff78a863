"""How a slot kills all that a job has started, in one way where it has a pid namespace and in another where not."""

from __future__ import annotations

import contextlib
import os
import signal

from . import linux, watch


def kill_namespace(child: int, ended: bool) -> None:
    """The slot is process 1 of the namespace: -1 means all others, at once, and no fork slips through."""
    try:
        os.kill(-1, signal.SIGKILL)
    except ProcessLookupError:  # there is none
        return


def kill_descendants(child: int, ended: bool) -> None:
    """The slot is a subreaper, so all that a job started is below it. They are stopped first: no fork outruns that."""
    if ended and alone(child):
        return
    while True:
        stopped: set[int] = set()
        while new := set(watch.descendants(os.getpid())) - stopped:
            _signal(new, signal.SIGSTOP)
            stopped |= new
        if not stopped:
            return
        _signal(stopped, signal.SIGKILL)
        for pid in stopped - {child}:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


def _signal(pids: set[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def alone(child: int) -> bool:
    """Whether this child, which has ended, is all that there is below: quick to see, and so it is for most jobs."""
    try:
        return watch.children_of(os.getpid()) == [child]
    except OSError:  # the kernel was built without it: look closely
        return False


def reap(child: int) -> None:
    """Buries the dead but `child`, which is waited for apart, so that they do not count as processes."""
    with contextlib.suppress(ChildProcessError):
        while True:
            found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if found is None or found.si_pid == child:
                return
            os.waitpid(found.si_pid, 0)


def reap_all() -> None:
    """Waits for everything below to be gone; all of it has been killed."""
    while linux.libc.waitpid(-1, None, 0) > 0:  # an exception, as os.waitpid ends with, costs ten times as much
        continue
