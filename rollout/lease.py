"""The sandboxes of one episode: the agent's own, opened at its first use, and those that graders ask for.

Everything leased is given back when the episode ends, however it ends. Uses of a sandbox are counted here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from agentrl.sandbox import Call, Exec, Sandbox, SandboxError, SandboxPool

from .limits import Clock


class Leases:
    """A SandboxPool for one episode over the run's pool."""

    def __init__(self, pool: SandboxPool, clock: Clock) -> None:
        """`clock`: the episode's, which stands still while it waits for a sandbox."""
        self.isolation = pool.isolation
        self._pool = pool
        self._clock = clock
        self._open: list[Leased] = []
        self.calls = 0
        """Executions in any sandbox of this episode, graders included."""

    def lazy(self) -> Leased:
        """A sandbox that is taken from the pool when it is first used: episodes that never use theirs hold none."""
        leased = Leased(self, self._pool, self._clock)
        self._open.append(leased)
        return leased

    async def acquire(self) -> Sandbox:
        leased = self.lazy()
        await leased.open()
        return leased

    async def aclose(self) -> None:
        """Closes all. Tries each before it raises what failed."""
        failures: list[Exception] = []
        for leased in self._open:
            try:
                await leased.aclose()
            except Exception as error:
                failures.append(error)
        if failures:
            raise ExceptionGroup("sandboxes could not be closed", failures)


class Leased:
    """An `agentrl.sandbox.Sandbox` that opens lazily and counts."""

    def __init__(self, leases: Leases, pool: SandboxPool, clock: Clock) -> None:
        self._leases = leases
        self._pool = pool
        self._clock = clock
        self._sandbox: Sandbox | None = None
        self._closed = False
        self._lock = asyncio.Lock()  # two parallel tools must not open two

    async def open(self) -> Sandbox:
        """Takes it from the pool, waiting for a free one while the clock stands still: how long others hold theirs says
        nothing about this episode. Raises SandboxError."""
        async with self._lock:
            if self._closed:
                raise SandboxError("this sandbox is closed; before rewards that take `fresh` run, the agent's is given back")
            if self._sandbox is None:
                with self._clock.stopped():
                    self._sandbox = await self._pool.acquire()
            return self._sandbox

    async def run(self, argv: Sequence[str] | str, *, stdin: str = "", timeout: float | None = None) -> Exec:
        sandbox = await self._used(1)
        return await sandbox.run(argv, stdin=stdin, timeout=timeout)

    async def python(self, code: str, *, stdin: str = "", timeout: float | None = None) -> Exec:
        sandbox = await self._used(1)
        return await sandbox.python(code, stdin=stdin, timeout=timeout)

    async def run_many(
        self, programs: Sequence[str], *, stdins: Sequence[str] | None = None, timeout: float | None = None
    ) -> list[Exec]:
        sandbox = await self._used(len(programs))
        return await sandbox.run_many(programs, stdins=stdins, timeout=timeout)

    async def call_many(
        self, code: str, function: str, inputs: Sequence[Sequence[Any]], *, timeout: float, total: float | None = None
    ) -> list[Call]:
        sandbox = await self._used(1)
        return await sandbox.call_many(code, function, inputs, timeout=timeout, total=total)

    async def write(self, path: str, data: bytes) -> None:
        await (await self.open()).write(path, data)

    async def read(self, path: str) -> bytes:
        return await (await self.open()).read(path)

    async def alive(self) -> bool:
        return not self._closed and (self._sandbox is None or await self._sandbox.alive())

    async def aclose(self) -> None:
        async with self._lock:
            self._closed = True
            sandbox, self._sandbox = self._sandbox, None
            if sandbox is not None:
                await sandbox.aclose()

    async def _used(self, calls: int) -> Sandbox:
        sandbox = await self.open()
        self._leases.calls += calls
        return sandbox
