"""The host's end of one slot: sends jobs, receives reports, and knows when the slot died.

Consumes reports (by the event loop's reader); produces futures. Each wait ends with the report, the slot's death, or
GRACE after the deadline that the slot itself should have kept.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from agentrl.sandbox import SandboxLost

from .zygote import wire
from .zygote.wire import Reason

GRACE = 30.0
"""Seconds beyond its deadline that a slot may take to report: a loaded machine may be that late, no more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """How a job ended. Times in seconds."""

    status: int
    """As from waitpid."""
    reason: Reason
    peak_bytes: int
    cpu_s: float
    wall_s: float


class SlotLink:
    def __init__(self, control: socket.socket, jobs: socket.socket, last_words: Callable[[], str]) -> None:
        """`last_words`: what the zygote wrote last, for errors."""
        self.epoch = 0
        """How often the slot was started; what was in it before is gone."""
        self.dead = False
        """For good: its zygote has ended."""
        self._control, self._jobs, self._last_words = control, jobs, last_words
        self._count = 0
        self._number = 0
        self._waiting: asyncio.Future[Report] | None = None
        self._idle = asyncio.Event()
        self._idle.set()
        self._ready = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        control.setblocking(False)
        jobs.setblocking(False)
        self._loop.add_reader(control.fileno(), self._read)

    async def started(self) -> None:
        """Waits until the slot takes jobs. Raises SandboxLost when it never will."""
        await self._ready.wait()
        if self.dead:
            raise SandboxLost("the sandbox's process has ended")

    async def run(
        self, mode: bytes, text: str, fds: Sequence[int], *, timeout: float, case_timeout: float = 0.0, flags: int = 0
    ) -> Report:
        """One job; earlier ones of this slot, a cancelled one included, are over before it begins. Raises SandboxLost."""
        await self._idle.wait()
        body = text.encode("utf-8", "surrogateescape")
        order = (timeout, case_timeout, flags)
        return await self._exchange(wire.JOB, order, timeout + GRACE, (mode, body, fds))

    async def stop(self) -> None:
        """Kills what runs, and waits until it is gone. Raises TimeoutError."""
        if not self._idle.is_set():
            self._order(wire.KILL, self._number)
            async with asyncio.timeout(GRACE):
                await self._idle.wait()

    async def reset(self) -> None:
        """Removes all files; shows that the slot lives. Raises SandboxLost."""
        await self._idle.wait()
        await self._exchange(wire.RESET, (0.0, 0.0, 0), GRACE, None)

    async def mark(self) -> None:
        """Remembers which files there are, for jobs that tidy up after themselves. Raises SandboxLost."""
        await self._idle.wait()
        await self._exchange(wire.MARK, (0.0, 0.0, 0), GRACE, None)

    async def _exchange(
        self,
        kind: bytes,
        order: tuple[float, float, int],
        patience: float,
        task: tuple[bytes, bytes, Sequence[int]] | None,
    ) -> Report:
        if self.dead:
            raise SandboxLost("the sandbox's process has ended")
        self._count += 1
        number = self._number = wire.number(self.epoch, self._count)
        future = self._waiting = self._loop.create_future()
        self._idle.clear()
        try:
            self._order(kind, number, *order)
            if task is not None:
                mode, body, fds = task
                socket.send_fds(self._jobs, [wire.TASK.pack(number, mode) + body], list(fds))
            return await self._outcome(future, patience)
        except asyncio.CancelledError:
            self._order(wire.KILL, number)
            raise

    async def _outcome(self, future: asyncio.Future[Report], patience: float) -> Report:
        try:
            async with asyncio.timeout(patience):
                return await future
        except TimeoutError:
            if future.done() and not future.cancelled():  # our own loop was held up, not the slot
                return future.result()
            raise SandboxLost(f"the sandbox did not report within {patience:.0f} s") from None

    def _order(self, kind: bytes, number: int, timeout: float = 0.0, case_timeout: float = 0.0, flags: int = 0) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it is dead, which the reader is about to learn
            self._control.send(wire.ORDER.pack(kind, number, timeout, case_timeout, flags))

    def _read(self) -> None:
        try:
            message = self._control.recv(wire.REPORT.size)
        except BlockingIOError:
            return
        except OSError:
            message = b""
        if not message:
            self.close()
            return
        kind, number, status, reason, peak, cpu, wall = wire.REPORT.unpack(message)
        if kind == wire.READY:
            self.epoch, self._count = number >> 32, 0
            self._ready.set()
            if self.epoch > 1:
                self._fail(f"the sandbox died and was started anew; its files are gone{self._last_words()}")
        elif number == self._number:
            report = Report(status=status, reason=Reason(reason), peak_bytes=peak, cpu_s=cpu, wall_s=wall)
            if self._waiting is not None and not self._waiting.done():
                self._waiting.set_result(report)
            self._idle.set()

    def _fail(self, text: str) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(SandboxLost(text))
        self._idle.set()

    def close(self) -> None:
        """Idempotent. The slot ends itself when its sockets close."""
        if self.dead:
            return
        self.dead = True
        self._loop.remove_reader(self._control.fileno())
        self._control.close()
        self._jobs.close()
        self._ready.set()
        self._fail("the sandbox's process has ended")
