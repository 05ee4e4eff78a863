"""The embedded engine: serves a transformers causal language model from a thread of the trainer's own process.

Consumes requests from any task of one or more event loops, produces completions into their futures. All work on tensors
is done by one daemon thread, which takes commands (requests, pause, updates) between two decode steps; no event loop is
ever blocked, and no lock is held while tensors are computed. The thread waits for commands only when there is nothing to
decode; a caller waits for its future, at most `request_timeout` seconds of running time.
"""

from __future__ import annotations

import asyncio
import operator
import queue
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import Any, Literal, TypeVar

import torch

from agentrl.engine import Completion, EngineDead, EngineError, EngineState, GenerateRequest, PauseMode
from agentrl.errors import UsageError
from agentrl.weights import WeightUpdate

from .generation import Decode, Generation
from .replica import Replica
from .scheduler import Scheduler
from .state import require

T = TypeVar("T")

JOIN_S = 60.0
"""Seconds that `aclose` waits for the step under way."""


class TorchEngine:
    """Continuous batching, prefix reuse, and weights shared with the trainer.

    model: a transformers causal language model. It stays the trainer's: publishing is `WeightUpdate(version=v)`.
    slots: sequences decoded together; more wait their turn. max_context: tokens of prompt and completion together.
    threads: of PyTorch in the engine's thread; 0 leaves PyTorch's own choice, all cores. version: of the weights now held.
    request_timeout: seconds of running time (pauses not counted) that one generation may take.
    decode: ids to text, needed for requests with stop texts only.
    packed: decode from copies in a faster layout, taken anew at every update (see `replica`); None: where that pays.
    store_tokens: how many tokens' keys and values of finished turns are kept; None: half of what the slots could hold.
    Raises UsageError when this model cannot be served as asked.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        *,
        slots: int = 64,
        max_context: int = 1024,
        threads: int = 0,
        version: int = 0,
        request_timeout: float = 600.0,
        decode: Decode | None = None,
        packed: bool | None = None,
        store_tokens: int | None = None,
    ) -> None:
        if slots < 1 or max_context < 2 or threads < 0 or version < 0 or request_timeout <= 0:
            raise UsageError(
                f"the engine needs slots >= 1, max_context >= 2, threads >= 0, version >= 0, request_timeout > 0; got "
                f"{slots=}, {max_context=}, {threads=}, {version=}, {request_timeout=}"
            )
        self._replica = Replica(model, packed=packed)
        _check_positions(model, max_context)
        capacity = slots * max_context // 2 if store_tokens is None else store_tokens
        self._scheduler = Scheduler(self._replica, slots=slots, store_tokens=capacity, version=version)
        self._max_context = max_context
        self._threads = threads
        self._timeout = request_timeout
        self._decode = decode
        self._state = EngineState.RUNNING
        self._draining: Future[None] | None = None
        self._death: EngineError | None = None
        self._clock = _RunningClock()
        self._commands: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name="agentrl-torch-engine", daemon=True)
        self._thread.start()

    @property
    def state(self) -> EngineState:
        return self._state

    @property
    def version(self) -> int:
        return self._scheduler.version

    @property
    def max_context(self) -> int:
        return self._max_context

    @property
    def packed(self) -> bool:
        """Whether it decodes from packed copies, so that the trainer may step while it runs."""
        return self._replica.packed

    def metrics(self) -> Mapping[str, float]:
        return self._scheduler.metrics()

    # Requests

    async def generate(self, request: GenerateRequest) -> Completion:
        self._check(request)
        require("generate", self._state)
        if len(request.prompt_ids) >= self._max_context:
            return Completion(ids=(), logprobs=(), versions=(), finish="length")
        generation = Generation(request, max_context=self._max_context, decode=self._decode)
        generation.future.add_done_callback(self._given_up)
        self._post(lambda: self._scheduler.add(generation), generation.future)
        return await self._in_time(generation.future)

    def _check(self, request: GenerateRequest) -> None:
        """A malformed request is refused here, before it can hurt those that run."""
        vocabulary, length = self._replica.vocabulary, len(request.prompt_ids)
        if length > self._max_context:
            raise EngineError(f"a prompt of {length} ids is longer than max_context={self._max_context}")
        for index, i in enumerate(request.prompt_ids):
            if not 0 <= _integer(i, index) < vocabulary:
                raise EngineError(f"prompt id {i} at index {index} lies outside the vocabulary of {vocabulary} ids")
        if request.media:
            raise EngineError("the embedded engine serves text only; the request holds media")
        if request.sampling.stop and self._decode is None:
            raise EngineError("stop texts need an engine built with decode=tokenizer.decode")
        if len(set(request.sampling.banned_ids) & set(range(vocabulary))) == vocabulary:
            raise EngineError("every id of the vocabulary is banned")

    def _given_up(self, future: Future[Completion]) -> None:
        if future.cancelled():
            self._commands.put(self._scheduler.reap)

    async def _in_time(self, future: Future[Completion]) -> Completion:
        """Waits for `request_timeout` seconds of running time, then tells a slow engine from a dead one."""
        deadline = self._clock.seconds() + self._timeout
        waiter = asyncio.wrap_future(future)
        try:
            while not waiter.done():
                left = deadline - self._clock.seconds()
                if left <= 0:
                    raise self._late()
                await asyncio.wait({waiter}, timeout=left)
            return waiter.result()
        finally:
            waiter.cancel()

    def _late(self) -> EngineError:
        silent = self._clock.silent()
        if silent < self._timeout:
            return EngineError(
                f"a generation took more than request_timeout={self._timeout:g} s; the engine is alive, but slow"
            )
        dead = EngineDead(f"the engine's thread has not come back from one step for {silent:.0f} s")
        self._die(dead)
        return dead

    # Commands

    async def pause(self, mode: PauseMode) -> None:
        if mode not in ("keep", "abort", "wait"):
            raise EngineError(f"there is no pause mode {mode!r}; valid: 'keep', 'abort', 'wait'")
        if mode == "wait":
            done: Future[None] = Future()
            self._post(lambda: self._begin_drain(done), done)
            await asyncio.wrap_future(done)
        else:
            await self._call(lambda: self._pause(mode))

    def _pause(self, mode: PauseMode) -> None:
        self._require("pause")
        if mode == "abort":
            self._scheduler.abort()
        self._enter(EngineState.PAUSED)

    def _begin_drain(self, done: Future[None]) -> None:
        try:
            self._require("pause")
        except EngineError as error:
            _settle(done, error)
        else:
            self._draining = done

    def _require(self, action: str) -> None:
        if self._draining is not None:
            raise EngineError(f"{action}: the engine is about to pause and waits for {len(self._scheduler.active)} generations")
        require(action, self._state)

    async def resume(self) -> None:
        await self._call(self._resume)

    def _resume(self) -> None:
        self._require("resume")
        self._enter(EngineState.RUNNING)

    async def update_weights(self, update: WeightUpdate) -> int:
        """With `tensors`, copies them into the shared parameters. A refused update changes nothing; one that breaks while it
        is copied leaves the engine DIRTY."""
        return await self._call(lambda: self._update(update))

    def _update(self, update: WeightUpdate) -> int:
        self._require("update_weights")
        if update.version < 0:
            raise EngineError(f"a policy version is at least 0, got {update.version}")
        if update.tensors is not None:
            self._replica.check(update.tensors)
        try:
            if update.tensors is not None:
                self._replica.load(update.tensors)
            self._replica.refresh()
        except Exception as error:
            self._enter(EngineState.DIRTY)
            raise EngineError(f"the update to version {update.version} broke half-way; send a whole one") from error
        self._scheduler.updated(update.version)
        self._enter(EngineState.PAUSED)
        return update.version

    async def sleep(self, level: Literal["cache", "weights"]) -> None:
        """cache: gives the KV cache back; held generations are computed again after `wake`. weights: refused, since the
        parameters are the trainer's."""
        if level not in ("cache", "weights"):
            raise EngineError(f"there is no sleep level {level!r}; valid: 'cache', 'weights'")
        if level == "weights":
            raise EngineError(
                "the embedded engine shares the trainer's parameters and cannot give them back; sleep('cache') can"
            )
        await self._call(self._sleep)

    def _sleep(self) -> None:
        self._require("sleep")
        self._scheduler.drop_cache()
        self._enter(EngineState.ASLEEP)

    async def wake(self) -> None:
        await self._call(self._wake)

    def _wake(self) -> None:
        self._require("wake")
        self._enter(EngineState.PAUSED)

    async def aclose(self) -> None:
        """Ends the thread; what still runs fails with EngineDead. May be called again."""
        self._commands.put(lambda: self._die(EngineDead("the engine was closed")))
        await asyncio.to_thread(self._thread.join, JOIN_S)
        if self._thread.is_alive():
            self._die(EngineDead(f"the engine was closed, but its thread has not come back from a step in {JOIN_S:g} s"))

    async def _call(self, action: Callable[[], T]) -> T:
        """Runs `action` in the engine's thread between two steps."""
        future: Future[Any] = Future()

        def command() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(action())
            except EngineError as error:
                future.set_exception(error)
            except BaseException as error:
                future.set_exception(EngineDead(f"the engine broke: {error!r}"))
                raise

        self._post(command, future)
        return await asyncio.wrap_future(future)

    def _post(self, command: Callable[[], None], future: Future[Any]) -> None:
        """Queues a command; `future` fails should the engine die before it comes to it."""
        self._commands.put(_Guarded(command, future))
        if self._death is not None:  # it may have died just before the command was queued
            _settle(future, self._dead())

    # The engine's thread

    def _serve(self) -> None:
        try:
            if self._threads:
                torch.set_num_threads(self._threads)
            with torch.inference_mode():
                while self._death is None:
                    self._turn()
        except BaseException as error:
            dead = EngineDead(f"the engine's thread died: {error!r}")
            dead.__cause__ = error
            self._die(dead)

    def _turn(self) -> None:
        """The commands that have come, then one step."""
        self._clock.beat()
        can_step = self._state is EngineState.RUNNING and (self._scheduler.busy or self._draining is not None)
        for command in self._take(wait=not can_step):
            command()
        if self._death is None and self._state is EngineState.RUNNING:
            if self._draining is not None:
                self._drain(self._draining)
            elif self._scheduler.busy:
                self._scheduler.step()

    def _drain(self, done: Future[None]) -> None:
        """Lets what runs come to its end and starts nothing; then the engine is paused."""
        if done.cancelled():  # whoever wanted the pause has given up
            self._draining = None
            return
        self._scheduler.step(admit=False)
        if not self._scheduler.active:
            self._draining = None
            self._enter(EngineState.PAUSED)
            _settle(done, None)

    def _take(self, *, wait: bool) -> list[Callable[[], None]]:
        commands = [self._commands.get()] if wait else []
        with suppress(queue.Empty):
            while True:
                commands.append(self._commands.get_nowait())
        return commands

    def _enter(self, state: EngineState) -> None:
        self._state = state
        self._clock.run(state is EngineState.RUNNING)

    def _dead(self) -> EngineDead:
        dead = EngineDead(str(self._death))
        dead.__cause__ = self._death.__cause__ if self._death else None
        return dead

    def _die(self, error: EngineDead) -> None:
        """Fails everyone who waits."""
        if self._death is None:
            self._death = error
        self._enter(EngineState.CLOSED)
        self._scheduler.fail(self._dead())
        if self._draining is not None:
            _settle(self._draining, self._dead())
        for command in self._take(wait=False):
            if isinstance(command, _Guarded):
                _settle(command.future, self._dead())


