"""What a run is busy with, and for how long: wall and CPU seconds of each phase since the last look, also shown meanwhile."""

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
        self._cpu_since = time.process_time()

    @contextlib.contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        self._watch.phase(name)
        began, cpu_began = time.monotonic(), time.process_time()
        try:
            yield
        finally:
            self._spent[f"time/{name}"] += time.monotonic() - began
            self._spent[f"cpu/{name}"] += time.process_time() - cpu_began
            self._watch.phase("")

    def take(self) -> dict[str, float]:
        """time/<phase> and cpu/<phase> of each phase, and time/step and cpu/step in all: seconds since the last call.

        CPU seconds are this process's, all threads together; sandboxes are processes of their own.
        """
        now, cpu_now = time.monotonic(), time.process_time()
        out = dict(self._spent)
        out["time/step"], self._since = now - self._since, now
        out["cpu/step"], self._cpu_since = cpu_now - self._cpu_since, cpu_now
        self._spent.clear()
        return out
