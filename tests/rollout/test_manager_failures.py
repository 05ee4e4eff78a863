"""The manager's waits all end: dead engines, broken tasks and environments, deadlines, shutdown, a blocked event loop."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

import agentrl as rl
from agentrl.engine import EngineDead
from agentrl.episode import GroupState, RolloutError
from agentrl.rollout.lag import INTERVAL
from agentrl.rollout.manager import CLOSE_TIMEOUT
from tests.support.clock import Clock
from tests.support.engine import FakeEngine, says
from tests.support.episodes import Numbered
from tests.support.managed import managed, run, trained
from tests.support.rollouts import Paid, draws, limited
from tests.support.wait import until


async def kill(engine: FakeEngine) -> None:
    await until(lambda: engine.emitted > 20)
    await engine.die("the engine is gone")


def test_a_dead_engine_is_an_error_and_not_a_hang(tmp_path: Path) -> None:
    async def main() -> None:
        async with managed(tmp_path, FakeEngine(says("1" * 50), tick=0.001), retries=9) as (manager, _, engine):
            asyncio.create_task(kill(engine))  # noqa: RUF006
            with pytest.raises(RolloutError, match="playing failed: EngineDead: the engine is gone") as caught:
                await manager.next_batch(2)
            assert isinstance(caught.value.__cause__, EngineDead)

    run(main)


def test_a_failure_while_the_trainer_works_is_raised_at_its_next_wait(tmp_path: Path) -> None:
    async def main() -> None:
        engine = FakeEngine(draws, tick=0.001)
        async with managed(tmp_path, engine, staleness=1) as (manager, store, _):
            batch = await manager.next_batch(1)
            engine.script = lambda _: EngineDead("crashed")
            await manager.trained(batch, step=1, version=1)  # what is done is recorded all the same
            assert store.last_step == 1
            with pytest.raises(RolloutError, match="crashed"):
                await manager.next_batch(3)

    run(main)


def test_a_usage_error_is_raised_as_it_is(tmp_path: Path) -> None:
    class Boxed(Paid):
        sandbox = rl.SandboxSpec()

    async def main() -> None:
        async with managed(tmp_path, draws, make_env=Boxed) as (manager, _, _engine):
            with pytest.raises(rl.UsageError, match="no sandbox pool"):
                await manager.next_batch(2)

    run(main)


def test_a_broken_task_source_is_an_error(tmp_path: Path) -> None:
    class Broken(Numbered):
        def get(self, index: int) -> rl.Task:
            if index == 3:
                raise OSError("the file is gone")
            return super().get(index)

    async def main() -> None:
        async with managed(tmp_path, draws, tasks=Broken()) as (manager, _, engine):
            await trained(manager, engine, await manager.next_batch(2), 1)
            with pytest.raises(RolloutError, match="playing failed: OSError: the file is gone"):
                await manager.next_batch(2)

    run(main)


def test_the_deadline_says_who_waits_for_whom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        clock = Clock(monkeypatch)
        async with managed(tmp_path, draws) as (manager, _, engine):
            await engine.pause("keep")
            waiting = asyncio.create_task(manager.next_batch(2))
            await until(lambda: len(engine.requests) == 4)
            clock.let_pass(20.0)
            with pytest.raises(
                RolloutError,
                match=r"the trainer, at step 0, has waited 2\d\.\d s of 20 s for 2 groups; 0 are finished; "
                r"2 run: group 0 \(0/2 episodes after 2\d s\), group 1 .*; the engine is paused, at version 0",
            ):
                await waiting

    run(main)


def test_a_long_wait_says_now_and_then_who_waits_for_whom(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    patient = limited(episode_timeout=2000.0)

    def said() -> list[str]:
        return [text for text in caplog.messages if "waited" in text]  # the jumps in time are told as well

    async def main() -> None:
        clock = Clock(monkeypatch)
        async with managed(tmp_path, draws, limits=patient, step_timeout=2000.0) as (manager, _, engine):
            await engine.pause("keep")
            waiting = asyncio.create_task(manager.next_batch(2))
            await until(lambda: len(engine.requests) == 4)
            for times in (1, 2):
                clock.let_pass(61.0)
                await until(lambda times=times: len(said()) == times)
            await engine.resume()
            assert len(await waiting) == 2

    run(main)
    first, second = said()
    assert re.match(r"the trainer, at step 0, has waited [67]\d\.\d s of 2000 s for 2 groups; .* the engine is paused", first)
    assert re.match(r"the trainer, at step 0, has waited 1[23]\d\.\d s of 2000 s", second)


def test_asking_twice_without_training_is_said_at_once(tmp_path: Path) -> None:
    async def main() -> None:
        async with managed(tmp_path, draws) as (manager, _, _engine):
            await manager.next_batch(2)
            with pytest.raises(RolloutError, match="2 were handed over and not reported as trained"):
                await manager.next_batch(2)

    run(main)


def test_closing_frees_everything_and_wakes_the_waiting(tmp_path: Path) -> None:
    closed = []

    class Closing(Paid):
        async def close(self) -> None:
            closed.append(1)

    async def main() -> None:
        engine = FakeEngine(says("1" * 150), tick=0.01)
        async with managed(tmp_path, engine, make_env=Closing) as (manager, store, _):
            waiting = asyncio.create_task(manager.next_batch(2))
            await until(lambda: engine.running == 4)
            await manager.aclose()
            await manager.aclose()
            assert (engine.running, len(closed)) == (0, 4)
            with pytest.raises(RolloutError, match="closed"):
                await waiting
            assert store.numbers(GroupState.RUNNING) == [0, 1]

    run(main)


def test_an_environment_that_will_not_be_cancelled_does_not_hold_up_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        clock, release, begun = Clock(monkeypatch), asyncio.Event(), asyncio.Event()

        class Stubborn(Paid):
            async def step(self, action: rl.Action) -> rl.Step:
                begun.set()
                try:
                    await release.wait()
                except asyncio.CancelledError:
                    clock.let_pass(CLOSE_TIMEOUT + 1.0)
                    await release.wait()
                return rl.done()

        async with managed(tmp_path, draws, make_env=Stubborn, limits=limited(turn_timeout=500.0)) as (manager, _, _engine):
            waiting = asyncio.create_task(manager.next_batch(1))
            await begun.wait()
            with pytest.raises(RolloutError, match=r"group 0 did not close within 90 s"):
                await manager.aclose()
            with pytest.raises(RolloutError, match="the rollout manager is closed"):
                await waiting
            release.set()

    run(main)


def test_a_blocked_event_loop_is_measured_and_alarmed_while_episodes_are_played(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        clock = Clock(monkeypatch)
        async with managed(tmp_path, draws, limits=limited(episode_timeout=2000.0)) as (manager, _, engine):
            await engine.pause("keep")
            waiting = asyncio.create_task(manager.next_batch(2))
            await until(lambda: len(engine.requests) == 4)
            await asyncio.sleep(2 * INTERVAL)  # a look has begun while they are played
            clock.let_pass(10.0)
            await until(lambda: bool(caplog.messages))
            assert manager.metrics()["loop_lag_s"] > 9.0
            assert manager.metrics()["loop_lag_s"] < 9.0
            await engine.resume()
            await waiting

    run(main)
    assert re.match(
        r"something blocked the event loop for (9|1\d)\.\d s while episodes were being played in Paid;", caplog.messages[0]
    )
