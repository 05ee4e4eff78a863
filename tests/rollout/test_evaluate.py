"""Evaluation: order, seeds apart from training's, a cap on what plays at once, and what is no measurement at all."""

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
from agentrl.record import Stats, passed, wilson
from agentrl.rollout.evaluate import evaluate
from agentrl.rollout.group import Start, play_group
from agentrl.scores import check_measured, score
from tests.support.engine import FakeEngine, says
from tests.support.episodes import Numbered, episode
from tests.support.rollouts import Paid, draws, limited, setup


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
) -> tuple[rl.Episode, ...]:
    held_out = Numbered().held_out(tasks)
    made = setup(engine, **more)
    return asyncio.run(evaluate(made, held_out, samples=samples, concurrency=concurrency, progress=progress))


def test_each_task_is_played_samples_times_in_order() -> None:
    seen = []
    episodes = run(draws, tasks=3, samples=2, progress=seen.append)
    assert [(e.task.id, e.index) for e in episodes] == [(f"h{n}", i) for n in range(3) for i in range(2)]
    assert len({e.id for e in episodes}) == len(seen) == 6
    assert {e.reward for e in episodes} <= {0.0, 1.0}


def test_at_most_so_many_play_at_once() -> None:
    engine = FakeEngine(draws, tick=0.001)
    run(engine, tasks=7, concurrency=3)
    assert engine.most_running == 3


def test_evaluation_repeats_itself_and_shares_no_seed_with_training() -> None:
    engine = FakeEngine(draws)
    first = run(engine)
    assert [e.transcripts for e in run(draws)] == [e.transcripts for e in first]
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
    result = score(0, episodes)
    assert (result.passed, result.episodes, result.aborted, result.pass_rate, result.reward) == (1, 2, 1, 0.5, 0.75)
    assert result.pass_interval == wilson(1, 2)


def test_what_an_environment_measures_is_averaged() -> None:
    class Measured(Paid):
        @rl.metric
        def length(self, episode: rl.Episode) -> float:
            return float(len(episode.messages[-1].text))

    row = Stats(run(says("0.25"), make_env=Measured)).row()
    assert row["metric/length"] == 4.0
    assert (row["pass_rate"], row["reward"], row["episodes"], row["turns"], row["turns_per_episode"]) == (0.0, 0.25, 4, 4, 1.0)


def test_a_broken_run_is_an_error_and_no_pass_rate_of_zero() -> None:
    broken = run(lambda _: EngineError("lost"))
    with pytest.raises(RolloutError, match=r"all 4 episodes .* aborted: 4 of 4 .* ended as engine_error: EngineError: lost"):
        check_measured(broken)
    with pytest.raises(EngineDead):
        run(lambda _: EngineDead("gone"))


def test_an_evaluation_in_which_no_prompt_fits_is_no_pass_rate_of_zero() -> None:
    episodes = run(draws, limits=limited(max_episode_tokens=5))
    assert {e.outcome for e in episodes} == {Outcome.MAX_TOKENS}
    with pytest.raises(
        RolloutError, match=r"nothing was sampled .*: 4 of 4 .* max_tokens: .* tokens.*; raise sampling.max_episode_tokens"
    ):
        check_measured(episodes)
    check_measured([*episodes, episode(0, 0)])  # one that was sampled says something


def test_answers_that_reach_their_budget_are_counted() -> None:
    """Of two turns the first is cut after 3 tokens; the second ends by itself."""

    class Two(rl.Env):
        def step(self, action: rl.Action) -> Any:
            return rl.done(reward=1.0) if action.raw == "1" else "Again."

    def script(request: rl.engine.GenerateRequest) -> str:
        return "1" if request.prompt_ids.count(4) > 1 else "12345"

    row = Stats(run(script, make_env=Two, limits=limited(max_new_tokens=3))).row()
    assert (row["turns"], row["answers_cut"], row["parse_errors"]) == (8, 4, 0)
