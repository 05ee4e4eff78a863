"""Rewards and metrics of a finished episode."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from agentrl.env import Env
from agentrl.episode import Episode, Outcome, Turn
from agentrl.errors import UsageError
from agentrl.reward import RewardError, metric, reward, score
from agentrl.sandbox import SandboxLost
from agentrl.task import Task
from agentrl.transcript import Transcript

EPISODE = Episode(
    id="g-0",
    group="g",
    index=0,
    task=Task(id="t", secret={"answer": 3}),
    seed=0,
    transcripts=(Transcript(),),
    turns=(Turn(reward=0.5), Turn(reward=0.25)),
    outcome=Outcome.TERMINATED,
)
QUIET = replace(EPISODE, turns=(Turn(), Turn()))


class Sandbox:
    def __init__(self) -> None:
        self.closed = False

    async def aclose(self) -> None:
        self.closed = True


class Pool:
    isolation = "none"

    def __init__(self) -> None:
        self.made: list[Sandbox] = []

    async def acquire(self) -> Sandbox:
        self.made.append(Sandbox())
        return self.made[-1]

    async def aclose(self) -> None: ...


class Graded(Env):
    @reward(weight=2.0)
    async def tests(self, episode, task, fresh):
        assert not fresh.closed
        return task.secret["answer"] / 4 + len(episode.turns)

    @reward(weight=0.5)
    def brief(self):
        return True

    @metric
    def turns(self, episode):
        return len(episode.turns)


def of(env: Env, episode: Episode = QUIET, pool: Pool | None = None):
    scored = asyncio.run(score(env, episode, pool))
    return scored.rewards, scored.metrics


def test_weights_metrics_and_what_a_reward_may_ask_for():
    pool = Pool()
    # tests: 2.0 * (3/4 + 2 turns) = 5.5; brief: 0.5 * True = 0.5
    assert of(Graded(), pool=pool) == ({"tests": 5.5, "brief": 0.5}, {"turns": 2.0})
    assert [sandbox.closed for sandbox in pool.made] == [True]


def test_rewards_of_turns_count_beside_them():
    rewards, _ = of(Graded(), EPISODE, Pool())
    assert rewards["env"] == 0.75
    assert of(Env(), EPISODE) == ({"env": 0.75}, {})
    assert of(Env(), QUIET) == ({"env": 0.0}, {})


def test_a_fresh_sandbox_without_a_spec_is_a_mistake_of_the_author():
    with pytest.raises(UsageError, match=r"'tests' asks for a fresh sandbox.*declares no SandboxSpec"):
        of(Graded())


@pytest.mark.parametrize("value", [None, "1", float("nan"), float("inf"), [1]])
def test_a_reward_is_a_finite_number(value):
    class Odd(Env):
        @reward()
        def odd(self):
            return value

    with pytest.raises(RewardError, match=r"'odd' gave .*finite number"):
        of(Odd())


def test_numbers_of_numpy_are_numbers():
    numpy = pytest.importorskip("numpy")

    class Soft(Env):
        @reward()
        def soft(self):
            return numpy.float32(0.5)

    assert of(Soft()) == ({"soft": 0.5}, {})


@pytest.mark.parametrize("raised", [KeyError("x"), TypeError("y"), RewardError("reward broke")])
def test_a_failing_reward_is_no_zero(raised):
    class Broken(Env):
        @reward()
        def broken(self, fresh):
            raise raised

    pool = Pool()
    with pytest.raises(RewardError, match="broke"):
        of(Broken(), pool=pool)
    assert pool.made[0].closed


def test_a_lost_sandbox_is_told_apart():
    class Unlucky(Env):
        @reward()
        async def unlucky(self, fresh):
            raise SandboxLost("gone")

    pool = Pool()
    with pytest.raises(SandboxLost):
        of(Unlucky(), pool=pool)
    assert pool.made[0].closed


def test_rewards_run_as_written_base_class_first_and_overridden_ones_once():
    seen = []

    class Base(Env):
        @reward()
        def second(self):
            seen.append("base second")
            return 0.0

        @reward()
        def first(self):
            seen.append("first")
            return 0.0

    class Child(Base):
        @reward(weight=3.0)
        def second(self):
            seen.append("child second")
            return 1.0

        @reward()
        def third(self):
            seen.append("third")
            return 0.0

    assert of(Child())[0] == {"second": 3.0, "first": 0.0, "third": 0.0}
    assert seen == ["child second", "first", "third"]


def test_a_reward_needs_no_brackets() -> None:
    class Plain:
        @reward
        def one(self) -> float:
            return 0.25

        @reward()
        def two(self) -> float:
            return 0.5

    marks = [getattr(f, "__agentrl_reward__", None) for f in (Plain.one, Plain.two)]
    assert marks == [1.0, 1.0]
    assert Plain().one() == 0.25
