"""How much an episode may take, and how a limit that is hit is said. The loop itself knows no limit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from agentrl.episode import Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Tokens and seconds. The number of turns is the environment's own `max_turns`.

    >>> Limits(max_new_tokens=96, max_episode_tokens=768, episode_timeout=300.0, turn_timeout=120.0).max_new_tokens
    96
    """

    max_new_tokens: int
    """Sampled in one turn."""
    max_episode_tokens: int
    """Of the whole conversation as the model sees it: prompt, actions and observations."""
    episode_timeout: float
    """Seconds from reset to the last turn; grading may take as long again."""
    turn_timeout: float
    """Seconds of one `reset`, or one `step` with its tools."""

    def __post_init__(self) -> None:
        if self.max_new_tokens < 1 or self.max_episode_tokens < 2:
            raise ValueError(
                f"an episode needs max_new_tokens >= 1 and max_episode_tokens >= 2, "
                f"got {self.max_new_tokens} and {self.max_episode_tokens}"
            )
        if self.episode_timeout <= 0 or self.turn_timeout <= 0:
            raise ValueError(f"timeouts are positive, got {self.episode_timeout} s and {self.turn_timeout} s")


class LimitReached(Exception):
    """A limit ends the episode: it is truncated, its reward counts."""

    def __init__(self, outcome: Outcome, text: str) -> None:
        super().__init__(text)
        self.outcome = outcome


@asynccontextmanager
async def deadline(seconds: float, what: str) -> AsyncIterator[None]:
    """Raises LimitReached(DEADLINE) when the body takes longer. A TimeoutError of the body itself passes unchanged."""
    try:
        async with asyncio.timeout(seconds) as scope:
            yield
    except TimeoutError as error:
        if scope.expired():
            raise LimitReached(Outcome.DEADLINE, f"{what} took longer than {seconds:g} s") from error
        raise
