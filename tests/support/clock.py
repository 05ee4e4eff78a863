"""Seconds that pass when a test says so: a deadline is reached without waiting for it, and none by a machine that is slow."""

from __future__ import annotations

import time

import pytest


class Clock:
    """Moves `time.monotonic` ahead, which event loops go by as well, for the rest of the test.

    stopped: it does not move by itself either, so that a timer is due only when the test has let its time pass.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, stopped: bool = False) -> None:
        real = time.monotonic
        began = real()
        self._ahead = 0.0
        monkeypatch.setattr(time, "monotonic", lambda: (began if stopped else real()) + self._ahead)

    def let_pass(self, seconds: float) -> None:
        """To be called in the thread of the event loop, which looks at its timers when its tasks next wait."""
        self._ahead += seconds
