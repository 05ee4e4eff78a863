"""A sandbox pool that runs nothing: it echoes, counts what is open, and can be told to fail."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from agentrl.sandbox import Exec, SandboxLost, Status


class FakePool:
    isolation = "none"

    def __init__(self, slots: int = 8, *, lost: bool = False, close_fails: bool = False) -> None:
        self._free = asyncio.Semaphore(slots)
        self.lost = lost
        self.close_fails = close_fails
        self.acquired = 0
        self.open = 0
        self.waiting = 0

    async def acquire(self) -> FakeSandbox:
        self.waiting += 1
        await self._free.acquire()
        self.waiting -= 1
        self.acquired += 1
        self.open += 1
        return FakeSandbox(self)

    def release(self) -> None:
        self.open -= 1
        self._free.release()

    async def aclose(self) -> None:
        pass


class FakeSandbox:
    def __init__(self, pool: FakePool) -> None:
        self.pool = pool
        self.closed = False
        self.files: dict[str, bytes] = {}

    async def run(self, argv: Sequence[str] | str, *, stdin: str = "", timeout: float | None = None) -> Exec:
        return await self.python(str(argv))

    async def python(self, code: str, *, stdin: str = "", timeout: float | None = None) -> Exec:
        if self.pool.lost:
            raise SandboxLost("the sandbox died")
        return Exec(status=Status.OK, stdout=f"ran {code}")

    async def run_many(self, programs: Sequence[str], *, timeout: float | None = None) -> list[Exec]:
        return [await self.python(program) for program in programs]

    async def write(self, path: str, data: bytes) -> None:
        self.files[path] = data

    async def read(self, path: str) -> bytes:
        return self.files[path]

    async def alive(self) -> bool:
        return not self.closed

    async def aclose(self) -> None:
        if self.closed:
            return
        self.closed = True
        self.pool.release()
        if self.pool.close_fails:
            raise RuntimeError("cannot unmount")
