"""A queue of free things that is fair: who came first gets the next. (asyncio.Queue lets a late comer barge in.)"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class Fifo(Generic[T]):
    def __init__(self) -> None:
        self._free: deque[T] = deque()
        self._waiting: deque[asyncio.Future[T | None]] = deque()

    async def get(self) -> T | None:
        """The next free thing; None after `wake` or `clear`, when the caller must look anew."""
        if self._free and not self._waiting:
            return self._free.popleft()
        turn: asyncio.Future[T | None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            return await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and (thing := turn.result()) is not None:
                self.put(thing)  # it was handed over in the moment of the cancellation
            raise

    def put(self, thing: T) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(thing)
                return
        self._free.append(thing)

    def wake(self) -> None:
        """All who wait get None."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)

    def clear(self) -> None:
        self._free.clear()
        self.wake()
