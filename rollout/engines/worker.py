"""One daemon thread that runs commands, and between them its own work. It owns what it touches; others only send commands.

Consumes commands from any thread or event loop; each is a function that runs between two pieces of work, and whose result
or error goes into a future. It waits for a command only while there is no work. Whoever waits for a future is answered in
every case: when the thread dies, all commands that were never run fail with EngineDead.
"""

from __future__ import annotations

import asyncio
import queue
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import Any, TypeVar

import torch

from agentrl.engine import EngineDead, EngineError

T = TypeVar("T")

SWITCH_S = 0.0005
"""Seconds after which a thread that computes in Python lets the others in, for the whole process; Python's own 0.005 is more.
Each of the 1,500 operations of a decode step takes the interpreter lock anew: beside one busy Python thread (a sync
environment, a tokenizer) 135 M parameters decoded 14 tokens/s with 0.005, 68 with this, and 244 with nobody beside them."""


class Worker:
    """ready: whether there is work; work: does one piece; died: called once when the thread is gone, with the reason."""

    def __init__(
        self,
        *,
        name: str,
        threads: int,
        ready: Callable[[], bool],
        work: Callable[[], None],
        died: Callable[[EngineDead], None],
    ) -> None:
        self._ready, self._work, self._died = ready, work, died
        self._threads = threads
        self._death: EngineDead | None = None
        self._dying = threading.Lock()
        self._seen = time.monotonic()
        self._commands: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any] | None]] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)

    def start(self) -> None:
        if sys.getswitchinterval() > SWITCH_S:
            sys.setswitchinterval(SWITCH_S)
        self._thread.start()

    def check_alive(self) -> None:
        """Raises EngineDead, with what it died of."""
        if self._death is not None:
            raise dead_again(self._death)

    async def call(self, command: Callable[[], T]) -> T:
        """Runs `command` between two pieces of work. An EngineError is its caller's affair; anything else kills the thread."""
        future: Future[Any] = Future()

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(command())
            except EngineError as error:
                future.set_exception(error)
            except BaseException as error:
                future.set_exception(_chained(EngineDead(f"the engine broke: {error!r}"), error))
                raise

        self.post(run, future)
        return await asyncio.wrap_future(future)

    def post(self, command: Callable[[], Any], future: Future[Any] | None = None) -> None:
        """Queues a command and does not wait; `future` fails should it never be run."""
        self._commands.put((command, future))
        if self._death is not None:  # it may have died just before the command was queued
            self._refuse_all()

    def silent(self) -> float:
        """Seconds since it was last seen between two pieces of work."""
        return time.monotonic() - self._seen

    async def stop(self, patience: float) -> None:
        """Ends the thread after its piece of work, or gives it up after `patience` seconds. May be called again."""
        if self._death is None:
            self._commands.put((lambda: self.die(EngineDead("the engine was closed")), None))
        await asyncio.to_thread(self._thread.join, patience)
        if self._thread.is_alive():
            self.die(EngineDead(f"the engine was closed; its thread has not come back from a step in {patience:g} s"))

    def die(self, reason: EngineDead) -> None:
        """No command is run any more, and none is left waiting."""
        with self._dying:
            if self._death is not None:
                return
            self._death = reason
        self._died(reason)
        self._refuse_all()

    def _refuse_all(self) -> None:
        assert self._death is not None
        with suppress(queue.Empty):
            while True:
                _, future = self._commands.get_nowait()
                if future is not None:
                    settle(future, dead_again(self._death))

    def _serve(self) -> None:
        try:
            if self._threads:
                torch.set_num_threads(self._threads)
            with torch.inference_mode():
                while self._death is None:
                    self._seen = time.monotonic()
                    self._run_commands()
                    if self._death is None and self._ready():
                        self._work()
        except BaseException as error:
            self.die(_chained(EngineDead(f"the engine's thread died: {error!r}"), error))

    def _run_commands(self) -> None:
        """Those that have come; waits for one when there is nothing else to do."""
        with suppress(queue.Empty):
            while self._death is None:
                command, _ = self._commands.get(block=not self._ready())
                self._seen = time.monotonic()
                command()


def settle(future: Future[Any], error: EngineError | None) -> None:
    """Answers a future that its owner may have cancelled meanwhile."""
    with suppress(InvalidStateError):
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)


def dead_again(reason: EngineDead) -> EngineDead:
    """A copy, cause included: one exception raised in many tasks would pile up their tracebacks."""
    return _chained(EngineDead(str(reason)), reason.__cause__)


def _chained(error: EngineDead, cause: BaseException | None) -> EngineDead:
    error.__cause__ = cause
    return error


class RunningClock:
    """Counts the seconds that are spent running; pauses do not count."""

    def __init__(self) -> None:
        self._total, self._since, self._running = 0.0, time.monotonic(), True

    def run(self, running: bool) -> None:
        now = time.monotonic()
        if self._running:
            self._total += now - self._since
        self._since, self._running = now, running

    def seconds(self) -> float:
        return self._total + (time.monotonic() - self._since if self._running else 0.0)
