"""One slot: forks a child per job, sees that it keeps its limits, kills all that it leaves, and reports.

Consumes orders from the host (its line); produces reports. Waits for orders, for the end of the child, and for
deadlines, which it keeps itself: the host's event loop may be busy with a training step. Holds no text of any job.
"""

from __future__ import annotations

import mmap
import os
import resource
import select
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, NoReturn, Protocol

from . import child, ending, folder, watch, wire
from .cage import Cage
from .wire import Reason

TICK, TICK_UNCOUNTED = 0.05, 0.01
"""Seconds between looks at a running job; shorter where no cgroup holds its memory or no file system its files."""
FIRST_LOOK = 0.002
"""Where limits are watched; then after twice the time, and so on to the tick: what grows by doubling is small at first."""


class Line(Protocol):
    """The connection to the host. See wire.Line."""

    def fileno(self) -> int: ...

    def drain(self) -> bool: ...

    def receive(self) -> tuple[bytes, list[int]]: ...

    def send(self, report: bytes) -> None: ...


class Job(NamedTuple):
    number: int
    begun: float
    timeout: float
    case_timeout: float
    flags: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """What a slot is connected to."""

    line: Line
    host: int
    """A pidfd of the host process."""
    oom: int
    """The cgroup's file that counts kills for want of memory, or -1."""