class _Guarded:
    """A command and the future that fails when it is never run."""

    __slots__ = ("command", "future")

    def __init__(self, command: Callable[[], None], future: Future[Any]) -> None:
        self.command, self.future = command, future

    def __call__(self) -> None:
        self.command()


class _RunningClock:
    """Seconds spent RUNNING, and since the thread was last seen between two steps."""

    def __init__(self) -> None:
        self._total, self._since = 0.0, time.monotonic()
        self._running = True
        self._beat = self._since

    def run(self, running: bool) -> None:
        now = time.monotonic()
        if self._running:
            self._total += now - self._since
        self._since, self._running = now, running
        self._beat = now

    def seconds(self) -> float:
        return self._total + (time.monotonic() - self._since if self._running else 0.0)

    def beat(self) -> None:
        self._beat = time.monotonic()

    def silent(self) -> float:
        return time.monotonic() - self._beat


def _settle(future: Future[Any], error: EngineError | None) -> None:
    with suppress(InvalidStateError):  # answered or cancelled meanwhile
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)


def _integer(value: Any, index: int) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise EngineError(f"prompt id {value!r} at index {index} is no integer") from None


def _check_positions(model: Any, max_context: int) -> None:
    config = model.config.get_text_config()
    limit = getattr(config, "max_position_embeddings", None)
    rope = getattr(config, "rope_parameters", None) or {}
    if rope.get("rope_type") == "longrope":  # beyond it, its frequencies depend on the longest sequence of the batch
        limit = rope.get("original_max_position_embeddings", limit)
    if limit is not None and max_context > limit:
        raise UsageError(f"max_context={max_context} is more than this model's {limit} positions; set it to at most {limit}")
