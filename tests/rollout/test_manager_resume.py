"""Going on after a kill: nothing is sampled or trained twice. `played` copies the folder while everything runs, as a kill
would leave it."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest

from agentrl.engine import EngineError, GenerateRequest
from agentrl.episode import RolloutError
from agentrl.rollout.store import GroupStore
from tests.support.engine import FakeEngine, says
from tests.support.episodes import episode
from tests.support.managed import managed, numbers, run, trained
from tests.support.rollouts import draws
from tests.support.wait import until


async def played(folder: Path, steps: int, **more: Any) -> list[Any]:
    """The batches of a run that is then killed in the middle of the next step."""
    batches = []
    async with managed(folder, FakeEngine(draws, tick=0.001), **more) as (manager, _, engine):
        for step in range(1, steps + 1):
            batches.append(await manager.next_batch(2))
            await trained(manager, engine, batches[-1], step)
        await until(lambda: engine.running > 0 or more.get("staleness", 0) == 0)
        shutil.copytree(folder, folder.with_name("killed"))
    return batches


@pytest.mark.parametrize("staleness", [0, 2])
def test_batches_after_the_checkpoint_are_trained_again_from_disk(tmp_path: Path, staleness: int) -> None:
    async def main() -> None:
        before = await played(tmp_path / "run", 4, staleness=staleness)
        engine = FakeEngine(draws, version=1, tick=0.001)
        async with managed(tmp_path / "killed", engine, step=1, version=1, staleness=staleness) as (manager, store, _):
            for step in (2, 3, 4):
                again = await manager.next_batch(2)
                assert list(again) == before[step - 1]  # tokens, rewards, order, and the tasks with their secrets
                assert engine.requests == []  # none is sampled anew
                await trained(manager, engine, again, step)
            fresh = await manager.next_batch(2)
            await trained(manager, engine, fresh, 5)
            trained_twice = set(numbers(fresh)) & {n for batch in before for n in numbers(batch)}
            assert not trained_twice
            assert [b.step for b in store.trained_batches_after(0)] == [1, 2, 3, 4, 5]

    run(main)


def test_resuming_without_a_checkpoint_trains_everything_again(tmp_path: Path) -> None:
    async def main() -> None:
        before = await played(tmp_path / "run", 2)
        async with managed(tmp_path / "killed", draws) as (manager, _, engine):
            for step in (1, 2):
                batch = await manager.next_batch(2)
                assert list(batch) == before[step - 1]
                await trained(manager, engine, batch, step)

    run(main)


def test_finished_siblings_of_a_killed_group_are_kept(tmp_path: Path) -> None:
    store = GroupStore(tmp_path)
    kept = episode(0, 1, reward=0.75)
    store.started(0, task_id="t0", version=0)
    store.episode(0, kept)
    store.close()

    async def main() -> None:
        async with managed(tmp_path, draws) as (manager, _, engine):
            (resumed,) = await manager.next_batch(1)
            assert resumed.number == 0
            assert resumed.episodes[1] == kept
            assert len(engine.requests) == 1

    run(main)


@pytest.mark.parametrize("policy", ["stop", "drop", "mask"])
def test_a_run_that_aborted_episodes_ended_goes_on_once_the_cause_is_mended(tmp_path: Path, policy: Any) -> None:
    """Group 0 has one broken sibling and one that waits for ever, so that the kill finds it unfinished."""

    def breaks(request: GenerateRequest) -> Any:
        if request.session_id == "g0-0":
            return EngineError("the disk is full")
        return "1" if request.session_id != "g0-1" else "0" * 100

    async def main() -> None:
        async with managed(tmp_path, FakeEngine(breaks, tick=0.01), on_abort=policy, max_abort_rate=1.0) as (manager, _, _e):
            waiting = asyncio.create_task(manager.next_batch(1))
            await until(lambda: manager._tally._stats.counts["aborted"] == 1)
            if policy == "stop":
                with pytest.raises(RolloutError, match=r"g0-0 was aborted \(engine_error\): EngineError: the disk is full"):
                    await waiting
            waiting.cancel()
        async with managed(tmp_path, says("1"), on_abort=policy) as (manager, _, engine):
            (group,) = await manager.next_batch(1)
            assert (group.number, len(group.usable)) == (0, 2)
            assert sorted(request.session_id for request in engine.requests) == ["g0-0", "g0-1"]

    run(main)


def test_finished_groups_are_handed_over_and_too_old_ones_replaced(tmp_path: Path) -> None:
    store = GroupStore(tmp_path)
    for number, version in enumerate([0, 2]):
        store.started(number, task_id=f"t{number}", version=version)
        for index in range(2):
            store.episode(number, episode(number, index, version=version))
        store.finished(number)
    store.trained([1], step=1, version=1)  # steps 1 and 2, so that the checkpoint may be of step 2
    store.started(2, task_id="t2", version=2)
    store.episode(2, episode(2, 0, version=2))
    store.finished(2)
    store.trained([2], step=2, version=2)
    store.close()

    async def main() -> None:
        engine = FakeEngine(draws, version=2)
        async with managed(tmp_path, engine, step=2, version=2) as (manager, store, _):
            batch = await manager.next_batch(1)
            assert numbers(batch) == [3]
            assert store.dropped_reasons() == {"too_old": 1}

    run(main)


def test_another_batch_than_the_recorded_one_is_refused(tmp_path: Path) -> None:
    async def main() -> None:
        await played(tmp_path / "run", 2)
        async with managed(tmp_path / "killed", draws) as (manager, _, _engine):
            batch = await manager.next_batch(2)
            with pytest.raises(RolloutError, match=r"step 1 trains groups \[0, 1\] again"):
                await manager.trained(batch[:1], step=1, version=1)

    run(main)
