"""The embedded engine: serves a transformers causal language model from a thread of the trainer's own process.

Consumes requests from any task of any event loop, produces completions into their futures. All work on tensors is done by
one daemon thread (`worker.py`), which takes commands (requests, pause, updates) between two decode steps; no event loop is
ever blocked. A caller waits at most `request_timeout` seconds of running time.
"""

from __future__ import annotations

import asyncio
import operator
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any, Literal

import torch

from agentrl.engine import Completion, EngineDead, EngineError, EngineState, GenerateRequest, PauseMode
from agentrl.errors import UsageError
from agentrl.weights import WeightUpdate

from .generation import Decode, Generation
from .probe import probe
from .replica import Replica
from .scheduler import Scheduler
from .state import require
from .worker import RunningClock, Worker, dead_again, settle

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
        probe(self._replica)
        capacity = slots * max_context // 2 if store_tokens is None else store_tokens
        self._scheduler = Scheduler(self._replica, slots=slots, store_tokens=capacity, version=version)
        self._max_context, self._timeout, self._decode = max_context, request_timeout, decode
        self._state = EngineState.RUNNING
        self._draining: Future[None] | None = None
        self._clock = RunningClock()
        self._worker = Worker(
            name="agentrl-torch-engine", threads=threads, ready=self._ready, work=self._step, died=self._buried
        )
        self._worker.start()

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
        self._worker.check_alive()
        require("generate", self._state)
        self._check(request)
        if len(request.prompt_ids) == self._max_context:
            return Completion(ids=(), logprobs=(), versions=(), finish="length")
        generation = Generation(request, max_context=self._max_context, decode=self._decode)
        generation.future.add_done_callback(self._given_up)
        self._worker.post(lambda: self._scheduler.add(generation), generation.future)
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
        if len(set(request.sampling.banned_ids).intersection(range(vocabulary))) == vocabulary:
            raise EngineError("every id of the vocabulary is banned")

    def _given_up(self, future: Future[Completion]) -> None:
        if future.cancelled():
            self._worker.post(self._scheduler.reap)

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
        silent = self._worker.silent()
        if silent < self._timeout:
            return EngineError(f"a generation took more than request_timeout={self._timeout:g} s of an engine that lives")
        dead = EngineDead(f"the engine's thread has not come back from one step for {silent:.0f} s")
        self._worker.die(dead)
        return dead_again(dead)

    # Commands

    async def pause(self, mode: PauseMode) -> None:
        if mode not in ("keep", "abort", "wait"):
            raise EngineError(f"there is no pause mode {mode!r}; valid: 'keep', 'abort', 'wait'")
        if mode == "wait":
            drained: Future[None] = Future()
            self._worker.post(lambda: self._begin_drain(drained), drained)
            await asyncio.wrap_future(drained)
        else:
            await self._worker.call(lambda: self._pause(mode))

    def _pause(self, mode: PauseMode) -> None:
        self._require("pause")
        if mode == "abort":
            self._scheduler.abort()
        self._enter(EngineState.PAUSED)

    def _begin_drain(self, drained: Future[None]) -> None:
        try:
            self._require("pause")
        except EngineError as error:
            settle(drained, error)
        else:
            self._draining = drained

    async def resume(self) -> None:
        await self._worker.call(self._resume)

    def _resume(self) -> None:
        self._require("resume")
        self._enter(EngineState.RUNNING)

    async def update_weights(self, update: WeightUpdate) -> int:
        """With `tensors`, copies them into the shared parameters. A refused update changes nothing; one that breaks while it
        is copied leaves the engine DIRTY."""
        return await self._worker.call(lambda: self._update(update))

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
            raise EngineError("the parameters are shared with the trainer and cannot be given back; sleep('cache') is legal")
        await self._worker.call(self._sleep)

    def _sleep(self) -> None:
        self._require("sleep")
        self._scheduler.drop_cache()
        self._enter(EngineState.ASLEEP)

    async def wake(self) -> None:
        await self._worker.call(self._wake)

    def _wake(self) -> None:
        self._require("wake")
        self._enter(EngineState.PAUSED)

    async def aclose(self) -> None:
        """Ends the thread; what still runs fails with EngineDead. May be called again."""
        await self._worker.stop(JOIN_S)

    # In the engine's thread

    def _require(self, action: str) -> None:
        if self._draining is not None and not self._draining.cancelled():
            raise EngineError(f"{action}: the engine is about to pause and waits for {len(self._scheduler.active)} generations")
        require(action, self._state)

    def _enter(self, state: EngineState) -> None:
        self._state = state
        self._clock.run(state is EngineState.RUNNING)

    def _ready(self) -> bool:
        return self._state is EngineState.RUNNING and (self._scheduler.busy or self._draining is not None)

    def _step(self) -> None:
        if self._draining is not None and self._draining.cancelled():  # whoever wanted the pause has given up
            self._draining = None
        self._scheduler.step(admit=self._draining is None)
        if self._draining is not None and not self._scheduler.active:
            self._enter(EngineState.PAUSED)
            settle(self._draining, None)
            self._draining = None

    def _buried(self, reason: EngineDead) -> None:
        """Fails everyone who waits."""
        self._enter(EngineState.CLOSED)
        self._scheduler.fail(lambda: dead_again(reason))
        if self._draining is not None:
            settle(self._draining, dead_again(reason))


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
