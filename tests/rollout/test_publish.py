"""Publishing to one engine: the order of calls, the acknowledgement, and that a failure leaves it paused."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agentrl.engine import EngineError, EngineState
from agentrl.rollout.publish import EnginePublisher
from agentrl.weights import WeightUpdate
from tests.support.engine import FakeEngine, says


class Recording(FakeEngine):
    def __init__(self, acknowledges: Any = None) -> None:
        super().__init__(says("a"))
        self.acknowledges = acknowledges
        self.updates: list[WeightUpdate] = []

    async def update_weights(self, update: WeightUpdate) -> int:
        self.updates.append(update)
        if self.acknowledges is None:
            return await super().update_weights(update)
        if self.acknowledges == "never":
            await asyncio.sleep(60)
        self._state = EngineState.DIRTY
        if isinstance(self.acknowledges, Exception):
            raise self.acknowledges
        return int(self.acknowledges)


def publish(engine: FakeEngine, version: int = 3, *, timeout: float = 20.0, **more: Any) -> int:
    usual = {"mode": "keep", "export": None}
    return asyncio.run(EnginePublisher(engine, timeout=timeout, **{**usual, **more}).publish(version))


def test_pause_update_resume_and_the_version_served() -> None:
    engine = Recording()
    assert publish(engine, mode="abort") == 3
    assert engine.log == ["pause abort", "update 3", "resume"]
    assert (engine.version, engine.state) == (3, EngineState.RUNNING)
    assert engine.updates == [WeightUpdate(version=3, tensors=None)]


def test_tensors_of_the_backend_are_handed_over_by_name() -> None:
    engine = Recording()
    publish(engine, export=lambda: iter([("a.weight", 1), ("b.weight", 2)]))
    assert engine.updates[0].tensors == {"a.weight": 1, "b.weight": 2}


@pytest.mark.parametrize(
    ("acknowledges", "text"), [(2, "acknowledged version 2 instead of 3"), (EngineError("out of memory"), "out of memory")]
)
def test_an_update_that_fails_leaves_the_engine_paused(acknowledges: Any, text: str) -> None:
    engine = Recording(acknowledges)
    with pytest.raises(EngineError, match=text):
        publish(engine)
    assert "resume" not in engine.log


def test_a_good_update_after_a_failed_one_mends_the_engine() -> None:
    engine = Recording(EngineError("torn"))
    with pytest.raises(EngineError):
        publish(engine)
    engine.acknowledges = None
    assert publish(engine, 4) == 4
    assert engine.log == ["pause keep", "update 4", "resume"]


def test_an_engine_that_never_answers_is_an_error() -> None:
    with pytest.raises(EngineError, match=r"not acknowledged version 3 within 0.05 s"):
        publish(Recording("never"), timeout=0.05)


def test_an_engine_whose_cache_sleeps_is_woken_for_the_update() -> None:
    engine = Recording()

    async def asleep() -> int:
        await engine.pause("keep")
        await engine.sleep("cache")
        return await EnginePublisher(engine, mode="keep", export=None, timeout=20.0).publish(5)

    assert asyncio.run(asleep()) == 5
    assert engine.log == ["pause keep", "update 5", "resume"]
    assert engine.state is EngineState.RUNNING
