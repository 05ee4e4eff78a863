"""The host's end of one container: sends jobs over its stdin, receives reports and outputs over its stdout.

Consumes docker's multiplexed stream (by a task of its own); produces results. Each wait ends with the report, the
container's end, or GRACE after the deadline that the worker itself should have kept.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
from typing import Any, NoReturn

from agentrl.sandbox import SandboxLost

from . import docker_frames as frames
from .jobs import Job, Report, Result
from .zygote import wire
from .zygote.wire import Reason

GRACE = 30.0
"""Seconds beyond its deadline that a worker may take to report: a loaded machine may be that late, no more."""
STDERR, MUX = 2, struct.Struct(">BxxxI")
"""Docker's header of each chunk of a container's output: which stream, bytes that follow."""
LAST_WORDS = 4000  # characters


class ContainerLink:
    """Made before the container starts, so that nothing it says is missed. `attached`: from docker's attach_socket.

    `room`: bytes of one file of a job. The worker holds them in its own memory, and keeps to the limit of its programs.
    """

    def __init__(self, attached: Any, room: int, grace: float = GRACE) -> None:
        self.dead = False
        self._attached = attached  # owns the connection; its HTTP response must outlive us
        self._room, self._grace = room, grace
        self._socket = socket.socket(fileno=os.dup(attached.fileno()))
        self._socket.setblocking(False)
        self._count = 0
        self._number = 0
        self._waiting: asyncio.Future[Result] | None = None
        self._idle = asyncio.Event()
        self._ready = asyncio.Event()
        self._words = ""
        self._pump = asyncio.create_task(self._receive())

    async def started(self) -> None:
        """Waits until the worker takes jobs. Raises SandboxLost when it never will."""
        await self._ready.wait()
        if self.dead:
            raise SandboxLost(f"the container ended before it was ready{self._said()}")

    async def run(self, job: Job) -> Result:
        """One job; an earlier one, if it was cancelled, is over before it begins. Raises ValueError, SandboxLost."""
        for data in (job.code, job.data):
            if len(data) > self._room:
                raise ValueError(f"{len(data)} bytes of code or input are more than the sandbox's disk limit")
        number = self._number = await self._next()
        order = wire.ORDER.pack(wire.JOB, number, job.mode, job.timeout, job.case_timeout, job.flags)
        room = min(job.room, self._room)
        frame = frames.job(order, job.code, job.out, job.err, job.data, job.fourth, room)
        return await self._exchange(frame, number, job.timeout + self._grace)

    async def mark(self) -> None:
        """Remembers which files there are, for jobs that tidy up after themselves. Raises SandboxLost."""
        frame = frames.plain(wire.ORDER.pack(wire.MARK, await self._next(), b"-", 0.0, 0.0, 0))
        await asyncio.shield(asyncio.ensure_future(self._send(frame)))  # half a frame would garble all that follows

    async def _next(self) -> int:
        """The next order's number, once the last job is over."""
        try:
            async with asyncio.timeout(self._grace):
                await self._idle.wait()
        except TimeoutError:
            self._hung()
        if self.dead:
            raise SandboxLost(f"the container has ended{self._said()}")
        self._count += 1
        return wire.number(1, self._count)

    async def _exchange(self, frame: bytes, number: int, patience: float) -> Result:
        loop = asyncio.get_running_loop()
        future = self._waiting = loop.create_future()
        self._idle.clear()
        sending = loop.create_task(self._send(frame))
        try:
            async with asyncio.timeout(patience):
                return await future
        except TimeoutError:
            sending.cancel()
            self._hung()
        except SandboxLost:
            sending.cancel()
            raise
        except asyncio.CancelledError:
            # What is being sent is sent, for the same reason
            kill = frames.plain(wire.ORDER.pack(wire.KILL, number, b"-", 0.0, 0.0, 0))
            sending.add_done_callback(lambda _: self._socket.send(kill) if not self.dead else None)
            raise

    def _hung(self) -> NoReturn:
        self.close()
        raise SandboxLost(f"the container did not report within {self._grace:.0f} s of its deadline; it is removed")

    async def _send(self, frame: bytes) -> None:
        with contextlib.suppress(OSError):  # it is dead, which the receiver is about to learn
            await asyncio.get_running_loop().sock_sendall(self._socket, frame)

    async def _receive(self) -> None:
        """Until the container ends."""
        stdout = bytearray()
        try:
            while True:
                stream, size = MUX.unpack(await self._exactly(MUX.size))
                chunk = await self._exactly(size)
                if stream == STDERR:
                    self._words = (self._words + chunk.decode("utf-8", "replace"))[-LAST_WORDS:]
                else:
                    stdout += chunk
                    self._take(stdout)
        except (EOFError, OSError):
            self._end()

    async def _exactly(self, size: int) -> bytes:
        loop, data = asyncio.get_running_loop(), bytearray()
        while len(data) < size:
            chunk = await loop.sock_recv(self._socket, size - len(data))
            if not chunk:
                raise EOFError
            data += chunk
        return bytes(data)

    def _take(self, stdout: bytearray) -> None:
        """The complete reports at the start of what has come."""
        while len(stdout) >= frames.UP:
            sizes = frames.BACK.unpack_from(stdout, wire.REPORT.size)
            if len(stdout) < frames.UP + sum(sizes):
                return
            kind, number, status, reason, peak, cpu, wall = wire.REPORT.unpack_from(stdout)
            bodies, at = [], frames.UP
            for size in sizes:
                bodies.append(bytes(stdout[at : at + size]))
                at += size
            del stdout[:at]
            if kind == wire.READY:
                self._ready.set()
            elif number == self._number and self._waiting is not None and not self._waiting.done():
                report = Report(status=status, reason=Reason(reason), peak_bytes=peak, cpu_s=cpu, wall_s=wall)
                self._waiting.set_result(Result(report=report, out=bodies[0], err=bodies[1], data=bodies[2]))
            self._idle.set()

    def _said(self) -> str:
        lines = self._words.strip().splitlines()
        return f" ({lines[-1]})" if lines else ""

    def _end(self) -> None:
        """The container is gone, or is to be: whoever waits is told."""
        self.dead = True
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(SandboxLost(f"the container has ended{self._said()}"))
        self._ready.set()
        self._idle.set()

    def close(self) -> None:
        """The worker ends when its stdin does, and with it the container. Idempotent."""
        self._end()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    async def aclose(self) -> None:
        """Idempotent."""
        self.close()
        self._pump.cancel()
        await asyncio.gather(self._pump, return_exceptions=True)
        self._socket.close()
        response = getattr(self._attached, "_response", None)  # which holds the connection open; docker puts it there
        if response is not None:
            response.close()
        self._attached.close()
