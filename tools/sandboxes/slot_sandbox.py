"""A sandbox that is one slot, in a process of this machine or in a container: what both do the same.

Calls are done one after the other, in the order they came. Not how a slot is come by or given back: that is the subclass's.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from agentrl.sandbox import Call, Exec, SandboxSpec

from . import jobs
from .zygote import wire


class SlotSandbox(ABC):
    def __init__(self, spec: SandboxSpec) -> None:
        self._spec = spec
        self._turn = asyncio.Lock()
        self._closed = False

    @abstractmethod
    def _live(self) -> jobs.Link:
        """The slot, for the next job. Raises SandboxError when closed, SandboxLost when it died."""

    @abstractmethod
    async def alive(self) -> bool: ...

    @abstractmethod
    async def aclose(self) -> None:
        """Kills what runs and gives the slot back. Idempotent."""

    async def run(self, argv: Sequence[str] | str, *, stdin: str = "", timeout: float | None = None) -> Exec:
        """Runs a program: a list of arguments, or a text for /bin/sh. Raises SandboxLost."""
        text = jobs.arguments(argv)
        async with self._turn:
            return await self._program(wire.EXEC, text, stdin, timeout)

    async def python(self, code: str, *, stdin: str = "", timeout: float | None = None) -> Exec:
        """Runs Python code in a fresh interpreter. Raises SandboxLost."""
        async with self._turn:
            return await self._program(wire.PYTHON, code, stdin, timeout)

    async def run_many(
        self, programs: Sequence[str], *, stdins: Sequence[str] | None = None, timeout: float | None = None
    ) -> list[Exec]:
        """Runs Python programs, each in a fresh interpreter; `timeout` seconds each. Raises SandboxLost.

        None sees a process, memory or new file of another; changes to files that were there before remain.
        """
        inputs = [""] * len(programs) if stdins is None else list(stdins)
        async with self._turn:
            await self._live().mark()
            return [
                await self._program(wire.PYTHON, code, stdin, timeout, wire.TIDY)
                for code, stdin in zip(programs, inputs, strict=True)
            ]

    async def call_many(
        self, code: str, function: str, inputs: Sequence[Sequence[Any]], *, timeout: float, total: float | None = None
    ) -> list[Call]:
        """Calls a function that `code` defines, once per tuple of arguments. See agentrl.sandbox.Sandbox.call_many."""

        async def attempt(rest: Sequence[str], seconds: float) -> jobs.Attempt:
            async with self._turn:
                job = jobs.calling(code, function, rest, case_timeout=timeout, timeout=seconds)
                done = await self._live().run(job)
            return jobs.read_attempt(done.data, len(rest), done.report)

        return await jobs.call_until_done(attempt, inputs, timeout=timeout, total=total)

    async def write(self, path: str, data: bytes) -> None:
        """Writes a file below the working folder. Raises ValueError for a path that leaves it, OSError, SandboxLost."""
        if len(data) > self._spec.disk_bytes:
            raise OSError(f"{path!r}: {len(data)} bytes are more than the disk limit")
        async with self._turn:
            done = await self._live().run(jobs.writing(path, data, timeout=self._spec.timeout))
        jobs.raise_for(done.report, path, done.err)

    async def read(self, path: str) -> bytes:
        """Reads a file below the working folder. Raises FileNotFoundError, ValueError, OSError, SandboxLost."""
        async with self._turn:
            done = await self._live().run(jobs.reading(path, timeout=self._spec.timeout))
        jobs.raise_for(done.report, path, done.err)
        return done.data

    async def __aenter__(self) -> Any:
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self.aclose()

    async def _program(self, mode: bytes, text: str, stdin: str, timeout: float | None, flags: int = 0) -> Exec:
        done = await self._live().run(jobs.program(self._spec, mode, text, stdin, timeout, flags))
        return jobs.as_exec(done.report, done.out, done.err, jobs.output_room(self._spec))