@dataclass(slots=True, kw_only=True)
class Slot:
    links: Links
    cage: Cage
    epoch: int
    ground: str
    """The folder that is emptied between uses."""
    kept: frozenset[str]
    """Names in `ground` that are not the code's."""
    reseed: Callable[[bytes], None]
    open_below: int
    kill_all: Callable[[int, bool], None]
    others: Callable[[], list[int]]
    """All processes of the sandbox but the slot."""
    page: mmap.mmap = field(default_factory=lambda: mmap.mmap(-1, mmap.PAGESIZE))
    poll: select.poll = field(default_factory=select.poll)
    places: tuple[folder.Place, ...] = ()
    bare: frozenset[str] = frozenset()
    """The names of all there is when there are but the places."""
    clean: bool = False
    """Nothing was done since it was emptied."""
    snapshot: frozenset[str] = frozenset()
    memory: int = 0
    """Bytes of the slot itself, which a child shares until it writes."""
    ooms: int = 0
    """Kills for want of memory up to the last job."""
    oom_text: bytes = b""
    oom_count: int = 0
    """What the file that counts them said last, and what that means."""

    def serve(self) -> NoReturn:
        """Until the host is gone."""
        self._begin()
        around = child.Surroundings(
            steps=self.cage.steps(),
            home=self.cage.home,
            ruleset=-1 if self.cage.ruleset is None else self.cage.ruleset,
            page=self.page,
            reseed=self.reseed,
            open_below=self.open_below,
        )
        while True:
            (kind, number, mode, timeout, case_timeout, flags), files = self._next_order()
            if number >> 32 != self.epoch:  # it was meant for the slot's last life
                wire.close(files)
                continue
            if flags & wire.FRESH or kind == wire.RESET:
                self._renew()
            if kind == wire.MARK:
                self.snapshot = folder.snapshot(self.ground, self.kept)
            if kind == wire.JOB:
                job = Job(number, time.monotonic(), timeout, case_timeout, flags)
                self._perform(job, mode, files, around)

    def _begin(self) -> None:
        if not self.links.line.drain():
            self._end()
        self.memory = watch.own_size()[1]
        self.ooms = self._count_ooms()
        self.places = self._places()
        self.bare = frozenset(os.path.relpath(place.path, self.ground) for place in self.places)
        self._renew()
        self.cage.prepare()
        self._rehearse()
        self.poll.register(self.links.line, select.POLLIN)
        self.poll.register(self.links.host, select.POLLIN)
        self._report(wire.READY, wire.number(self.epoch, 0))

    def _rehearse(self) -> None:
        """What was promised of the isolation must have been seen to work before anyone relies on it."""
        pid = os.fork()
        if pid == 0:
            child.rehearse(self.cage)
        _, status = os.waitpid(pid, 0)
        if status:
            raise RuntimeError(f"a child could not shut itself in (status {status})")

    def _next_order(self) -> tuple[tuple[bytes, int, bytes, float, float, int], list[int]]:
        while True:
            message, files = self._receive(dict(self.poll.poll()))
            if message:
                return wire.ORDER.unpack(message), files

    def _receive(self, ready: dict[int, int]) -> tuple[bytes, list[int]]:
        """An order, if one has come. Ends the process when the host is gone."""
        if self.links.line.fileno() in ready:
            message, files = self.links.line.receive()
            if not message:
                self._end()
            return message, files
        if self.links.host in ready:
            self._end()
        return b"", []

    def _perform(self, job: Job, mode: bytes, files: list[int], around: child.Surroundings) -> None:
        self.clean = False
        wire.PAGE.pack_into(self.page, 0, 0.0)
        pid = os.fork()
        if pid == 0:
            child.main(mode, files, around)
        wire.close(files)
        handle = os.pidfd_open(pid)
        self.poll.register(handle, select.POLLIN)
        reason = self._oversee(job, pid, handle)
        self.poll.unregister(handle)
        os.close(handle)
        status, used = self._bury(pid, reason is Reason.EXIT)
        self._conclude(job, reason, status, used)

    def _oversee(self, job: Job, pid: int, handle: int) -> Reason:
        """Waits for the end of a job; the reason why it has to be ended, or EXIT when it ended itself."""
        held = self.cage.counted and self.cage.in_namespace
        tick = TICK if held else TICK_UNCOUNTED
        look = job.begun + (tick if held else FIRST_LOOK)
        while True:
            wait = min(self._deadline(job), look) - time.monotonic()
            ready = dict(self.poll.poll(max(0.0, wait) * 1000))
            if handle in ready:
                return self._left(pid)
            if ready and self._is_kill(job, ready):
                return Reason.KILLED
            now = time.monotonic()
            if now >= self._deadline(job):
                return Reason.DEADLINE
            if now >= look:
                reason = self._look(pid)
                if reason is not None:
                    return reason
                look = now + min(tick, now - job.begun)

    def _is_kill(self, job: Job, ready: dict[int, int]) -> bool:
        """While a job runs, the host sends nothing but the order to end it."""
        message, files = self._receive(ready)
        wire.close(files)
        return bool(message) and wire.ORDER.unpack(message)[:2] == (wire.KILL, job.number)

    def _left(self, pid: int) -> Reason:
        """A last look, where the limit of processes is watched: on a starved machine all may be over before the first."""
        if (self.cage.counted and self.cage.in_namespace) or ending.alone(pid):
            return Reason.EXIT
        ending.reap(pid)
        return Reason.PROCESSES if len(self.others()) > self.cage.pids else Reason.EXIT

    def _deadline(self, job: Job) -> float:
        """The job's, or the current case's. When a case began is the child's word: a lie gains it nothing but the job's."""
        end = job.begun + job.timeout
        if not job.case_timeout:
            return end
        (case_begun,) = wire.PAGE.unpack_from(self.page)
        latest = max(job.begun, min(case_begun, time.monotonic())) if case_begun == case_begun else job.begun
        return min(end, latest + job.case_timeout)

    def _look(self, pid: int) -> Reason | None:
        ending.reap(pid)
        cage = self.cage
        used = watch.usage(self.others(), cage.base_address_space, self.memory, with_memory=not cage.counted)
        if used.cpu > cage.cpu:
            return Reason.CPU
        if cage.counted and cage.in_namespace:
            return None
        if not cage.counted and used.memory > cage.memory:
            return Reason.MEMORY
        if used.processes > cage.pids:
            return Reason.PROCESSES
        return Reason.DISK if self._fills_disk() else None

    def _fills_disk(self) -> bool:
        """In a namespace, the file system has the limit."""
        return not self.cage.in_namespace and watch.disk_bytes(self.ground, self.cage.disk) > self.cage.disk

    def _bury(self, pid: int, ended: bool) -> tuple[int, resource.struct_rusage]:
        """Kills the child and all it has started, and waits until they are gone."""
        self.kill_all(pid, ended)
        _, status, used = os.wait4(pid, 0)
        ending.reap_all()
        return status, used

    def _conclude(self, job: Job, reason: Reason, status: int, used: resource.struct_rusage) -> None:
        wall = time.monotonic() - job.begun
        cpu = used.ru_utime + used.ru_stime
        reason = self._why(reason, status, cpu)
        if job.flags & wire.TIDY:
            self._tidy()
        if reason is Reason.DISK and not folder.shrink(self.ground, self.cage.disk):
            self._renew()
        self._report(wire.DONE, job.number, status, reason, used.ru_maxrss * 1024, cpu, wall)

    def _why(self, reason: Reason, status: int, cpu: float) -> Reason:
        """The reason to report. All of the job is dead, so every kill for want of memory since the last one is its own."""
        before, self.ooms = self.ooms, self._count_ooms()
        if self.ooms > before and status and reason is not Reason.KILLED:
            return Reason.MEMORY  # and no less when it then hung until its deadline: what it waited for was killed
        if reason is not Reason.EXIT and (not os.WIFEXITED(status) or reason is Reason.PROCESSES):
            return reason  # else it has ended just before we would have ended it
        number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        if number == signal.SIGXCPU or (number == signal.SIGKILL and cpu >= self.cage.cpu):
            return Reason.CPU
        return Reason.DISK if self._fills_disk() else Reason.EXIT

    def _count_ooms(self) -> int:
        if self.links.oom < 0:
            return 0
        text = os.pread(self.links.oom, 1000, 0)
        if text != self.oom_text:
            _, found, rest = text.partition(b"\noom_kill ")
            self.oom_text, self.oom_count = text, int(rest.split(maxsplit=1)[0]) if found else 0
        return self.oom_count

    def _renew(self) -> None:
        """Between two users: nothing runs, and nothing may be left."""
        if self.clean:
            return
        if self.cage.uid is None and self.cage.in_namespace and os.stat(self.ground).st_uid == os.getuid():
            folder.restore(self.ground, 0o1777)  # the code, whose it is as well, may have changed it
        folder.renew(self.ground, self.places, self.kept)
        self.snapshot = frozenset()
        self.clean = True

    def _tidy(self) -> None:
        """Removes what was added since the snapshot: quickly where that shows nothing but the places, as it mostly does."""
        if self.snapshot == self.bare:
            folder.renew(self.ground, self.places, self.kept)
        else:
            folder.empty(self.ground, self.snapshot, self.kept)

    def _places(self) -> tuple[folder.Place, ...]:
        """The folders that a program takes for granted."""
        cage = self.cage
        uid, gid = (os.getuid(), os.getgid()) if cage.uid is None else (cage.uid, cage.uid)
        shared = f"{self.ground}/.shm" if cage.in_namespace else cage.temporary
        owner = (-1, -1) if cage.in_namespace else (uid, gid)
        return folder.Place(cage.home, 0o700, uid, gid), folder.Place(shared, 0o1777, *owner)

    def _report(self, kind: bytes, number: int, *result: float) -> None:
        """`result`: wait status, reason, peak bytes, cpu and wall seconds; nothing where there is none."""
        try:
            self.links.line.send(wire.REPORT.pack(kind, number, *(result or (0, 0, 0, 0.0, 0.0))))
        except (BrokenPipeError, ConnectionResetError):
            self._end()

    def _end(self) -> NoReturn:
        """The host is gone: so is everything here."""
        try:
            self.kill_all(0, False)
        finally:
            os._exit(0)
