"""How late the event loop is: what blocks it holds up every episode, engine and deadline at once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

INTERVAL = 0.1
"""Seconds between two looks."""
ALARM = 5.0
"""Seconds of lag, while episodes are being played, that are worth a warning."""

log = logging.getLogger(__name__)


class LoopLag:
    """Runs as a task of its owner; `busy` says whether anybody suffers."""

    def __init__(self, busy: Callable[[], bool], env: Callable[[], str]) -> None:
        """`env`: the name of the environment that is played; asked for in an alarm only."""
        self._busy, self._env = busy, env
        self._worst = 0.0

    async def watch(self) -> None:
        """Until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            before, suffers = loop.time(), self._busy()
            await asyncio.sleep(INTERVAL)
            lag = loop.time() - before - INTERVAL
            self._worst = max(self._worst, lag)
            if lag > ALARM and suffers:
                log.warning(
                    "something blocked the event loop for %.1f s while episodes were being played in %s; its async methods and "
                    "tools must await, or be plain functions, which get a thread",
                    lag,
                    self._env(),
                )

    def drain(self) -> float:
        """The worst lag in seconds since the last call."""
        worst, self._worst = self._worst, 0.0
        return worst
