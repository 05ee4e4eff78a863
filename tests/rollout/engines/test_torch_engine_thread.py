"""The embedded engine's thread: it dies loudly, hangs for nobody, blocks no event loop, and serves several."""

import asyncio
import sys
import threading
import time
from typing import Any

import pytest
import torch

from agentrl.engine import Completion, EngineDead, EngineError, EngineState
from agentrl.rollout.engines.torch_engine import TorchEngine
from agentrl.rollout.engines.worker import SWITCH_S
from tests.support.clock import Clock
from tests.support.tiny_models import CONTEXT, hf_greedy, prompt, tiny
from tests.support.torch_engines import Gate, greedy, run, serving
from tests.support.wait import until


def test_a_crash_fails_everyone_with_its_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with serving(slots=1) as engine:
            monkeypatch.setattr(engine._replica, "forward", lambda *args: 1 / 0)
            calls = [asyncio.create_task(engine.generate(greedy(prompt(9)))) for _ in range(3)]
            results = await asyncio.gather(*calls, return_exceptions=True)
            assert [type(r) for r in results] == [EngineDead] * 3
            assert all(isinstance(r.__cause__, ZeroDivisionError) for r in results)
            assert engine.state is EngineState.CLOSED
            for later in (engine.generate(greedy((1,))), engine.pause("keep"), engine.pause("wait"), engine.resume()):
                with pytest.raises(EngineDead, match="ZeroDivisionError") as caught:
                    await later
                assert isinstance(caught.value.__cause__, ZeroDivisionError)

    run(test)


def test_closing_fails_what_runs_and_may_be_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with serving(slots=1) as engine:
            gate = Gate(engine, monkeypatch)
            calls = [asyncio.create_task(engine.generate(greedy(prompt(9)))) for _ in range(2)]
            await gate.steps(1)
            await engine.aclose()
            for call in calls:
                with pytest.raises(EngineDead, match="closed"):
                    await call
            await engine.aclose()
            assert engine.state is EngineState.CLOSED
            assert not engine._worker._thread.is_alive()

    run(test)


def test_a_slow_generation_fails_alone_and_a_hung_step_is_death(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, hang, entered = Clock(monkeypatch), threading.Event(), threading.Event()

    def stuck_in_a_step(*_: Any) -> None:
        entered.set()
        hang.wait(60)

    async def test() -> None:
        async with serving(slots=2) as engine:
            with monkeypatch.context() as patch:
                Gate(engine, patch)  # no step is ever taken, but the thread lives
                slow = await begun(engine)
                clock.let_pass(700.0)
                while engine._worker.silent() > 600:  # it is seen again before anyone asks
                    time.sleep(0.001)  # noqa: ASYNC251
                with pytest.raises(EngineError, match="of an engine that lives") as caught:
                    await slow
                assert not isinstance(caught.value, EngineDead)
            assert (await engine.generate(greedy(prompt(9)))).finish == "length"
            monkeypatch.setattr(engine._replica, "forward", stuck_in_a_step)
            stuck = asyncio.create_task(engine.generate(greedy(prompt(9))))
            assert await asyncio.to_thread(entered.wait, 60)
            waiting = asyncio.create_task(engine.pause("keep"))  # the thread will never come to it
            await asyncio.sleep(0)
            clock.let_pass(700.0)
            for call in (stuck, waiting):
                with pytest.raises(EngineDead, match="not come back from one step"):
                    await call
            with pytest.raises(EngineDead):
                await engine.generate(greedy(prompt(9)))
            hang.set()

    asyncio.run(test())


async def begun(engine: TorchEngine) -> asyncio.Task[Completion]:
    """A generation that the engine's thread has taken up."""
    task = asyncio.create_task(engine.generate(greedy(prompt(9))))
    await until(lambda: engine.metrics()["queued"] == 1)
    return task


def test_the_event_loop_is_never_blocked(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with serving() as engine:
            entered, release = threading.Event(), threading.Event()
            original = engine._replica.forward

            def slow(*args: Any) -> torch.Tensor:
                entered.set()
                assert release.wait(30)
                return original(*args)

            monkeypatch.setattr(engine._replica, "forward", slow)
            running = asyncio.create_task(engine.generate(greedy(prompt(9))))
            assert await asyncio.to_thread(entered.wait, 30)  # a pause before the step would have nothing to wait for
            pausing = asyncio.create_task(engine.pause("keep"))
            for _ in range(100):
                await asyncio.sleep(0)
            assert not pausing.done()
            release.set()
            await pausing
            await engine.resume()
            await running

    run(test)


def test_busy_python_threads_are_kept_from_starving_it() -> None:
    before = sys.getswitchinterval()

    async def test() -> None:
        for own, expected in ((0.005, SWITCH_S), (SWITCH_S / 5, SWITCH_S / 5)):
            sys.setswitchinterval(own)
            async with serving():
                assert sys.getswitchinterval() == pytest.approx(expected, abs=2e-6)  # Python cuts it to whole microseconds

    try:
        run(test)
    finally:
        sys.setswitchinterval(before)


def test_one_engine_serves_several_event_loops() -> None:
    model = tiny()
    engine = TorchEngine(model, slots=4, max_context=CONTEXT, threads=1)
    results: list[Completion] = []

    def loop() -> None:
        results.append(asyncio.run(engine.generate(greedy(prompt(9)))))

    threads = [threading.Thread(target=loop) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    asyncio.run(engine.aclose())
    assert [r.ids for r in results] == [hf_greedy(model, prompt(9), 12)] * 3
