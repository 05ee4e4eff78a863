"""Evaluation: rates and their interval by hand, seeds apart from training's, a cap on what plays at once."""

from __future__ import annotations

import asyncio
import math
from dataclasses import replace
from statistics import NormalDist
from typing import Any

import pytest

import agentrl as rl
from agentrl.engine import EngineDead, EngineError
from agentrl.episode import Outcome, RolloutError
from agentrl.record import passed, wilson
from agentrl.rollout.evaluate import EvalResult, evaluate, summarize
from agentrl.rollout.group import Start, play_group
from tests.support.engine import FakeEngine, says
from tests.support.episodes import Numbered, episode
from tests.support.rollouts import Paid, draws, setup


@pytest.mark.parametrize(("good", "total"), [(8, 10), (0, 10), (10, 10), (60, 200), (1, 1)])
def test_wilsons_interval_is_where_the_score_test_turns(good: int, total: int) -> None:
    """Its ends are the rates p that the observed one is just 1.96 standard deviations of p away from."""
    z = NormalDist().inv_cdf(0.975)
    rate, interval = good / total, wilson(good, total)
    assert interval[0] < interval[1]
    for p in interval:
        assert abs(rate - p) == pytest.approx(z * math.sqrt(p * (1 - p) / total), rel=1e-5, abs=1e-7)


def run(
    engine: Any, *, tasks: int = 4, samples: int = 1, concurrency: int = 8, progress: Any = None, **more: Any
) -> EvalResult:
    held_out = Numbered().held_out(tasks)
    made = setup(engine, **more)
    return asyncio.run(evaluate(made, held_out, samples=samples, concurrency=concurrency, progress=progress))


def test_each_task_is_played_samples_times_in_order() -> None:
    seen = []
    result = run(draws, tasks=3, samples=2, progress=seen.append)
    assert [(e.task.id, e.index) for e in result.episodes] == [(f"h{n}", i) for n in range(3) for i in range(2)]
    assert len({e.id for e in result.episodes}) == len(seen) == 6
    rewards = [e.reward for e in result.episodes]
    assert (result.mean_reward, result.passed, result.scored) == (sum(rewards) / 6, sum(rewards), 6)


def test_at_most_so_many_play_at_once() -> None:
    engine = FakeEngine(draws, tick=0.001)
    run(engine, tasks=7, concurrency=3)
    assert engine.most_running == 3


def test_evaluation_repeats_itself_and_shares_no_seed_with_training() -> None:
    engine = FakeEngine(draws)
    first = run(engine)
    assert [e.transcripts for e in run(draws).episodes] == [e.transcripts for e in first.episodes]
    trained = FakeEngine(draws)
    for number in range(4):
        start = Start(id="g", task=Numbered().get(number), size=4, number=number)
        asyncio.run(play_group(setup(trained), start, engine=trained, report=lambda *_: None))
    assert not {r.sampling.seed for r in engine.requests} & {r.sampling.seed for r in trained.requests}


def test_the_environment_may_say_what_passed() -> None:
    assert passed(episode(reward=1.0))
    assert not passed(episode(reward=0.99))
    assert passed(replace(episode(reward=0.1), metrics={"passed": 1.0}))
    assert not passed(replace(episode(reward=2.0), metrics={"passed": 0.0}))


def test_aborted_episodes_count_neither_way() -> None:
    episodes = [episode(0, 0), episode(1, 0, reward=0.5), episode(2, 0, outcome=Outcome.SANDBOX_LOST)]
    result = summarize(episodes, tasks=3, samples=1)
    assert (result.passed, result.scored, result.aborted, result.pass_rate, result.mean_reward) == (1, 2, 1, 0.5, 0.75)
    assert result.interval == wilson(1, 2)


def test_metrics_are_flat_and_averaged() -> None:
    class Measured(Paid):
        @rl.metric
        def length(self, episode: rl.Episode) -> float:
            return float(len(episode.messages[-1].text))

    metrics = run(says("0.25"), make_env=Measured).metrics()
    assert metrics["metric/length"] == 4.0
    assert (metrics["pass_rate"], metrics["reward_mean"], metrics["episodes"], metrics["turns_mean"]) == (0.0, 0.25, 4.0, 1.0)


def test_a_broken_run_is_an_error_and_no_pass_rate_of_zero() -> None:
    with pytest.raises(RolloutError, match=r"all 4 episodes .* aborted; the first: EngineError: lost"):
        run(lambda _: EngineError("lost"))
    with pytest.raises(EngineDead):
        run(lambda _: EngineDead("gone"))
