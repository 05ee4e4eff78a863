"""agentrl's environments in gymnasium: its own check, seeds, rewards, tools, several agents; and many at once."""

from __future__ import annotations

import warnings
from typing import Any

import gymnasium
import pytest
from gymnasium.utils.env_checker import check_env

import agentrl as rl
from agentrl import registry
from agentrl.episode import RolloutError
from agentrl.errors import UsageError
from agentrl.gym import AnyText, TextEnv, gym_id, register
from agentrl.sandbox import IsolationError
from agentrl.vector import vector
from tests.support.isolation import missing


@pytest.mark.parametrize("name", sorted(registry.BUNDLED["env"]))
def test_each_bundled_environment_passes_gymnasiums_own_check(name: str) -> None:
    env = gymnasium.make(gym_id(registry.BUNDLED["env"][name]), render_mode="ansi")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            check_env(env.unwrapped)
    except IsolationError as error:
        missing(str(error))
    finally:
        env.close()


def test_a_game_of_guessing() -> None:
    env = gymnasium.make("agentrl/GuessNumber-v0", high=7, render_mode="ansi")
    first, info = env.reset(seed=3)
    assert (first, info) == ("I think of a whole number between 1 and 7. What is it?", {})
    low, high, answer, reward, over = 1, 7, "", 0.0, False
    while not over:
        guess = (low + high) // 2
        answer, reward, over, truncated, info = env.step(f"{guess}")
        low, high = (guess + 1, high) if answer == "Higher." else (low, guess - 1)
    assert (reward, truncated, info["outcome"], info["rewards"]) == (1.0, False, "terminated", {"env": 1.0})
    assert env.render().startswith(first + "\n\n> 4\n\n")
    with pytest.raises(ValueError, match="nobody waits"):
        env.unwrapped.step("4")
    assert env.reset(seed=3)[0] == first
    env.close()


def test_the_seed_decides_and_a_task_may_be_chosen() -> None:
    env = TextEnv("countdown")
    seen = [env.reset(seed=seed)[0] for seed in (1, 1, 2)]
    assert seen[0] == seen[1] != seen[2]
    task = registry.find("env", "countdown").tasks().held_out(3)[2]
    assert task.prompt in env.reset(options={"task": 2, "held_out": True})[0]
    env.close()


def test_tools_are_named_and_called() -> None:
    env = TextEnv("math_calc")
    _, info = env.reset(seed=0)
    assert "/call calculator {expression: string}" in info["tools"]
    assert "7" in env.step('/call calculator {"expression": "3 + 4"}')[0]
    env.close()


def test_agents_take_turns_and_the_reward_is_the_first_ones() -> None:
    env = TextEnv("kuhn_poker")
    observation, info = env.reset(seed=0)
    assert (info["agent"], "You are first." in observation) == ("first", True)
    observation, reward, *_, info = env.step("bet")
    assert (info["agent"], "You are second." in observation, reward) == ("second", True, 0.0)
    observation, reward, terminated, _, info = env.step("pass")
    assert (observation, reward, terminated, info["others"]) == ("first wins 1.", 1.0, True, {"second": -1.0})
    env.close()


class Pays(rl.Env):
    """A point a turn, and one more at the end."""

    max_turns = 2

    def reset(self, task: rl.Task) -> str:
        return "Hi"

    def step(self, action: rl.Action) -> Any:
        if action.text == "break":
            raise KeyError("lost")
        return "more", 1.0

    @rl.reward
    def whole(self) -> float:
        return 5.0


def test_rewards_come_with_the_turn_and_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry.BUNDLED["env"], "pays", f"{__name__}:Pays")
    monkeypatch.setattr("agentrl.registry.find", lambda kind, name, **_: Pays)
    env = TextEnv("pays")
    env.reset()
    assert env.step("a") == ("more", 1.0, False, False, {})
    assert env.step("b")[:4] == ("more", 6.0, False, True)
    env.reset()
    with pytest.raises(RolloutError, match="KeyError: 'lost'"):
        env.step("break")
    env.close()


def test_any_text_is_in_the_space() -> None:
    space = AnyText(seed=0)
    assert "日本語\n½" in space
    assert "" in space
    assert 5 not in space
    assert all(space.sample() in space for _ in range(20))


def test_registering_again_changes_nothing() -> None:
    before = dict(gymnasium.registry)
    register()
    assert dict(gymnasium.registry) == before


def test_a_mode_that_there_is_not_is_refused() -> None:
    with pytest.raises(UsageError, match="render_mode"):
        TextEnv("guess_number", render_mode="human")
    with pytest.raises(UsageError, match="max_turns"):
        TextEnv("guess_number", max_truns=3)


# Many at once.


def test_a_vector_plays_every_task_once_and_ends() -> None:
    rewards: list[float] = []
    with vector("guess_number", 4, episodes=10, high=1) as envs:
        for arrival in envs:
            if arrival.is_last:
                rewards.append(arrival.reward)
            else:
                envs.send(arrival.place, "1")
        assert rewards == [1.0] * 10
        with pytest.raises(RuntimeError, match="all episodes are over"):
            envs.recv()


def test_what_is_ready_comes_first() -> None:
    """Place 0 is never answered, and keeps nobody waiting."""
    ended = 0
    with vector("guess_number", 3, high=1) as envs:
        while ended < 6:
            arrival = envs.recv()
            ended += arrival.is_last
            if not arrival.is_last and arrival.place != 0:
                envs.send(arrival.place, "1")


def test_a_vector_has_places() -> None:
    with pytest.raises(UsageError, match="at least one place"):
        vector("guess_number", 0)
