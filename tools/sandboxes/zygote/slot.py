"""One slot: forks a child per job, sees that it keeps its limits, kills all that it leaves, and reports.

Consumes orders from the host (control socket); produces reports. Waits for orders, for the end of the child, and for
deadlines, which it keeps itself: the host's event loop may be busy with a training step. Holds no text of any job.
"""

from __future__ import annotations

import mmap
import os
import resource
import select
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NoReturn

from . import child, ending, folder, watch, wire
from .cage import Cage
from .wire import Reason

TICK, TICK_UNCOUNTED = 0.05, 0.01
"""Seconds between looks at a running job; shorter where no cgroup holds its memory or no file system its files."""
TICKS_PER_DISK_LOOK = 3
FAILED_STARTS = 5
"""Children in a row that may die before they take a job; then the slot gives up and is started anew."""


@dataclass(frozen=True, slots=True)
class Job:
    number: int
    begun: float
    timeout: float
    case_timeout: float
    flags: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """What a slot is connected to."""

    control: socket.socket
    jobs: int
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
    done: int = 0
    """Number of the last job that was reported."""
    snapshot: frozenset[str] = frozenset()
    memory: int = 0
    """Bytes of the slot itself, which a child shares until it writes."""
    ooms: int = 0

    def serve(self) -> NoReturn:
        """Until the host is gone."""
        self._begin()
        job, failures = None, 0
        while True:
            pid = self._fork()
            handle = os.pidfd_open(pid)
            self.poll.register(handle, select.POLLIN)
            job = job or self._await_job(handle)
            reason = self._oversee(job, pid, handle) if job else Reason.EXIT
            self.poll.unregister(handle)
            status, used = self._bury(pid, handle, reason is Reason.EXIT)
            if job and (reason is not Reason.EXIT or wire.PAGE.unpack_from(self.page)[0] == job.number):
                self._conclude(job, reason, status, used)
                job, failures = None, 0
            else:  # it died before it took the job, which the next one will find
                failures += 1
                if failures == FAILED_STARTS:
                    raise RuntimeError(f"{failures} children died before they took a job, the last with status {status}")
                time.sleep(0.02 * 2**failures)

    def _begin(self) -> None:
        self.links.control.setblocking(False)
        self._drain()
        self.done = wire.number(self.epoch, 0)
        self.memory = watch.own_size()[1]
        self.ooms = self._count_ooms()
        folder.empty(self.ground, untouched=self.kept)
        self._furnish()
        self.cage.prepare()
        self._rehearse()
        self.poll.register(self.links.control, select.POLLIN)
        self.poll.register(self.links.host, select.POLLIN)
        self._report(wire.READY, self.done)

    def _rehearse(self) -> None:
        """What was promised of the isolation must have been seen to work before anyone relies on it."""
        pid = os.fork()
        if pid == 0:
            child.rehearse(self.cage)
        _, status = os.waitpid(pid, 0)
        if status:
            raise RuntimeError(f"a child could not shut itself in (status {status})")

    def _drain(self) -> None:
        """What was sent to the slot's last life is void; the host hears of the new one by READY."""
        jobs = socket.socket(fileno=os.dup(self.links.jobs))
        for queue in (self.links.control, jobs):
            try:
                while True:
                    message, fds = wire.receive(queue, socket.MSG_DONTWAIT)
                    for fd in fds:
                        os.close(fd)
                    if not message:
                        self._end()
            except BlockingIOError:
                continue
        jobs.close()

    def _fork(self) -> int:
        wire.PAGE.pack_into(self.page, 0, 0, 0.0)
        pid = os.fork()
        if pid == 0:
            child.main(self.links.jobs, self.cage, self.done + 1, self.page, self.reseed, self.open_below)
        return pid

    def _await_job(self, handle: int) -> Job | None:
        """The next job; None when the waiting child has died."""
        while True:
            ready = {fd for fd, _ in self.poll.poll()}
            order = self._order(ready)
            if order is not None:
                kind, number, timeout, case_timeout, flags = order
                if kind == wire.JOB and number > self.done:
                    return Job(number, time.monotonic(), timeout, case_timeout, flags)
                if kind == wire.RESET:
                    self._reset(number)
                if kind == wire.MARK:
                    self.snapshot = folder.snapshot(self.ground, self.kept)
                    self._report(wire.DONE, number)
            elif handle in ready:
                return None

    def _order(self, ready: set[int]) -> tuple[bytes, int, float, float, int] | None:
        """An order, if one has come. Ends the process when the host is gone."""
        if self.links.control.fileno() in ready:
            message = self.links.control.recv(wire.ORDER.size)
            if message:
                return wire.ORDER.unpack(message)
            self._end()
        if self.links.host in ready:
            self._end()
        return None

    def _oversee(self, job: Job, pid: int, handle: int) -> Reason:
        """Waits for the end of a job; the reason why it has to be ended, or EXIT when it ended itself."""
        tick = TICK if self.cage.counted and self.cage.in_namespace else TICK_UNCOUNTED
        look, looks = time.monotonic() + tick, 0
        while True:
            deadline = self._deadline(job)
            wait = min(deadline, look) - time.monotonic()
            ready = {fd for fd, _ in self.poll.poll(max(0.0, wait) * 1000)}
            if handle in ready:
                return self._left(pid)
            order = self._order(ready)
            if order is not None and order[:2] == (wire.KILL, job.number):
                return Reason.KILLED
            now = time.monotonic()
            if now >= self._deadline(job):
                return Reason.DEADLINE
            if now >= look:
                looks += 1
                reason = self._look(pid, disk=looks % TICKS_PER_DISK_LOOK == 0)
                if reason is not None:
                    return reason
                look = time.monotonic() + tick

    def _left(self, pid: int) -> Reason:
        """A last look, where the limit of processes is watched: on a starved machine all may be over before the first."""
        if self.cage.counted and self.cage.in_namespace:
            return Reason.EXIT
        ending.reap(pid)
        return Reason.PROCESSES if len(self.others()) > self.cage.pids else Reason.EXIT

    def _deadline(self, job: Job) -> float:
        """The job's, or the current case's. When a case began is the child's word: a lie gains it nothing but the job's."""
        end = job.begun + job.timeout
        if not job.case_timeout:
            return end
        _, case_begun = wire.PAGE.unpack_from(self.page)
        latest = max(job.begun, min(case_begun, time.monotonic())) if case_begun == case_begun else job.begun
        return min(end, latest + job.case_timeout)

    def _look(self, pid: int, disk: bool) -> Reason | None:
        ending.reap(pid)
        cage = self.cage
        used = watch.usage(self.others(), cage.base_address_space, self.memory, with_memory=not cage.counted)
        if used.cpu > self.cage.cpu:
            return Reason.CPU
        if self.cage.counted and self.cage.in_namespace:
            return None
        if not self.cage.counted and used.memory > self.cage.memory:
            return Reason.MEMORY
        if used.processes > self.cage.pids:
            return Reason.PROCESSES
        return Reason.DISK if disk and self._fills_disk() else None

    def _fills_disk(self) -> bool:
        """In a namespace, the file system has the limit."""
        return not self.cage.in_namespace and watch.disk_bytes(self.ground) > self.cage.disk

    def _bury(self, pid: int, handle: int, ended: bool) -> tuple[int, resource.struct_rusage]:
        """Kills the child and all it has started, and waits until they are gone."""
        self.kill_all(pid, ended)
        _, status, used = os.wait4(pid, 0)
        ending.reap_all()
        os.close(handle)
        return status, used

    def _conclude(self, job: Job, reason: Reason, status: int, used: resource.struct_rusage) -> None:
        wall = time.monotonic() - job.begun
        cpu = used.ru_utime + used.ru_stime
        ended = os.WIFEXITED(status) and reason is not Reason.PROCESSES
        if reason is Reason.EXIT or ended:  # it may have ended just before we would have ended it
            reason = self._why(status, cpu)
        if job.flags & wire.TIDY:
            folder.empty(self.ground, self.snapshot, self.kept)
        self.done = job.number
        self._report(wire.DONE, job.number, status, reason, used.ru_maxrss * 1024, cpu, wall)

    def _why(self, status: int, cpu: float) -> Reason:
        """A job that ended itself: whether the kernel's limits made it."""
        ooms, before = self._count_ooms(), self.ooms
        self.ooms = ooms
        if status and ooms > before:
            return Reason.MEMORY
        number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        if number == signal.SIGXCPU or (number == signal.SIGKILL and cpu >= self.cage.cpu):
            return Reason.CPU
        return Reason.DISK if self._fills_disk() else Reason.EXIT

    def _count_ooms(self) -> int:
        if self.links.oom < 0:
            return 0
        _, found, rest = os.pread(self.links.oom, 1000, 0).partition(b"\noom_kill ")
        return int(rest.split(maxsplit=1)[0]) if found else 0

    def _reset(self, number: int) -> None:
        """Between two users: nothing runs, and nothing may be left."""
        folder.empty(self.ground, untouched=self.kept)
        self._furnish()
        self.snapshot = frozenset()
        self._report(wire.DONE, number)

    def _furnish(self) -> None:
        """The folders that a program takes for granted, as they have to be."""
        uid = self.cage.uid if self.cage.uid is not None else os.getuid()
        shared = f"{self.ground}/.shm" if self.cage.in_namespace else self.cage.temporary
        for path, mode in ((self.cage.home, 0o700), (shared, 0o1777)):
            if os.path.islink(path):
                os.unlink(path)
            os.makedirs(path, exist_ok=True)
            os.chmod(path, mode)
            if path == self.cage.home or not self.cage.in_namespace:
                os.chown(path, uid, uid if self.cage.uid is not None else os.getgid())

    def _report(self, kind: bytes, number: int, *result: float) -> None:
        """`result`: wait status, reason, peak bytes, cpu and wall seconds; nothing where there is none."""
        try:
            self.links.control.send(wire.REPORT.pack(kind, number, *(result or (0, 0, 0, 0.0, 0.0))))
        except (BrokenPipeError, ConnectionResetError):
            self._end()

    def _end(self) -> NoReturn:
        """The host is gone: so is everything here."""
        try:
            self.kill_all(0, False)
        finally:
            os._exit(0)
