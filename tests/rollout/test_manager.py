"""The manager: what is in flight, how old it may be, what is dropped, and that every wait ends."""

from __future__ import annotations

import asyncio
import random
import shutil
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import agentrl as rl
from agentrl.engine import EngineDead, EngineError, GenerateRequest
from agentrl.episode import EpisodeGroup, GroupState, RolloutError
from agentrl.rollout.manager import RolloutManager, Schedule, oldest_version
from agentrl.rollout.store import GroupStore
from agentrl.tool import tool
from tests.support.engine import FakeEngine, says
from tests.support.episodes import Numbered, episode, group
from tests.support.rollouts import Paid, drawn, draws, schedule, setup
from tests.support.wait import until


@asynccontextmanager
async def managed(folder: Path, engine: Any, *, step: int = 0, version: int = 0, **more: Any) -> AsyncIterator[Any]:
    """(manager, store, engine)."""
    scheduled = {f.name: more.pop(f.name) for f in fields(Schedule) if f.name in more}
    tasks = more.pop("tasks", Numbered())
    engine = engine if isinstance(engine, FakeEngine) else FakeEngine(engine)
    made = setup(engine, **more)
    store = GroupStore(folder)
    async with RolloutManager(made, tasks, store, schedule=schedule(**scheduled), step=step, version=version) as manager:
        yield manager, store, engine
    store.close()


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(main(), 60))


def numbers(groups: Any) -> list[int]:
    return [g.number for g in groups]


def versions(groups: Any) -> set[int]:
    return {v for g in groups for e in g.episodes for t in e.transcripts for v in t.versions if v >= 0}


async def trained(manager: RolloutManager, engine: FakeEngine, batch: Any, step: int) -> None:
    await engine.update(step)
    await manager.trained(batch, step=step, version=step)


# Staleness 0.


def test_synchronous_steps_are_in_order_and_of_one_version(tmp_path: Path) -> None:
    async def main() -> None:
        async with managed(tmp_path, FakeEngine(draws, tick=0.001)) as (manager, store, engine):
            for step in range(4):
                batch = await manager.next_batch(3)
                assert numbers(batch) == [3 * step, 3 * step + 1, 3 * step + 2]
                assert versions(batch) == {step}
                assert [g.task for g in batch] == [Numbered().get(n) for n in numbers(batch)]
                assert engine.running == 0  # nothing is in flight while the trainer works
                assert store.counts()[GroupState.RUNNING] == 0
                await trained(manager, engine, batch, step + 1)
            assert store.counts()[GroupState.TRAINED] == 12

    run(main)


def test_the_same_seed_gives_the_same_batches(tmp_path: Path) -> None:
    async def transcripts(name: str, seed: int) -> list[Any]:
        async with managed(tmp_path / name, FakeEngine(draws, tick=0.0), seed=seed, filter_groups=True) as (
            manager,
            _,
            _engine,
        ):
            out = []
            for step in range(1, 4):
                batch = await manager.next_batch(2)
                out += [(g.number, [e.transcripts for e in g.episodes]) for g in batch]
                await manager.trained(batch, step=step, version=0)
            return out

    async def main() -> None:
        first = await transcripts("a", 1)
        assert await transcripts("b", 1) == first != await transcripts("c", 2)

    run(main)


def test_no_group_is_started_that_no_step_would_train(tmp_path: Path) -> None:
    async def main() -> None:
        async with managed(tmp_path, draws, staleness=3, steps=2) as (manager, store, engine):
            for step in (1, 2):
                await trained(manager, engine, await manager.next_batch(2), step)
            assert store.counts() == {GroupState.TRAINED: 4}
            with pytest.raises(RolloutError, match="none runs"):
                await manager.next_batch(2)

    run(main)


# Staleness > 0.


def test_capacity_is_refilled_at_each_update(tmp_path: Path) -> None:
    async def main() -> None:
        async with managed(tmp_path, FakeEngine(draws, tick=0.001), staleness=2) as (manager, store, engine):
            for step in range(1, 5):
                batch = await manager.next_batch(2)
                await trained(manager, engine, batch, step)
                counts = store.counts()
                assert counts[GroupState.RUNNING] + counts[GroupState.FINISHED] == 6  # (2 + 1) * 2

    run(main)


