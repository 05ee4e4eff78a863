"""How one episode goes and ends, as its agents and its environment both see it: turns, and what is over stays over."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Any, NoReturn

from agentrl.episode import Outcome, Turn


class Over(Exception):
    """The episode has ended, as its `Ending` says. Passes through the author's code."""


@dataclass(slots=True)
class Draft:
    """A turn while it goes on: rewards may be added to it until the episode ends."""

    started_s: float
    sampled_s: float
    answer_cut: bool
    agent: str = ""
    ended_s: float | None = None
    reward: float = 0.0
    parse_error: str = ""
    tool_calls: int = 0
    tool_errors: int = 0

    def turn(self, now: float) -> Turn:
        values = {name: getattr(self, name) for name in Draft.__slots__}
        return Turn(**{**values, "ended_s": now if self.ended_s is None else self.ended_s})


class Ending:
    """Shared by the agents of an episode."""

    def __init__(self) -> None:
        self.outcome: Outcome | None = None
        """None while it goes on."""
        self.broken: Exception | None = None
        """What failed in an agent or its tools. An author's code may have caught it: it still decides."""
        self.drafts: list[Draft] = []
        """The turns of all agents, in their order."""
        self.busy: set[asyncio.Task[Any]] = set()
        """Who waits for an agent's answer: what an author has left running is cancelled at the end."""
        self._began = time.monotonic()

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._began

    def check(self) -> None:
        """Raises what has ended it."""
        if self.broken is not None:
            raise self.broken
        if self.outcome is not None:
            raise Over

    def end(self, outcome: Outcome) -> NoReturn:
        """Ends it. Raises Over."""
        self.outcome = self.outcome or outcome
        raise Over

    async def cancel_busy(self) -> None:
        """Cancels who still waits, and waits until they are gone."""
        left = [job for job in self.busy if job is not asyncio.current_task()]
        for job in left:
            job.cancel()
        if left:
            await asyncio.wait(left)
