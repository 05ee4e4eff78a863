"""Groups that are not good enough: which are replaced, masked or end the run, and how all is counted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentrl.engine import EngineError, GenerateRequest
from agentrl.episode import GroupState, RolloutError
from agentrl.tool import tool
from tests.support.clock import Clock
from tests.support.engine import FakeEngine, says
from tests.support.managed import managed, run, trained, versions
from tests.support.rollouts import Paid, drawn, draws
from tests.support.wait import until


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


def test_if_all_groups_are_equal_the_wait_ends_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        clock = Clock(monkeypatch)
        async with managed(tmp_path, says("1"), filter_groups=True) as (manager, store, _):
            waiting = asyncio.create_task(manager.next_batch(2))
            await until(lambda: store.dropped_reasons()["equal_rewards"] >= 3)
            clock.let_pass(30.0)
            with pytest.raises(
                RolloutError, match=r"waited .* of 20 s for 2 groups; 0 are finished; .*dropped so far: \d+ equal_rewards"
            ):
                await waiting

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


def test_groups_that_the_trainer_leaves_out_do_not_block_capacity(tmp_path: Path) -> None:
    async def main() -> None:
        async with managed(tmp_path, draws) as (manager, store, _):
            batch = await manager.next_batch(3)
            await manager.trained(batch[1:], step=1, version=0)
            assert store.dropped_reasons() == {"not_trained": 1}
            assert len(await manager.next_batch(3)) == 3

    run(main)


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
            assert (metrics["reward"], metrics["reward_std"], metrics["reward/env"]) == (0.5, 0.5, 0.5)
            assert (metrics["aborted"], metrics["truncated"], metrics["retried"], metrics["dropped"]) == (0, 0, 0, 0)
            assert (metrics["staleness_mean"], metrics["staleness_max"]) == (0, 0)
            assert metrics["loop_lag_s"] < 20
            assert manager.metrics()["episodes"] == 0

    run(main)
