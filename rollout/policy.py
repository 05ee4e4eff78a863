"""The engine's side of an episode: its budgets and seeds.

Waits for: the engine, under the episode's deadline. Unblocked by: the engine's answer, EngineError, cancellation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from agentrl.engine import Completion, EngineError, GenerateRequest, Sampling
from agentrl.episode import Outcome
from agentrl.renderer import Renderer

from .limits import LimitReached, Limits
from .seeds import derive


class Generates(Protocol):
    """The part of an engine that an episode needs."""

    @property
    def max_context(self) -> int: ...

    async def generate(self, request: GenerateRequest) -> Completion: ...


class Policy:
    """Samples one episode's turns."""

    def __init__(self, engine: Generates, renderer: Renderer, *, sampling: Sampling, limits: Limits, session_id: str) -> None:
        self._engine = engine
        self._limits = limits
        self._session_id = session_id
        self._sampling = replace(
            sampling,
            stop_ids=_union(sampling.stop_ids, renderer.stop_ids),
            banned_ids=_union(sampling.banned_ids, renderer.banned_ids),
        )
        self._turn = 0

    async def generate(self, prompt: tuple[int, ...]) -> Completion:
        """One turn's tokens. Raises LimitReached when there is no room for one, EngineError."""
        budget = self._budget(len(prompt))
        completion = await self._engine.generate(
            GenerateRequest(prompt_ids=prompt, sampling=self._seeded(), max_new_tokens=budget, session_id=self._session_id)
        )
        self._turn += 1
        if completion.finish == "abort":
            raise EngineError("the generation was aborted; wrap the engine in a ResumingEngine, which goes on with it")
        if not 0 < len(completion.ids) <= budget:
            raise EngineError(f"the engine sampled {len(completion.ids)} tokens where 1 to {budget} were asked for")
        return completion

    def _budget(self, used: int) -> int:
        size = min(self._limits.max_episode_tokens, self._engine.max_context)
        room = min(self._limits.max_new_tokens, size - used)
        if room < 1:
            raise LimitReached(Outcome.MAX_TOKENS, f"the conversation has {used} tokens; an episode may have {size}")
        return room

    def _seeded(self) -> Sampling:
        """Each turn has a stream of its own."""
        seed = self._sampling.seed
        return self._sampling if seed is None else replace(self._sampling, seed=derive(seed, self._turn))


def _union(first: tuple[int, ...], second: Sequence[int]) -> tuple[int, ...]:
    return tuple(dict.fromkeys((*first, *second)))
