"""An episode that breaks: whose fault it is said to be, what is kept, what ends the run, and that all is closed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import agentrl as rl
from agentrl.engine import Completion, EngineDead, EngineError, GenerateRequest, Sampling
from agentrl.episode import Outcome
from agentrl.rollout.loop import play
from agentrl.sandbox import IsolationError, SandboxLost
from agentrl.tool import ToolCrash, tool
from tests.support.chat import CharRenderer
from tests.support.engine import FakeEngine
from tests.support.playing import CALL, TASK, Closing, run
from tests.support.rollouts import limited


class Broken(Closing):
    def __init__(self, error: BaseException, where: str = "step") -> None:
        self.error, self.where = error, where

    def reset(self, task: rl.Task) -> str:
        if self.where == "reset":
            raise self.error
        return "Hi"

    def step(self, action: rl.Action) -> rl.Step:
        if self.where == "step":
            raise self.error
        return rl.done(reward=1.0)

    async def close(self) -> None:
        await super().close()
        if self.where == "close":
            raise self.error


@pytest.mark.parametrize("where", ["reset", "step", "close"])
def test_an_exception_of_the_environment_aborts_the_episode(where: str) -> None:
    env = Broken(KeyError("lost"), where)
    episode = run(env, "a")
    assert (episode.outcome, episode.error, episode.rewards) == (Outcome.ENV_ERROR, "KeyError: 'lost'", {})
    assert episode.outcome.is_aborted
    assert env.closed == 1


def test_system_exit_of_user_code_does_not_end_the_run() -> None:
    assert run(Broken(SystemExit(3)), "a").outcome is Outcome.ENV_ERROR


def test_a_timeout_error_of_the_environment_is_not_our_deadline() -> None:
    assert run(Broken(TimeoutError("their server")), "a").outcome is Outcome.ENV_ERROR


def test_what_was_sampled_before_a_failure_is_kept_with_one_turn_for_each_action() -> None:
    episode = run(Broken(KeyError("lost")), "a")
    assert len(episode.turns) == 1
    assert [s.role for s in episode.transcript] == ["prompt", "sampled"]


@pytest.mark.parametrize("bad", ["", None])
def test_no_observation_and_no_end_is_an_error(bad: Any) -> None:
    class Silent(rl.Env):
        def step(self, action: rl.Action) -> Any:
            return bad

    episode = run(Silent(), "a")
    assert (episode.outcome, "no observation" in episode.error) == (Outcome.ENV_ERROR, True)


def test_a_reward_that_is_no_number_aborts() -> None:
    class Nan(rl.Env):
        def step(self, action: rl.Action) -> rl.Step:
            return rl.done(reward=float("nan"))

    assert run(Nan(), "a").outcome is Outcome.ENV_ERROR


def test_a_failing_reward_function_aborts_and_is_never_zero() -> None:
    class Graded(rl.Env):
        @rl.reward()
        def tests(self) -> float:
            raise ZeroDivisionError("grader")

    episode = run(Graded(), "a")
    assert (episode.outcome, episode.rewards) == (Outcome.ENV_ERROR, {})


class Tooled(Closing):
    def __init__(self, error: BaseException) -> None:
        self.error = error

    @tool
    def add(self, a: int, b: int) -> int:
        """Adds."""
        raise self.error


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (ZeroDivisionError("x"), Outcome.TOOL_CRASH),
        (ToolCrash("x"), Outcome.TOOL_CRASH),
        (SandboxLost("x"), Outcome.SANDBOX_LOST),
    ],
)
def test_a_tool_that_crashes_aborts(error: Exception, outcome: Outcome) -> None:
    env = Tooled(error)
    episode = run(env, CALL)
    assert (episode.outcome, env.closed) == (outcome, 1)
    assert "x" in episode.error


def test_an_engine_error_aborts() -> None:
    env = Closing()
    episode = run(env, engine=FakeEngine(lambda _: EngineError("out of blocks")))
    assert (episode.outcome, episode.error, env.closed) == (Outcome.ENGINE_ERROR, "EngineError: out of blocks", 1)


@pytest.mark.parametrize("error", [EngineDead("gone"), rl.UsageError("wrong"), IsolationError("no namespaces")])
def test_what_no_episode_can_survive_ends_the_run(error: Exception) -> None:
    env = Closing()
    with pytest.raises(type(error)):
        run(env, engine=FakeEngine(lambda _: error))
    assert env.closed == 1


@pytest.mark.parametrize(("count", "finish"), [(21, "length"), (0, "stop"), (5, "abort")])
def test_an_engine_that_does_not_do_what_was_asked_is_at_fault(count: int, finish: Any) -> None:
    class Odd:
        max_context = 100

        async def generate(self, request: GenerateRequest) -> Completion:
            return Completion(ids=(65,) * count, logprobs=(-1.0,) * count, versions=(0,) * count, finish=finish)

    limits = limited(max_new_tokens=20)
    coroutine = play(rl.Env(), Odd(), CharRenderer(), TASK, seed=0, sampling=Sampling(), limits=limits)
    assert asyncio.run(coroutine).outcome is Outcome.ENGINE_ERROR
