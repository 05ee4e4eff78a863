"""Being told to stop: Ctrl-C or SIGTERM once ends the run cleanly with a checkpoint, twice at once, thrice without asking.

Consumes signals; everything that waits for long waits through `Stop.unless`, so that nothing has to be polled.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

T = TypeVar("T")

SAID = "stopping after the step in hand, with a checkpoint; once more stops at once"

EXIT_CODE = 130
"""What a shell shows for a program that Ctrl-C has ended."""


class Stopped(Exception):
    """The run was asked to stop."""


class Stop:
    """Whether a stop was asked for. Belongs to one event loop.

    >>> await stop.unless(manager.next_batch(8))        # doctest: +SKIP
    """

    def __init__(self) -> None:
        self._asked = asyncio.Event()

    def ask(self) -> None:
        self._asked.set()

    @property
    def asked(self) -> bool:
        return self._asked.is_set()

    async def unless(self, work: Coroutine[Any, Any, T]) -> T:
        """The work's result, or Stopped as soon as a stop is asked for; the work is then cancelled and waited for."""
        if self.asked:
            work.close()
            raise Stopped
        job = asyncio.ensure_future(work)
        asked = asyncio.ensure_future(self._asked.wait())
        try:
            await asyncio.wait({job, asked}, return_when=asyncio.FIRST_COMPLETED)
            if job.done():
                return job.result()
            raise Stopped
        finally:
            asked.cancel()
            if not job.done():
                job.cancel()
                await asyncio.wait({job})


@contextlib.contextmanager
def signals(stop: Stop, say: Callable[[str], None], text: str = SAID) -> Iterator[None]:
    """Takes Ctrl-C and SIGTERM for as long as it is open; the first is answered with `text`. Must be entered in the thread of
    the running event loop; outside the main thread, where Python delivers no signals, it does nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    count = 0

    def handle(number: int, frame: Any) -> None:
        nonlocal count
        count += 1
        if count == 1:
            loop.call_soon_threadsafe(stop.ask)
            say(text)
        elif count == 2:
            raise KeyboardInterrupt
        else:
            os._exit(EXIT_CODE)

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
