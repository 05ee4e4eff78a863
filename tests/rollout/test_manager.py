"""The manager: what is in flight, how old it may be, and what grew too old."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import agentrl as rl
from agentrl.engine import GenerateRequest
from agentrl.episode import EpisodeGroup, GroupState, Outcome, RolloutError
from agentrl.rollout.manager import oldest_version
from tests.support.engine import FakeEngine
from tests.support.episodes import Numbered, episode, group
from tests.support.managed import managed, numbers, run, trained, versions
from tests.support.rollouts import Paid, draws
from tests.support.wait import until

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


def test_the_oldest_version_is_of_what_would_be_trained() -> None:
    broken = episode(0, 2, version=0, outcome=Outcome.ENV_ERROR)
    assert oldest_version(group(0, episode(0, 0, version=4), episode(0, 1, version=3), broken)) == 3
    assert oldest_version(EpisodeGroup(id="g", number=0, task=rl.Task(id="t"), episodes=(broken,))) is None
