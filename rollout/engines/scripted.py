"""The double of an engine: says what a script tells it to, token by token, with the states of a real one. No model.

For tests of everything that talks to an engine, and for playing an environment with a policy that is known: a script may
be a function of the request that answers with text, such as a task's reference solution. It differs from a real engine in
what it says, not in how: it can be paused, aborted in the middle, updated, and it can die. All in the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, Protocol

from agentrl.engine import Completion, EngineDead, EngineError, EngineState, Finish, GenerateRequest, PauseMode
from agentrl.weights import WeightUpdate

from .state import require

Answer = str | Sequence[int]
"""Text, or ids. A text is closed with the request's first stop id."""

Script = Callable[[GenerateRequest], Answer] | Iterable[Answer]
"""What to answer to a request: a function of it, or answers in the order of requests."""


class Tokenizer(Protocol):
    """What scripts of texts and requests with stop texts need; a Hugging Face tokenizer is one."""

    def encode(self, text: str, **kwargs: Any) -> list[int]: ...

    def decode(self, token_ids: list[int], **kwargs: Any) -> str: ...


class ScriptedEngine:
    """Answers from a script.

    >>> engine = ScriptedEngine([(5, 6, 7)])
    >>> asyncio.run(engine.generate(GenerateRequest(prompt_ids=(1,), max_new_tokens=2)))
    Completion(ids=(5, 6), logprobs=(0.0, 0.0), versions=(0, 0), finish='length', cached_tokens=0)

    script: see `Script`. tokenizer: for scripts that answer with text, and for stop texts.
    logprob: of every id; 0, since a script is certain. token_s: seconds that an id takes; between two ids it always lets
    others run. vocabulary: ids beyond it are refused, as a real engine does.
    `requests` holds every request that came, in order.
    """

    def __init__(
        self,
        script: Script,
        *,
        tokenizer: Tokenizer | None = None,
        logprob: float = 0.0,
        token_s: float = 0.0,
        vocabulary: int = 2**31 - 1,
        max_context: int = 2**20,
        version: int = 0,
    ) -> None:
        self._script = script if callable(script) else _in_order(script)
        self._tokenizer = tokenizer
        self._logprob, self._token_s = logprob, token_s
        self._vocabulary, self._max_context, self._version = vocabulary, max_context, version
        self._state = EngineState.RUNNING
        self._draining = False
        self._death: str | None = None
        self._aborts = 0
        """How often everything was aborted: a generation that began before the last time is to end."""
        self._rest: dict[tuple[int, ...], tuple[int, ...]] = {}
        """Prompt and partial answer of what was aborted -> what was left to say, should someone ask for it."""
        self._changed = asyncio.Condition()
        self._running = self._queued = 0
        self._counts = dict.fromkeys(("prompt_tokens", "cached_tokens", "sampled_tokens", "requests", "busy_s"), 0.0)
        self.requests: list[GenerateRequest] = []

    @property
    def state(self) -> EngineState:
        return self._state

    @property
    def version(self) -> int:
        return self._version

    @property
    def max_context(self) -> int:
        return self._max_context

    async def generate(self, request: GenerateRequest) -> Completion:
        require("generate", self._state)
        self._check(request)
        self.requests.append(request)
        self._counts["requests"] += 1
        began = self._aborts
        self._queued += 1
        try:
            await self._until(lambda: (self._state is EngineState.RUNNING and not self._draining) or self._aborts > began)
        finally:
            self._queued -= 1
        if self._aborts > began:
            return self._completion([], [], "abort")
        self._counts["prompt_tokens"] += len(request.prompt_ids)
        self._running += 1
        try:
            return await self._say(request, self._answer(request), began)
        finally:
            self._running -= 1
            await self._notify()

    def _check(self, request: GenerateRequest) -> None:
        if len(request.prompt_ids) > self._max_context:
            raise EngineError(f"a prompt of {len(request.prompt_ids)} ids is longer than max_context={self._max_context}")
        for i in request.prompt_ids:
            if not 0 <= i < self._vocabulary:
                raise EngineError(f"prompt id {i} lies outside the vocabulary of {self._vocabulary} ids")
        if request.sampling.stop and self._tokenizer is None:
            raise EngineError("stop texts need a ScriptedEngine with a tokenizer")

    def _answer(self, request: GenerateRequest) -> tuple[int, ...]:
        """All ids the script has for this request; the rest of them where it continues one that was aborted."""
        if request.prompt_ids in self._rest:
            return self._rest.pop(request.prompt_ids)
        answer = self._script(request)
        if not isinstance(answer, str):
            return tuple(answer)
        if self._tokenizer is None:
            raise EngineError("the script answers with text; give the ScriptedEngine a tokenizer")
        return (*self._tokenizer.encode(answer, add_special_tokens=False), *request.sampling.stop_ids[:1])

    async def _say(self, request: GenerateRequest, answer: tuple[int, ...], began: int) -> Completion:
        ids: list[int] = []
        versions: list[int] = []
        limit = min(request.max_new_tokens, self._max_context - len(request.prompt_ids))
        for token in answer[:limit]:
            await asyncio.sleep(self._token_s)
            await self._until(lambda: self._state is EngineState.RUNNING or self._aborts > began)
            if self._aborts > began:
                self._rest[request.prompt_ids + tuple(ids)] = answer[len(ids) :]
                return self._completion(ids, versions, "abort")
            self._take(token, request, ids, versions)
            if self._stops(token, request, ids):
                return self._completion(ids, versions, "stop")
        return self._completion(ids, versions, "stop" if len(answer) < limit else "length")

    def _take(self, token: int, request: GenerateRequest, ids: list[int], versions: list[int]) -> None:
        if token in request.sampling.banned_ids:
            raise EngineError(f"the script says id {token}, which the request bans")
        ids.append(token)
        versions.append(self._version)
        self._counts["sampled_tokens"] += 1

    def _stops(self, token: int, request: GenerateRequest, ids: list[int]) -> bool:
        if token in request.sampling.stop_ids:
            return True
        if not request.sampling.stop or self._tokenizer is None:
            return False
        text = self._tokenizer.decode(ids)
        return any(stop in text for stop in request.sampling.stop)

    def _completion(self, ids: list[int], versions: list[int], finish: Finish) -> Completion:
        return Completion(ids=tuple(ids), logprobs=(self._logprob,) * len(ids), versions=tuple(versions), finish=finish)

    # States

    async def pause(self, mode: PauseMode) -> None:
        self._require("pause")
        if mode not in ("keep", "abort", "wait"):
            raise EngineError(f"there is no pause mode {mode!r}; valid: 'keep', 'abort', 'wait'")
        if mode == "wait":
            self._draining = True
            try:
                await self._until(lambda: self._running == 0)
            finally:
                self._draining = False
        self._aborts += mode == "abort"
        await self._enter(EngineState.PAUSED)

    async def resume(self) -> None:
        self._require("resume")
        await self._enter(EngineState.RUNNING)

    async def update_weights(self, update: WeightUpdate) -> int:
        """Takes the version; a script has no weights."""
        self._require("update_weights")
        self._version = update.version
        await self._enter(EngineState.PAUSED)
        return update.version

    async def sleep(self, level: Literal["cache", "weights"]) -> None:
        self._require("sleep")
        await self._enter(EngineState.ASLEEP)

    async def wake(self) -> None:
        self._require("wake")
        await self._enter(EngineState.PAUSED)

    async def die(self, reason: str) -> None:
        """Does what a crash does: all calls that wait, and all later ones, raise EngineDead."""
        self._death = reason
        await self._enter(EngineState.CLOSED)

    async def aclose(self) -> None:
        if self._state is not EngineState.CLOSED:
            await self.die("the engine was closed")

    def metrics(self) -> Mapping[str, float]:
        counts, self._counts = self._counts, dict.fromkeys(self._counts, 0.0)
        return {**counts, "running": float(self._running), "queued": float(self._queued)}

    def _require(self, action: str) -> None:
        if self._draining:
            raise EngineError(f"{action}: the engine is about to pause and waits for {self._running} generations")
        require(action, self._state)

    async def _enter(self, state: EngineState) -> None:
        self._state = state
        await self._notify()

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def _until(self, condition: Callable[[], bool]) -> None:
        """Waits for a state; raises EngineDead when the engine dies first."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._death is not None or condition())
        if self._death is not None:
            raise EngineDead(self._death)


def _in_order(answers: Iterable[Answer]) -> Callable[[GenerateRequest], Answer]:
    rest, count = iter(answers), 0

    def answer(request: GenerateRequest) -> Answer:
        nonlocal count
        count += 1
        for item in rest:
            return item
        raise EngineError(f"the script has {count - 1} answers, this is request {count}")

    return answer
