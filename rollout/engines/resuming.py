"""Wraps any engine so that a generation survives being aborted: what a pause or an update cut off is continued from where
it was, across weights and versions, under one budget.

Owns what must not start afresh with the second request: the number of tokens left, stop texts that lie across a cut, the
seed. Waits for nothing but the engine, and for at most `timeout` seconds.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

from agentrl.engine import Completion, Engine, EngineError, EngineState, Finish, GenerateRequest, PauseMode
from agentrl.weights import WeightUpdate

from .generation import Decode

WAIT_S = (0.01, 0.5)
"""First and longest wait after an engine has answered "abort" without a single id: it may do so as long as it is paused."""


class ResumingEngine:
    """An engine whose `generate` never ends with "abort".

    decode: ids to text; needed for requests with stop texts, since a text may be cut in two.
    reseed: for engines whose random numbers begin anew with each request (vLLM, SGLang): a continuation gets a seed of its
    own, so that it does not repeat the numbers of the first part. False for the embedded engine, whose numbers go by
    position: there a seeded generation that was cut is the one that was not.
    timeout: seconds for one generation, continuations and pauses included.
    """

    def __init__(self, engine: Engine, *, decode: Decode | None = None, reseed: bool = True, timeout: float = 3600.0) -> None:
        self._engine = engine
        self._decode = decode
        self._reseed = reseed
        self._timeout = timeout
        self._resumed = 0

    @property
    def state(self) -> EngineState:
        return self._engine.state

    @property
    def version(self) -> int:
        return self._engine.version

    @property
    def max_context(self) -> int:
        return self._engine.max_context

    async def generate(self, request: GenerateRequest) -> Completion:
        """Raises EngineError also when the deadline has passed. Cancelling it cancels what runs in the engine."""
        if request.sampling.stop and self._decode is None:
            raise EngineError("stop texts may be cut in two by an abort: ResumingEngine needs decode=tokenizer.decode")
        try:
            async with asyncio.timeout(self._timeout) as deadline:
                return await self._generate(request)
        except TimeoutError:
            if not deadline.expired():
                raise
            raise EngineError(f"a generation and its continuations took more than {self._timeout:g} s") from None

    async def _generate(self, request: GenerateRequest) -> Completion:
        whole = await self._engine.generate(request)
        wait, longest = WAIT_S
        while (finish := self._finish(request, whole)) == "abort":
            self._resumed += 1
            rest = await self._engine.generate(self._continuation(request, whole))
            if not rest.ids and rest.finish == "abort":
                await asyncio.sleep(wait)
                wait = min(2 * wait, longest)
            whole = self._cut_at_stop(request, _joined(whole, rest), first=len(whole.ids) + 1)
        return replace(whole, finish=finish)

    def _finish(self, request: GenerateRequest, whole: Completion) -> Finish:
        """What the whole ended with. An abort that came with the last id of all is no abort."""
        if len(whole.ids) > request.max_new_tokens:
            raise EngineError(f"the engine gave {len(whole.ids)} ids for a budget of {request.max_new_tokens}")
        if whole.finish != "abort":
            return whole.finish
        if whole.ids and whole.ids[-1] in request.sampling.stop_ids:
            return "stop"
        return "length" if len(whole.ids) == request.max_new_tokens else "abort"

    def _continuation(self, request: GenerateRequest, whole: Completion) -> GenerateRequest:
        """The rest of the request: everything sampled so far is prompt now, and spent."""
        sampling = request.sampling
        if self._reseed and sampling.seed is not None:
            sampling = replace(sampling, seed=_next_seed(sampling.seed, len(whole.ids)))
        return replace(
            request,
            prompt_ids=request.prompt_ids + whole.ids,
            max_new_tokens=request.max_new_tokens - len(whole.ids),
            sampling=sampling,
        )

    def _cut_at_stop(self, request: GenerateRequest, whole: Completion, first: int) -> Completion:
        """The engine has seen the parts alone. Ends the whole at the first length, from `first` on, that holds a stop text."""
        if not request.sampling.stop or self._decode is None:
            return whole
        if not _holds(self._decode, whole.ids, request.sampling.stop):
            return whole
        length = next(n for n in range(first, len(whole.ids) + 1) if _holds(self._decode, whole.ids[:n], request.sampling.stop))
        return replace(
            whole,
            ids=whole.ids[:length],
            logprobs=whole.logprobs[:length],
            versions=whole.versions[:length],
            finish="stop",
        )

    async def pause(self, mode: PauseMode) -> None:
        await self._engine.pause(mode)

    async def resume(self) -> None:
        await self._engine.resume()

    async def update_weights(self, update: WeightUpdate) -> int:
        return await self._engine.update_weights(update)

    async def sleep(self, level: Literal["cache", "weights"]) -> None:
        await self._engine.sleep(level)

    async def wake(self) -> None:
        await self._engine.wake()

    def metrics(self) -> Mapping[str, float]:
        """The engine's, and `resumed`: continuations since the last call."""
        resumed, self._resumed = self._resumed, 0
        return {**self._engine.metrics(), "resumed": float(resumed)}

    async def aclose(self) -> None:
        await self._engine.aclose()


def _joined(first: Completion, rest: Completion) -> Completion:
    return Completion(
        ids=first.ids + rest.ids,
        logprobs=first.logprobs + rest.logprobs,
        versions=first.versions + rest.versions,
        finish=rest.finish,
        cached_tokens=first.cached_tokens,
    )


def _holds(decode: Decode, ids: Sequence[int], stops: Sequence[str]) -> bool:
    text = decode(list(ids))
    return any(stop in text for stop in stops)


def _next_seed(seed: int, taken: int) -> int:
    """[0, 2^63): another stream for each place a generation can be cut at."""
    digest = hashlib.blake2b(f"{seed} {taken}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1
