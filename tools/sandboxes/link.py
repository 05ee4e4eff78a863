"""The host's end of one slot: sends jobs, receives reports, and knows when the slot died.

Consumes reports (by the event loop's reader); produces results. Each wait ends with the report, the slot's death, or
GRACE after the deadline that the slot itself should have kept.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Sequence

from agentrl.sandbox import SandboxLost

from . import memfd
from .jobs import Job, Report, Result
from .zygote import wire
from .zygote.wire import Fourth, Reason

GRACE = 30.0
"""Seconds beyond its deadline that a slot may take to report: a loaded machine may be that late, no more."""
EMPTY_AFTER = 0.2
"""Seconds that a slot waits for its next user, who has it emptied, before it is emptied anyway."""


class SlotLink:
    def __init__(self, connection: socket.socket, last_words: Callable[[], str]) -> None:
        """`last_words`: what the zygote wrote last, for errors."""
        self.dead = False
        """For good: its zygote has ended."""
        self.lost = False
        """It died while its user had it, and was started anew: the files are gone."""
        self._socket, self._last_words = connection, last_words
        self._epoch = 0  # how often the slot was started
        self._count = 0
        self._number = 0
        self._fresh = 0  # wire.FRESH until the user's first order
        self._emptying: asyncio.TimerHandle | None = None
        self._waiting: asyncio.Future[Report] | None = None
        self._idle = asyncio.Event()
        self._idle.set()
        self._ready = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        connection.setblocking(False)
        self._loop.add_reader(connection.fileno(), self._read)

    async def started(self) -> None:
        """Waits until the slot takes jobs. Raises SandboxLost when it never will."""
        await self._ready.wait()
        self._check()

    @property
    def busy(self) -> bool:
        return not self._idle.is_set()

    def lend(self) -> None:
        """To a new user: what the last one has left is removed before the first order."""
        self._fresh, self.lost = wire.FRESH, False
        if self._emptying is not None:
            self._emptying.cancel()

    def give_back(self) -> None:
        """Nothing runs any more. If no new user comes soon, it is emptied for none."""
        if not self._fresh:
            self._emptying = self._loop.call_later(EMPTY_AFTER, self._empty)

    async def run(self, job: Job) -> Result:
        """One job; earlier ones of this slot, a cancelled one included, are over before it begins. Raises SandboxLost.

        A slot that dies with its user's first job, which it may have done before that came, is given the job once more.
        """
        first = bool(self._fresh)
        try:
            return await self._run(job)
        except SandboxLost:
            if not (first and self.lost):
                raise
        self.lend()
        return await self._run(job)

    async def _run(self, job: Job) -> Result:
        await self._idle.wait()
        self._check()
        files: list[int] = []
        try:
            files.append(memfd.holding(job.code))
            files.append(memfd.taking(job.out))
            files.append(memfd.taking(job.err))
            if job.fourth is not Fourth.NONE:
                files.append(_fourth(job))
            report = await self._exchange(job, files)
            gives = job.fourth in (Fourth.FIXED, Fourth.GROWING)
            data = memfd.written(files[3]) if gives else b""
            return Result(report=report, out=memfd.written(files[1]), err=memfd.written(files[2]), data=data)
        finally:
            for fd in files:
                os.close(fd)

    async def mark(self) -> None:
        """Remembers which files there are, for jobs that tidy up after themselves. Raises SandboxLost."""
        await self._idle.wait()
        self._check()
        self._order(wire.MARK)

    async def stop(self) -> None:
        """Kills what runs, and waits until it is gone. Raises TimeoutError, SandboxLost."""
        if not self._idle.is_set():
            self._kill(self._number)
            async with asyncio.timeout(GRACE):
                await self._idle.wait()

    def _empty(self) -> None:
        if not self.dead:
            with contextlib.suppress(SandboxLost):  # then the next user's first order does it, or fails likewise
                self._order(wire.RESET)

    async def _exchange(self, job: Job, files: Sequence[int]) -> Report:
        future = self._waiting = self._loop.create_future()
        number = self._order(wire.JOB, job, files)
        self._idle.clear()
        late = self._loop.call_later(job.timeout + GRACE, self._give_up, future, job.timeout + GRACE)
        try:
            return await future
        except asyncio.CancelledError:
            self._kill(number)
            raise
        finally:
            late.cancel()

    def _give_up(self, future: asyncio.Future[Report], patience: float) -> None:
        """Looks once more: it may be our own loop that was held up, not the slot."""
        if not (self.dead or future.done()):
            self._read()
        if not future.done():
            future.set_exception(SandboxLost(f"the sandbox did not report within {patience:.0f} s"))

    def _order(self, kind: bytes, job: Job | None = None, files: Sequence[int] = ()) -> int:
        """Gives its number. Raises SandboxLost."""
        self._count += 1
        number = wire.number(self._epoch, self._count)
        if job is None:
            message = wire.ORDER.pack(kind, number, b"-", 0.0, 0.0, self._fresh)
        else:
            self._number = number
            message = wire.ORDER.pack(kind, number, job.mode, job.timeout, job.case_timeout, self._fresh | job.flags)
        try:
            socket.send_fds(self._socket, [message], files)
        except OSError as error:  # it is dead, as the reader is about to learn, or takes nothing any more
            raise SandboxLost(f"the sandbox takes no orders: {error.strerror}{self._last_words()}") from None
        self._fresh = 0
        return number

    def _kill(self, number: int) -> None:
        try:
            self._socket.send(wire.ORDER.pack(wire.KILL, number, b"-", 0.0, 0.0, 0))
        except OSError:  # it is dead, as the reader is about to learn, or has orders enough already
            return

    def _check(self) -> None:
        if self.dead:
            raise SandboxLost("the sandbox's process has ended")

    def _read(self) -> None:
        try:
            message = self._socket.recv(wire.REPORT.size)
        except BlockingIOError:
            return
        except OSError:
            message = b""
        if not message:
            self.close()
            return
        kind, number, status, reason, peak, cpu, wall = wire.REPORT.unpack(message)
        if kind == wire.READY:
            self._epoch, self._count, self.lost = number >> 32, 0, not self._fresh
            self._ready.set()
            if self._epoch > 1:
                self._fail(f"the sandbox died and was started anew; its files are gone{self._last_words()}")
        elif number == self._number:
            if self._waiting is not None and not self._waiting.done():
                report = Report(status=status, reason=Reason(reason), peak_bytes=peak, cpu_s=cpu, wall_s=wall)
                self._waiting.set_result(report)
            self._idle.set()

    def _fail(self, text: str) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(SandboxLost(text))
        self._idle.set()

    def close(self) -> None:
        """Idempotent. The slot ends itself when its socket closes."""
        if self.dead:
            return
        self.dead = True
        self._loop.remove_reader(self._socket.fileno())
        self._socket.close()
        self._ready.set()
        self._fail("the sandbox's process has ended")


def _fourth(job: Job) -> int:
    if job.fourth is Fourth.INPUT:
        return memfd.holding(job.data)
    return memfd.taking(job.room) if job.fourth is Fourth.FIXED else memfd.growing()
