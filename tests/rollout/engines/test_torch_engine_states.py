"""The embedded engine's states: what each way to pause does to what runs, and which transitions are refused."""

import asyncio

import pytest

from agentrl.engine import EngineError, EngineState
from agentrl.weights import WeightUpdate
from tests.support.clock import Clock
from tests.support.tiny_models import hf_greedy, prompt, tiny
from tests.support.torch_engines import Gate, greedy, run, serving


def test_pause_abort_gives_what_there_is_to_each(monkeypatch: pytest.MonkeyPatch) -> None:
    model, ids = tiny(), prompt(20)
    expected = hf_greedy(model, ids, 12)

    async def test() -> None:
        async with serving(model, slots=1) as engine:
            gate = Gate(engine, monkeypatch)
            running = asyncio.create_task(engine.generate(greedy(ids)))
            queued = asyncio.create_task(engine.generate(greedy(ids)))
            await gate.steps(4)
            await engine.pause("abort")
            first, second = await running, await queued
            assert (first.ids, first.finish, first.versions) == (expected[:4], "abort", (0,) * 4)
            assert (second.ids, second.finish) == ((), "abort")
            assert engine.metrics()["running"] == engine.metrics()["queued"] == 0

    run(test)


def test_pause_keep_holds_and_goes_on_under_new_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    model, ids = tiny(), prompt(20)

    async def test() -> None:
        async with serving(model, slots=1) as engine:
            gate = Gate(engine, monkeypatch)
            running = asyncio.create_task(engine.generate(greedy(ids)))
            await gate.steps(4)
            await engine.pause("keep")
            gate.open()
            late = asyncio.create_task(engine.generate(greedy(ids, 2)))
            assert await engine.update_weights(WeightUpdate(version=7)) == 7
            await asyncio.sleep(0.05)
            assert not running.done()
            assert not late.done()
            await engine.resume()
            done = await running
            assert (done.ids, done.versions) == (hf_greedy(model, ids, 12), (0,) * 4 + (7,) * 8)
            assert (await late).versions == (7, 7)

    run(test)


def test_pause_wait_lets_running_ones_finish_and_starts_none(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with serving(slots=1) as engine:
            gate = Gate(engine, monkeypatch)
            running = asyncio.create_task(engine.generate(greedy(prompt(20))))
            await gate.steps(2)
            queued = asyncio.create_task(engine.generate(greedy(prompt(9))))
            pausing = asyncio.create_task(engine.pause("wait"))
            await gate.steps(1)
            assert not pausing.done()
            with pytest.raises(EngineError, match="about to pause"):
                await engine.pause("keep")
            gate.open()
            await pausing
            assert running.done()
            assert not queued.done()
            assert engine.state is EngineState.PAUSED
            await engine.resume()
            assert (await queued).finish == "length"

    run(test)


def test_a_pause_that_is_given_up_does_not_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with serving(slots=1) as engine:
            gate = Gate(engine, monkeypatch)
            running = asyncio.create_task(engine.generate(greedy(prompt(20))))
            await gate.steps(2)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(engine.pause("wait"), 0.05)
            gate.open()
            await running
            assert (await engine.generate(greedy(prompt(9)))).finish == "length"
            await engine.pause("keep")

    run(test)


def test_illegal_transitions_name_state_and_what_is_legal() -> None:
    async def test() -> None:
        async with serving() as engine:
            with pytest.raises(EngineError, match=r"resume needs .* paused, this one is running; legal now: pause"):
                await engine.resume()
            with pytest.raises(EngineError, match="wake needs an engine that is asleep"):
                await engine.wake()
            with pytest.raises(EngineError, match="update_weights needs an engine that is paused or dirty"):
                await engine.update_weights(WeightUpdate(version=1))
            with pytest.raises(EngineError, match="no pause mode 'now'"):
                await engine.pause("now")
            await engine.pause("keep")
            with pytest.raises(EngineError, match="pause needs an engine that is running, this one is paused"):
                await engine.pause("abort")
            with pytest.raises(EngineError, match="shared with the trainer"):
                await engine.sleep("weights")
            await engine.sleep("cache")
            assert engine.state is EngineState.ASLEEP
            with pytest.raises(EngineError, match="resume needs an engine that is paused, this one is asleep; legal now: wake"):
                await engine.resume()
            await engine.wake()
            await engine.resume()
            assert engine.state is EngineState.RUNNING

    run(test)


def test_cancelling_frees_the_slot_even_in_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with serving(slots=1) as engine:
            gate = Gate(engine, monkeypatch)
            running = asyncio.create_task(engine.generate(greedy(prompt(9), 200)))
            queued = asyncio.create_task(engine.generate(greedy(prompt(20), 200)))
            await gate.steps(2)
            await engine.pause("keep")
            running.cancel()
            queued.cancel()
            await asyncio.wait({running, queued})
            await engine.update_weights(WeightUpdate(version=1))  # a command later, the thread has seen it
            counts = engine.metrics()
            assert (counts["running"], counts["queued"]) == (0, 0)
            gate.open()
            await engine.resume()
            assert (await engine.generate(greedy(prompt(9)))).finish == "length"

    run(test)


def test_time_in_a_pause_does_not_count_against_the_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)

    async def test() -> None:
        async with serving(slots=1, request_timeout=600.0) as engine:
            gate = Gate(engine, monkeypatch)
            running = asyncio.create_task(engine.generate(greedy(prompt(9))))
            await gate.steps(1)
            await engine.pause("keep")
            clock.let_pass(700.0)
            await asyncio.sleep(0.01)  # its caller looks at the time
            assert not running.done()
            gate.open()
            await engine.resume()
            assert len((await running).ids) == 12

    asyncio.run(test())
