"""Blocking work of one sandbox, in threads, one piece after the other. It ends when whoever waits for it is cancelled.

Waits for: the work, which looks at `stopped` (see `oversee` in unsafe_local.py) and so ends soon after that is set.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from agentrl.sandbox import SandboxError

T = TypeVar("T")


class Turns:
    def __init__(self) -> None:
        self.stopped = threading.Event()
        """Set while nobody wants what is being done any more."""
        self.closed = False
        self._turn = asyncio.Lock()

    async def do(self, function: Callable[..., T], *arguments: Any) -> T:
        """Raises SandboxError when it was closed before or meanwhile."""
        async with self._turn:
            self.check()
            self.stopped.clear()
            work = asyncio.ensure_future(asyncio.to_thread(function, *arguments))
            try:
                found = await asyncio.shield(work)
            except asyncio.CancelledError:
                self.stopped.set()
                await asyncio.wait([work])
                raise
            self.check()
            return found

    def check(self) -> None:
        if self.closed:
            raise SandboxError("the sandbox is closed")

    async def close(self, clean: Callable[[], None]) -> bool:
        """Ends what is being done, then calls `clean` in a thread, once. False when it was closed before."""
        if self.closed:
            return False
        self.closed = True
        self.stopped.set()
        async with self._turn:
            await asyncio.to_thread(clean)
        return True
