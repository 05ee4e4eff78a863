"""What serves a policy for sampling: tokens in, tokens out.

Implementations live in `agentrl.rollout.engines`; `scripted.py` there is the double. Every wait on an engine has a
deadline: an engine that dies raises `EngineDead` in all pending calls.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal, Protocol

from agentrl.weights import WeightUpdate

Finish = Literal["stop", "length", "abort"]
PauseMode = Literal["keep", "abort", "wait"]


class EngineError(RuntimeError):
    """A request could not be served."""


class EngineDead(EngineError):
    """The engine is gone; no later call will be answered either."""


class EngineState(StrEnum):
    """RUNNING <-> PAUSED; PAUSED -> ASLEEP -> (wake) -> PAUSED; DIRTY after a failed update, left by a good one only."""

    RUNNING = "running"
    PAUSED = "paused"
    ASLEEP = "asleep"
    DIRTY = "dirty"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How tokens are drawn. The returned logprobs are those of the distribution really drawn from (after all of this)."""

    temperature: float = 1.0
    """0 means greedy; its logprobs are those of temperature 1."""
    top_p: float = 1.0
    top_k: int = 0
    """0 means all."""
    stop_ids: tuple[int, ...] = ()
    """The id that stops is part of the completion."""
    stop: tuple[str, ...] = ()
    """Texts that end the completion once they stand in its decoded text; the ids that make them up are kept."""
    banned_ids: tuple[int, ...] = ()
    """Never sampled: media placeholders, for one."""
    seed: int | None = None

    def __post_init__(self) -> None:
        if self.temperature < 0 or not 0 < self.top_p <= 1 or self.top_k < 0:
            raise ValueError(
                f"sampling needs temperature >= 0, 0 < top_p <= 1, top_k >= 0; "
                f"got temperature={self.temperature}, top_p={self.top_p}, top_k={self.top_k}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateRequest:
    """A request for one completion.

    >>> GenerateRequest(prompt_ids=(1, 2, 3), max_new_tokens=16).sampling.temperature
    1.0
    """

    prompt_ids: tuple[int, ...]
    sampling: Sampling = Sampling()
    max_new_tokens: int
    session_id: str = ""
    """Requests of one episode share it: a router keeps them where their prefix is cached."""
    media: tuple[Any, ...] = ()

    def __post_init__(self) -> None:
        if not self.prompt_ids:
            raise ValueError("a request needs at least one prompt id")
        if self.max_new_tokens < 1:
            raise ValueError(f"max_new_tokens must be at least 1, got {self.max_new_tokens}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """What was sampled. All lists have length [n]; n may be 0 when aborted at once."""

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    versions: tuple[int, ...]
    """The policy version that sampled each id, stamped by the engine at the moment of sampling."""
    finish: Finish
    cached_tokens: int = 0
    """Prompt tokens that were not computed again."""

    def __post_init__(self) -> None:
        if not len(self.ids) == len(self.logprobs) == len(self.versions):
            raise EngineError(
                f"a completion needs lists of one length: {len(self.ids)} ids, {len(self.logprobs)} logprobs, "
                f"{len(self.versions)} versions"
            )


class Engine(Protocol):
    """Serves one policy. Safe to call from many tasks of one event loop."""

    @property
    def state(self) -> EngineState: ...

    @property
    def version(self) -> int:
        """The policy version of the weights it holds."""
        ...

    @property
    def max_context(self) -> int:
        """Prompt and completion together may hold this many tokens."""
        ...

    async def generate(self, request: GenerateRequest) -> Completion:
        """Raises EngineError when the request cannot be served, EngineDead when the engine is gone. Cancelling the
        call frees what it held."""
        ...

    async def pause(self, mode: PauseMode) -> None:
        """keep: hold requests with their cache, to go on after `resume`. abort: end them now, with what they have and
        finish "abort". wait: let them finish, start none."""
        ...

    async def resume(self) -> None: ...

    async def update_weights(self, update: WeightUpdate) -> int:
        """Takes new weights and returns the version now served. Legal while PAUSED or DIRTY. Prefix caches of older
        weights are not served to later requests."""
        ...

    async def sleep(self, level: Literal["cache", "weights"]) -> None:
        """Gives memory back: the KV cache, or the weights too."""
        ...

    async def wake(self) -> None: ...

    def metrics(self) -> Mapping[str, float]:
        """Since the last call: prompt_tokens, cached_tokens, sampled_tokens, requests, busy_s; now: running, queued."""
        ...

    async def aclose(self) -> None: ...
