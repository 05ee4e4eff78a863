"""What a run is busy with, and for how long: seconds of each phase since the last look, also shown while they pass."""

from __future__ import annotations

import contextlib
import time
from collections import defaultdict
from collections.abc import Iterator

from agentrl.live import Watch


class Phases:
    """A stopwatch with names.

    >>> phases = Phases(watch)              # doctest: +SKIP
    >>> with phases("rollout"): ...         # doctest: +SKIP
    >>> phases.take()["time/rollout"]       # doctest: +SKIP
    12.3
    """

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._spent: defaultdict[str, float] = defaultdict(float)
        self._since = time.monotonic()

    @contextlib.contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        self._watch.phase(name)
        began = time.monotonic()
        try:
            yield
        finally:
            self._spent[name] += time.monotonic() - began
            self._watch.phase("")

    def take(self) -> dict[str, float]:
        """time/<phase> of each phase, and time/step in all, in seconds since the last call."""
        now = time.monotonic()
        out = {f"time/{name}": seconds for name, seconds in self._spent.items()}
        out["time/step"], self._since = now - self._since, now
        self._spent.clear()
        return out
