"""The engine's side of an episode: budgets, seeds, and generations that a weight update interrupts.

Waits for: the engine, under the episode's deadline. Unblocked by: the engine's answer, EngineError, cancellation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from agentrl.engine import Completion, EngineError, Finish, GenerateRequest, Sampling
from agentrl.episode import Outcome
from agentrl.renderer import Renderer

from .limits import LimitReached, Limits
from .seeds import derive

ABORT_PAUSE = 0.01
"""Seconds before a generation that was aborted without any progress is asked for again: the engine is being updated."""


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
        parts: list[Completion] = []
        got = 0
        while True:
            part = await self._engine.generate(self._request(prompt, parts, budget - got))
            parts.append(part)
            got += len(part.ids)
            if part.finish != "abort" or got >= budget:
                break
            if not part.ids:
                await asyncio.sleep(ABORT_PAUSE)
        self._turn += 1
        return _join(parts, budget)

    def _budget(self, used: int) -> int:
        size = min(self._limits.max_episode_tokens, self._engine.max_context)
        room = min(self._limits.max_new_tokens, size - used)
        if room < 1:
            raise LimitReached(Outcome.MAX_TOKENS, f"the conversation has {used} tokens; an episode may have {size}")
        return room

    def _request(self, prompt: tuple[int, ...], parts: Sequence[Completion], room: int) -> GenerateRequest:
        """The rest of the turn. A continuation has a seed of its own: the first one's stream is spent."""
        seed = self._sampling.seed
        return GenerateRequest(
            prompt_ids=prompt + tuple(i for part in parts for i in part.ids),
            sampling=self._sampling if seed is None else replace(self._sampling, seed=derive(seed, self._turn, len(parts))),
            max_new_tokens=room,
            session_id=self._session_id,
        )


def _join(parts: Sequence[Completion], budget: int) -> Completion:
    """The parts of an interrupted generation as one. Raises EngineError when nothing, or more than asked, was sampled."""
    ids = tuple(i for part in parts for i in part.ids)
    if not 0 < len(ids) <= budget:
        raise EngineError(f"the engine sampled {len(ids)} tokens where 1 to {budget} were asked for")
    finish: Finish = "length" if parts[-1].finish == "abort" else parts[-1].finish
    return Completion(
        ids=ids,
        logprobs=tuple(x for part in parts for x in part.logprobs),
        versions=tuple(v for part in parts for v in part.versions),
        finish=finish,
        cached_tokens=parts[0].cached_tokens,
    )


def _union(first: tuple[int, ...], second: Sequence[int]) -> tuple[int, ...]:
    return tuple(dict.fromkeys((*first, *second)))
