"""The episode's clock, on the time of its event loop."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agentrl.episode import Outcome
from agentrl.rollout.limits import Clock, LimitReached
from tests.support.clock import Clock as Time


def run(main: Any) -> None:
    asyncio.run(asyncio.wait_for(main(), 30))


def test_a_deadline_that_passes_says_what_took_too_long() -> None:
    async def main() -> None:
        with pytest.raises(LimitReached, match=r"turn 1 took longer than 0.05 s") as caught:
            async with Clock().deadline(0.05, "turn 1"):
                await asyncio.sleep(20)
        assert caught.value.outcome is Outcome.DEADLINE

    run(main)


def test_a_stopped_clock_keeps_what_was_left_of_every_deadline() -> None:
    async def main() -> None:
        clock, now = Clock(), asyncio.get_running_loop().time
        began = now()
        async with clock.deadline(50.0, "episode"), clock.deadline(20.0, "turn"):
            with clock.stopped():
                stopped = now()
                await asyncio.sleep(0.2)
                assert [scope.when() for scope in clock._scopes] == [None, None]
                waited = now() - stopped
            left = [(scope.when() or 0.0) - now() for scope in clock._scopes]
            ran = now() - began - waited
            assert left == [pytest.approx(50.0, abs=ran + 1e-6), pytest.approx(20.0, abs=ran + 1e-6)]

    run(main)


def test_of_overlapping_stops_the_last_starts_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    survived: list[str] = []

    async def main() -> None:
        time, clock = Time(monkeypatch), Clock()
        first, second = clock.stopped(), clock.stopped()
        async with clock.deadline(20.0, "turn"):
            first.__enter__()
            second.__enter__()
            first.__exit__(None, None, None)
            time.let_pass(1000.0)
            await asyncio.sleep(0.001)  # what is due now ends the turn
            survived.append("stopped")
            second.__exit__(None, None, None)
            time.let_pass(10.0)
            await asyncio.sleep(0.001)
            survived.append("what was left")
            time.let_pass(10.0)
            await asyncio.sleep(60)

    with pytest.raises(LimitReached, match="turn took longer than 20 s"):
        asyncio.run(main())
    assert survived == ["stopped", "what was left"]


def test_a_deadline_that_has_just_passed_is_not_moved() -> None:
    """Its cancellation is on the way, and reaches a task of the turn before the turn: then the clock is stopped once more."""

    async def main() -> None:
        clock, seen = Clock(), []

        async def beside() -> None:
            try:
                await asyncio.sleep(20)
            finally:
                with clock.stopped():
                    seen.extend(scope.expired() for scope in clock._scopes)

        async def turn() -> None:
            async with clock.deadline(0.05, "turn"), asyncio.TaskGroup() as group:
                group.create_task(beside())

        with pytest.raises(LimitReached):
            await turn()
        assert seen == [True]

    run(main)


def test_cancellation_while_the_clock_stands_still_passes() -> None:
    async def main() -> None:
        clock = Clock()

        async def wait() -> None:
            async with clock.deadline(20.0, "turn"):
                with clock.stopped():
                    await asyncio.sleep(20)

        task = asyncio.create_task(wait())
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not clock._scopes

    run(main)
