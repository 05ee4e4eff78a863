"""GuessNumber and the scripted policies: gold is best, noop worst, random in between."""

import random

import pytest

from agentrl.env import as_step
from agentrl.envs.guess_number import GuessNumber
from agentrl.envs.policies import POLICIES, policy
from agentrl.errors import UsageError
from agentrl.messages import Action, Message, ParseError
from agentrl.task import Task

TASK = Task(id="t")


def make(seed, **settings):
    env = GuessNumber()
    env.task, env.rng = TASK, random.Random(seed)
    for name, value in settings.items():
        setattr(env, name, value)
    return env


def play(env, act):
    """(reward, number of guesses) of an episode."""
    messages = [Message(role="user", content=env.reset(TASK))]
    for turn in range(1, env.max_turns + 1):
        text = act(messages)
        messages.append(Message(role="assistant", content=text))
        try:
            result = as_step(env.step(Action(text=text)))
        except ParseError as error:
            result = as_step(str(error))
        messages += result.observation
        if result.terminated:
            return result.reward, turn
    return 0.0, env.max_turns


def test_answers():
    env = make(0)
    env.reset(TASK)
    env.secret = 40
    assert env.step(Action(text="39")) == "Higher."
    assert env.step(Action(text="I say 41!")) == "Lower."
    right = env.step(Action(text="40"))
    assert (right.terminated, right.reward) == (True, 1.0)
    with pytest.raises(ParseError):
        env.step(Action(text="forty"))


def test_same_seed_same_number_and_other_seeds_others():
    def number(seed):
        env = make(seed)
        env.reset(TASK)
        return env.secret

    assert number(3) == number(3)
    drawn = [number(seed) for seed in range(300)]
    assert len(set(drawn)) > 80
    assert min(drawn) >= 1
    assert max(drawn) <= 100


def test_gold_wins_every_number_in_seven_guesses():
    for secret in range(1, 101):
        env = make(0)
        first = env.reset

        def reset(task, first=first, env=env, secret=secret):
            text = first(task)
            env.secret = secret
            return text

        env.reset = reset
        reward, guesses = play(env, policy("guess_number", "gold", TASK))
        assert reward == 1.0
        assert guesses <= 7


def test_noop_never_wins_and_random_seldom():
    noop = [play(make(seed), policy("guess_number", "noop", TASK))[0] for seed in range(50)]
    chance = [play(make(seed), policy("guess_number", "random", TASK, seed))[0] for seed in range(300)]
    assert sum(noop) == 0
    assert 0.01 < sum(chance) / len(chance) < 0.2  # 8 of 100 numbers: 0.077


def test_bounds_are_settings():
    env = make(1, low=-3, high=-3)
    assert "between -3 and -3" in env.reset(TASK)
    assert play(make(1, low=-3, high=-3), policy("guess_number", "gold", TASK)) == (1.0, 1)
    with pytest.raises(ValueError, match="low is 2 and high is 1"):
        make(1, low=2, high=1).reset(TASK)


def test_tasks_for_training_and_evaluation_differ():
    source = GuessNumber.tasks()
    assert not {source.get(i).id for i in range(100)} & {task.id for task in source.held_out(100)}


@pytest.mark.parametrize(("env", "name", "near"), [("guess_numbr", "gold", "guess_number"), ("guess_number", "glod", "gold")])
def test_unknown_policies_are_answered_with_the_nearest(env, name, near):
    with pytest.raises(UsageError, match=near):
        policy(env, name, TASK)


def test_each_environment_has_all_three():
    assert all(set(made) == {"gold", "random", "noop"} for made in POLICIES.values())
