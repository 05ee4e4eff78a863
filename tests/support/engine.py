"""The scripted engine of the library, speaking in characters, with a few counters that tests look at.

Logprob of each sampled id: -0.5. A script may also give an exception, to be raised.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from agentrl.engine import Completion, Engine, GenerateRequest, PauseMode
from agentrl.rollout.engines.resuming import ResumingEngine
from agentrl.rollout.engines.scripted import ScriptedEngine
from agentrl.weights import WeightUpdate

from .chat import ASSISTANT, encode

Script = Callable[[GenerateRequest], Any]
"""What to say to a request: text (the end mark is added), or an exception to raise."""


class Characters:
    """A tokenizer with one id per character."""

    def encode(self, text: str, **_: Any) -> list[int]:
        return list(encode(text))

    def decode(self, token_ids: Sequence[int], **_: Any) -> str:
        return "".join(map(chr, token_ids))


class FakeEngine(ScriptedEngine):
    def __init__(self, script: Script, *, version: int = 0, max_context: int = 10_000, tick: float = 0.0) -> None:
        """tick: seconds per token."""
        super().__init__(
            self._said, tokenizer=Characters(), logprob=-0.5, token_s=tick, max_context=max_context, version=version
        )
        self.script = script
        self.log: list[str] = []
        self.running = 0
        self.most_running = 0
        self.emitted = 0

    def _said(self, request: GenerateRequest) -> str:
        said = self.script(request)
        if isinstance(said, BaseException):
            raise said
        return str(said)

    async def generate(self, request: GenerateRequest) -> Completion:
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            return await super().generate(request)
        finally:
            self.running -= 1

    def _take(self, token: int, request: GenerateRequest, ids: list[int], versions: list[int]) -> None:
        super()._take(token, request, ids, versions)
        self.emitted += 1

    async def pause(self, mode: PauseMode) -> None:
        self.log.append(f"pause {mode}")
        await super().pause(mode)

    async def resume(self) -> None:
        self.log.append("resume")
        await super().resume()

    async def update_weights(self, update: WeightUpdate) -> int:
        self.log.append(f"update {update.version}")
        return await super().update_weights(update)

    async def update(self, version: int, mode: PauseMode = "keep") -> None:
        """What a publisher does, in one."""
        await self.pause(mode)
        await asyncio.sleep(0.001)
        await self.update_weights(WeightUpdate(version=version))
        await self.resume()


def resuming(engine: Engine) -> ResumingEngine:
    """The engine as episodes see it."""
    return ResumingEngine(engine, decode=Characters().decode)


def says(*texts: str) -> Script:
    """Says the texts one after the other, by the number of turns that the prompt holds; the last one for ever."""

    def script(request: GenerateRequest) -> str:
        turn = request.prompt_ids.count(ASSISTANT) - 1
        return texts[min(turn, len(texts) - 1)]

    return script
