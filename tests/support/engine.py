"""An engine that says what a function tells it to, one character per tick, with every state a real one has.

Logprob of the i-th sampled id of a completion: -0.5. Versions are stamped per token, at the tick that emits it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from agentrl.engine import Completion, EngineDead, EngineError, EngineState, Finish, GenerateRequest, PauseMode
from agentrl.weights import WeightUpdate

from .chat import ASSISTANT, END, encode

Script = Callable[[GenerateRequest], Any]
"""What to say to a request: text (the end mark is added), or an exception to raise. The turn so far is not in it."""


class FakeEngine:
    def __init__(self, script: Script, *, version: int = 0, max_context: int = 10_000, tick: float | None = None) -> None:
        self.script = script
        self.version = version
        self.max_context = max_context
        self.tick = tick
        """Seconds per token; None: the whole completion in one step of the event loop."""
        self.state = EngineState.RUNNING
        self.requests: list[GenerateRequest] = []
        self.log: list[str] = []
        self.running = 0
        self.most_running = 0
        self.emitted = 0
        self._aborts = 0
        self._go = asyncio.Event()
        self._go.set()

    async def generate(self, request: GenerateRequest) -> Completion:
        self.requests.append(request)
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            return await self._generate(request)
        finally:
            self.running -= 1

    async def _generate(self, request: GenerateRequest) -> Completion:
        start = len(request.prompt_ids) - request.prompt_ids[::-1].index(ASSISTANT)
        said = self.script(request)
        if isinstance(said, BaseException):
            raise said
        whole = (*encode(said), END)
        if request.prompt_ids[start:] != whole[: len(request.prompt_ids) - start]:
            raise EngineError("a continuation does not start with what was sampled")
        ids, versions = [], []
        finish: Finish = "length"
        aborts = self._aborts
        await self._ready()
        for token in whole[len(request.prompt_ids) - start :]:
            if self.tick is not None:
                await asyncio.sleep(self.tick)
                if self._aborts > aborts:
                    finish = "abort"
                    break
                await self._ready()
            ids.append(token)
            versions.append(self.version)
            self.emitted += 1
            if token in request.sampling.stop_ids:
                finish = "stop"
                break
            if len(ids) == request.max_new_tokens:
                break
        return Completion(ids=tuple(ids), logprobs=(-0.5,) * len(ids), versions=tuple(versions), finish=finish)

    async def _ready(self) -> None:
        await self._go.wait()
        if self.state is EngineState.CLOSED:
            raise EngineDead("the engine is gone")

    async def pause(self, mode: PauseMode) -> None:
        self.log.append(f"pause {mode}")
        self.state = EngineState.PAUSED
        self._aborts += mode == "abort"
        self._go.clear()

    async def resume(self) -> None:
        self.log.append("resume")
        self.state = EngineState.RUNNING
        self._go.set()

    async def update_weights(self, update: WeightUpdate) -> int:
        self.log.append(f"update {update.version}")
        self.version = update.version
        return update.version

    async def update(self, version: int, mode: PauseMode = "keep") -> None:
        """What a publisher does, in one."""
        await self.pause(mode)
        await asyncio.sleep(0.001)
        await self.update_weights(WeightUpdate(version=version))
        await self.resume()

    def die(self) -> None:
        self.state = EngineState.CLOSED
        self._go.set()

    def metrics(self) -> Mapping[str, float]:
        return {}

    async def sleep(self, level: str) -> None:
        self.state = EngineState.ASLEEP

    async def wake(self) -> None:
        self.state = EngineState.PAUSED

    async def aclose(self) -> None:
        self.die()


def says(*texts: str) -> Script:
    """Says the texts one after the other, by the number of turns that the prompt holds; the last one for ever."""

    def script(request: GenerateRequest) -> str:
        turn = request.prompt_ids.count(ASSISTANT) - 1
        return texts[min(turn, len(texts) - 1)]

    return script