def test_max_groups_caps_what_is_in_flight(tmp_path: Path) -> None:
    async def main() -> None:
        async with managed(tmp_path, FakeEngine(draws, tick=0.001), staleness=3, max_groups=2) as (manager, _, engine):
            for step in range(1, 4):
                await trained(manager, engine, await manager.next_batch(3), step)
            assert engine.most_running == 4  # 2 groups of 2

    run(main)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    staleness=st.integers(0, 3),
    prompts=st.integers(1, 3),
    mode=st.sampled_from(["keep", "abort"]),
    seed=st.integers(0, 10**6),
)
def test_nothing_is_ever_older_than_the_bound(
    tmp_path_factory: pytest.TempPathFactory, staleness: int, prompts: int, mode: Any, seed: int
) -> None:
    rng = random.Random(seed)

    def script(request: GenerateRequest) -> str:
        length = random.Random(f"{seed} {request.session_id}").randrange(40)
        return "1" * (1 + length**2 // 25)  # mostly short, some very long

    async def main() -> None:
        engine = FakeEngine(script, tick=0.0005)
        async with managed(tmp_path_factory.mktemp("s"), engine, staleness=staleness) as (manager, store, _):
            seen: list[int] = []
            for step in range(1, 6):
                batch = await manager.next_batch(prompts)
                assert len(batch) == prompts
                assert all(step - 1 - staleness <= v <= step - 1 for v in versions(batch))
                seen += numbers(batch)
                await asyncio.sleep(rng.random() * 0.02)  # the trainer works
                counts = store.counts()
                assert counts[GroupState.RUNNING] + counts[GroupState.FINISHED] <= (staleness + 1) * prompts
                await engine.update(step, mode)
                await manager.trained(batch, step=step, version=step)
            assert len(seen) == len(set(seen)) == 5 * prompts
            assert manager.metrics()["staleness_max"] <= staleness

    run(main)


def test_episodes_go_on_over_an_update_and_keep_their_versions(tmp_path: Path) -> None:
    async def main() -> None:
        slow = FakeEngine(lambda r: "1" if r.session_id.startswith("g0") else "0" * 60, tick=0.002)
        async with managed(tmp_path, slow, staleness=4) as (manager, _, engine):
            mixed = 0
            for step in range(1, 4):
                batch = await manager.next_batch(1)
                for sampled in (e.transcript.segments[1] for g in batch for e in g.episodes):
                    assert len(sampled.ids) == len(sampled.logprobs) == len(sampled.versions)
                    assert list(sampled.versions) == sorted(sampled.versions)
                    mixed += len(set(sampled.versions)) > 1
                await trained(manager, engine, batch, step)
            assert mixed

    run(main)


def test_what_grew_too_old_is_dropped_counted_and_replaced(tmp_path: Path) -> None:
    async def main() -> None:
        class TwoTurns(Paid):
            """The first group's episodes take a second turn, which never ends while the version is below 2."""

            def step(self, action: rl.Action) -> Any:
                return rl.done(reward=1.0) if "first" not in action.text else "again"

        hold = asyncio.Event()

        class Held(FakeEngine):
            async def generate(self, request: GenerateRequest) -> Any:
                if "0" not in "".join(map(chr, request.prompt_ids)) or request.prompt_ids.count(4) < 2:
                    return await super().generate(request)
                await hold.wait()
                raise AssertionError("it should have been given up")

        def script(request: GenerateRequest) -> str:
            return "first" if "Task 0" in "".join(map(chr, request.prompt_ids)) else "1"

        async with managed(tmp_path, Held(script), make_env=TwoTurns, staleness=1) as (manager, store, engine):
            for step in (1, 2):
                batch = await manager.next_batch(1)
                assert 0 not in numbers(batch)
                await trained(manager, engine, batch, step)
            assert store.state(0) is GroupState.DROPPED
            assert store.dropped_reasons() == {"too_old": 1}
            assert manager.metrics()["dropped/too_old"] == 1
            await trained(manager, engine, await manager.next_batch(1), 3)
            await until(lambda: engine.running == 0)

    run(main)


def test_a_group_whose_age_shows_only_at_its_end_is_dropped_then(tmp_path: Path) -> None:
    """One generation that lasts over two updates: nobody can know that its first tokens are old before it ends."""

    async def main() -> None:
        engine = FakeEngine(lambda r: "0" * 120 if r.session_id.startswith("g0-") else "1", tick=0.002)
        async with managed(tmp_path, engine, staleness=1) as (manager, store, _):
            for step in (1, 2):
                batch = await manager.next_batch(1)
                assert numbers(batch) == [step]
                await trained(manager, engine, batch, step)
            assert store.state(0) is GroupState.RUNNING
            await until(lambda: store.state(0) is not GroupState.RUNNING)
            assert store.dropped_reasons() == {"too_old": 1}

    run(main)


def test_a_place_that_becomes_free_is_filled_while_the_trainer_works(tmp_path: Path) -> None:
    async def main() -> None:
        async with managed(tmp_path, draws, staleness=2, max_groups=1) as (manager, store, _):
            await manager.next_batch(1)
            await until(lambda: store.numbers(GroupState.FINISHED) == [0, 1, 2])

    run(main)


# Groups that are not good enough.


def test_groups_without_a_difference_are_replaced_in_the_same_version(tmp_path: Path) -> None:
    async def main() -> None:
        async with managed(tmp_path, FakeEngine(draws, tick=0.0), filter_groups=True) as (manager, store, engine):
            for step in (1, 2):
                batch = await manager.next_batch(3)
                assert len(batch) == 3
                assert all(len({e.reward for e in g.episodes}) == 2 for g in batch)
                assert versions(batch) == {step - 1}
                await trained(manager, engine, batch, step)
            dropped = store.numbers(GroupState.DROPPED)
            assert dropped  # half of all groups of two have equal rewards
            assert store.dropped_reasons() == {"equal_rewards": len(dropped)}
            assert manager.metrics()["dropped/equal_rewards"] == len(dropped)

    run(main)


def test_if_all_groups_are_equal_the_wait_ends_and_says_so(tmp_path: Path) -> None:
    async def main() -> None:
        async with managed(tmp_path, says("1"), filter_groups=True, step_timeout=0.3) as (manager, _, _engine):
            with pytest.raises(
                RolloutError, match=r"waited .* for 2 groups; 0 are finished; .*dropped so far: \d+ equal_rewards"
            ):
                await manager.next_batch(2)

    run(main)


def breaking(share: int) -> Callable[[GenerateRequest], Any]:
    """One request of `share` fails."""
    return lambda request: EngineError("lost a block") if drawn(request, share) == 0 else "1"


def test_aborted_episodes_are_masked_or_their_group_is_replaced(tmp_path: Path) -> None:
    async def main() -> None:
        for policy in ("mask", "drop"):
            async with managed(tmp_path / policy, breaking(4), on_abort=policy, max_abort_rate=1.0) as (manager, store, _):
                batch = await manager.next_batch(8)
                sizes = {len(g.usable) for g in batch}
                assert sizes == ({1, 2} if policy == "mask" else {2})
                assert all(len(g.episodes) == 2 for g in batch)
                assert bool(store.dropped_reasons()["aborted"]) == (policy == "drop")
                metrics = manager.metrics()
                assert metrics["aborted"] == metrics["aborted/engine_error"] > 0

    run(main)


def test_on_abort_stop_ends_the_run_with_the_reason(tmp_path: Path) -> None:
    async def main() -> None:
        async with managed(tmp_path, breaking(2), on_abort="stop") as (manager, _, _engine):
            with pytest.raises(RolloutError, match=r"was aborted \(engine_error\): EngineError: lost a block"):
                await manager.next_batch(8)

    run(main)


def test_too_many_aborted_episodes_stop_the_run_instead_of_looping(tmp_path: Path) -> None:
    async def main() -> None:
        async with managed(tmp_path, breaking(1), on_abort="drop") as (manager, _, _engine):
            with pytest.raises(RolloutError, match=r"8 of 8 episodes .*8 engine_error.*max_abort_rate=0.5; .*lost a block"):
                await manager.next_batch(4)

    run(main)


def test_retried_episodes_are_counted_apart(tmp_path: Path) -> None:
    async def main() -> None:
        async with managed(tmp_path, breaking(3), retries=20) as (manager, _, _engine):
            batch = await manager.next_batch(6)
            assert all(len(g.usable) == 2 for g in batch)
            metrics = manager.metrics()
            assert (metrics["episodes"], metrics["groups"]) == (12, 6)
            assert metrics["retried"] == metrics["aborted"] > 0

    run(main)


# Failures, deadlines, shutdown.


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


def test_the_deadline_says_who_waits_for_whom(tmp_path: Path) -> None:
    async def main() -> None:
        async with managed(tmp_path, FakeEngine(draws, tick=0.001), step_timeout=0.1) as (manager, _, engine):
            await engine.pause("keep")
            with pytest.raises(
                RolloutError,
                match=r"the trainer, at step 0, has waited 0.1 s of 0.1 s for 2 groups; 0 are finished; "
                r"2 run: group 0 \(0/2 episodes after 0 s\), group 1 .*; the engine is paused, at version 0",
            ):
                await manager.next_batch(2)

    run(main)


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


def test_groups_that_the_trainer_leaves_out_do_not_block_capacity(tmp_path: Path) -> None:
    async def main() -> None:
        async with managed(tmp_path, draws) as (manager, store, _):
            batch = await manager.next_batch(3)
            await manager.trained(batch[1:], step=1, version=0)
            assert store.dropped_reasons() == {"not_trained": 1}
            assert len(await manager.next_batch(3)) == 3

    run(main)


# Metrics.


def test_metrics_by_hand(tmp_path: Path) -> None:
    class Tooled(Paid):
        @tool
        def add(self, a: int) -> int:
            """Adds."""
            return a + 1

    call = '<call>{"name": "add", "arguments": {"a": 2}}</call>'

    def script(request: GenerateRequest) -> str:
        if request.prompt_ids.count(4) == 1:
            return call
        return "no number" if request.prompt_ids.count(4) == 2 else str(int("Task 1" in "".join(map(chr, request.prompt_ids))))

    async def main() -> None:
        async with managed(tmp_path, script, make_env=Tooled) as (manager, _, _engine):
            await manager.next_batch(2)
            metrics = manager.metrics()
            expected = {"episodes": 4, "groups": 2, "turns": 12, "tool_calls": 4, "tool_errors": 0, "parse_errors": 4}
            assert {name: metrics[name] for name in expected} == expected
            assert metrics["sampled_tokens"] == 4 * (len(call) + 1 + len("no number") + 1 + 2)
            assert (metrics["reward_mean"], metrics["reward_std"], metrics["reward/env"]) == (0.5, 0.5, 0.5)
            assert (metrics["aborted"], metrics["truncated"], metrics["retried"], metrics["dropped"]) == (0, 0, 0, 0)
            assert (metrics["staleness_mean"], metrics["staleness_max"]) == (0, 0)
            assert metrics["loop_lag_s"] < 20
            assert manager.metrics()["episodes"] == 0

    run(main)


def test_a_blocked_event_loop_is_measured(tmp_path: Path) -> None:
    async def main() -> None:
        async with managed(tmp_path, draws) as (manager, _, _engine):
            await asyncio.sleep(0.01)
            time.sleep(0.4)  # noqa: ASYNC251  (the fault to be seen)
            await asyncio.sleep(0.15)
            assert manager.metrics()["loop_lag_s"] > 0.2

    run(main)


# Going on after a kill. `killed` copies the folder while everything runs, as a kill would leave it.


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
            await until(lambda: manager._tally._counts["aborted"] == 1)
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


def test_the_oldest_version_is_of_what_would_be_trained() -> None:
    from agentrl.episode import Outcome

    broken = episode(0, 2, version=0, outcome=Outcome.ENV_ERROR)
    assert oldest_version(group(0, episode(0, 0, version=4), episode(0, 1, version=3), broken)) == 3
    assert oldest_version(EpisodeGroup(id="g", number=0, task=rl.Task(id="t"), episodes=(broken,))) is None
