"""How much an episode may take, and how a limit that is hit is said. The loop itself knows no limit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
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
    """Seconds from reset to the last turn; grading may take as long again. Waiting for a free sandbox does not count."""
    turn_timeout: float
    """Seconds of one `reset`, or one `step` with its tools. Waiting for a free sandbox does not count."""

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


class Clock:
    """The time of one episode, as its deadlines count it: it stands still while the episode waits for what others hold.

    >>> async with clock.deadline(120.0, "turn 1"):     # doctest: +SKIP
    ...     with clock.stopped():
    ...         sandbox = await pool.acquire()
    """

    def __init__(self) -> None:
        self._scopes: dict[asyncio.Timeout, float] = {}  # open deadlines -> seconds left when the clock was stopped
        self._stops = 0

    @asynccontextmanager
    async def deadline(self, seconds: float, what: str) -> AsyncIterator[None]:
        """`limits.deadline`, less the time for which this clock stands still."""
        async with deadline(seconds, what) as scope:
            self._scopes[scope] = seconds
            try:
                yield
            finally:
                del self._scopes[scope]

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Stops the clock for the body; of bodies that overlap (parallel tools), the last to end starts it again."""
        self._stops += 1
        if self._stops == 1:
            self._stop()
        try:
            yield
        finally:
            self._stops -= 1
            if self._stops == 0:
                self._start()

    def _stop(self) -> None:
        now = asyncio.get_running_loop().time()
        for scope in self._pending():
            when = scope.when()
            assert when is not None, "a clock that runs has set every deadline"
            self._scopes[scope] = when - now
            scope.reschedule(None)

    def _start(self) -> None:
        now = asyncio.get_running_loop().time()
        for scope in self._pending():
            scope.reschedule(now + self._scopes[scope])

    def _pending(self) -> list[asyncio.Timeout]:
        """One that has passed already cannot be moved any more: its cancellation is on the way."""
        return [scope for scope in self._scopes if not scope.expired()]


@asynccontextmanager
async def deadline(seconds: float, what: str) -> AsyncIterator[asyncio.Timeout]:
    """Raises LimitReached(DEADLINE) when the body takes longer. A TimeoutError of the body itself passes unchanged."""
    try:
        async with asyncio.timeout(seconds) as scope:
            yield scope
    except TimeoutError as error:
        if scope.expired():
            raise LimitReached(Outcome.DEADLINE, f"{what} took longer than {seconds:g} s") from error
        raise
