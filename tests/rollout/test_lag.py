"""How late the event loop is, on a clock that stands still: what is measured, and what is worth an alarm."""

from __future__ import annotations

import asyncio

import pytest

from agentrl.rollout.lag import ALARM, INTERVAL, LoopLag
from tests.support.clock import Clock

BLOCKED = (
    "something blocked the event loop for 6.0 s while episodes were being played in a maze; its async methods and tools must "
    "await, or be plain functions, which get a thread"
)


async def rounds() -> None:
    """A few rounds of the event loop, in which what is due is done."""
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("lag", "busy", "alarms"),
    [
        (ALARM + 1.0, [True, False], [BLOCKED]),
        (ALARM + 1.0, [False, True], []),
        (ALARM - 1.0, [True, True], []),
        (0.0, [True, True], []),
    ],
    ids=["those who played when it began", "nobody played", "short", "none"],
)
def test_a_loop_that_stands_still_is_measured_and_alarmed_where_it_hurts(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, lag: float, busy: list[bool], alarms: list[str]
) -> None:
    async def main() -> float:
        clock, looks = Clock(monkeypatch, stopped=True), LoopLag(lambda: busy.pop(0), lambda: "a maze")
        task = asyncio.create_task(looks.watch())
        await rounds()
        clock.let_pass(INTERVAL + lag)
        await rounds()
        task.cancel()
        return looks.drain()

    assert asyncio.run(main()) == pytest.approx(lag, abs=1e-6)
    assert caplog.messages == alarms


def test_the_worst_since_the_last_reading_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        clock, looks = Clock(monkeypatch, stopped=True), LoopLag(lambda: False, lambda: "a maze")
        task = asyncio.create_task(looks.watch())
        await rounds()
        for lag in (2.0, 9.0, 3.0):
            clock.let_pass(INTERVAL + lag)
            await rounds()
        assert looks.drain() == pytest.approx(9.0, abs=1e-6)
        assert looks.drain() == 0.0
        task.cancel()

    asyncio.run(main())
