"""Environments: what a step may return, and the defaults of a class."""

from __future__ import annotations

import pytest

from agentrl.env import Env, SeededTasks, Step, as_step, done
from agentrl.messages import Action, Message
from agentrl.task import Task


def shown(step: Step) -> list[str]:
    return [message.text for message in step.observation]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("Higher.", (["Higher."], 0.0, False, False, {})),
        (None, ([], 0.0, False, False, {})),
        (("Lower.", 0.5), (["Lower."], 0.5, False, False, {})),
        (("Lower.", 1, True), (["Lower."], 1.0, True, False, {})),
        (("x", 0.0, False, True, {"k": 1}), (["x"], 0.0, False, True, {"k": 1})),
        (Message(role="tool", content="t"), (["t"], 0.0, False, False, {})),
        (("a", "b"), (["ab"], 0.0, False, False, {})),  # two texts, no reward
        (Step(observation="plain", reward=2), (["plain"], 2.0, False, False, {})),
        (done("Right.", reward=1, by="me"), (["Right."], 1.0, True, False, {"by": "me"})),
        (done(), ([], 0.0, True, False, {})),
    ],
)
def test_what_a_step_may_return(value, expected):
    step = as_step(value)
    assert (shown(step), step.reward, step.terminated, step.truncated, step.info) == expected


def test_rewards_of_numpy_are_rewards():
    numpy = pytest.importorskip("numpy")
    step = as_step(("x", numpy.float32(0.5)))
    assert (step.reward, type(step.reward)) == (0.5, float)
    assert shown(step) == ["x"]


@pytest.mark.parametrize("value", [("x", float("nan")), done("x", reward=float("inf")), ("x", float("-inf"), True)])
def test_a_reward_is_a_finite_number(value):
    with pytest.raises(ValueError, match="finite number"):
        as_step(value)


def test_what_is_no_observation_is_refused():
    with pytest.raises(TypeError, match="neither text nor an image"):
        as_step((3.5, 1.0))


def test_defaults_of_a_class():
    env = Env()
    assert env.reset(Task(id="t", prompt="Do it.")) == "Do it."
    assert as_step(env.step(Action(text="x"))).terminated
    with pytest.raises(TypeError, match=r"Env\.tasks takes no arguments, got level"):
        Env.tasks(level=1)


def test_seeded_tasks_never_overlap_with_those_held_out():
    source = SeededTasks(name="Game")
    trained = {source.get(i).id for i in range(200)}
    held_out = [task.id for task in source.held_out(200)]
    assert len(trained) == 200
    assert trained.isdisjoint(held_out)
    assert held_out == [task.id for task in SeededTasks(name="Game").held_out(200)]
    assert trained.isdisjoint(SeededTasks(name="Other").get(i).id for i in range(200))


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (("Lower.", "0.5"), "second value is its reward, a number; it gave the text '0.5'"),
        (("Lower.", "1", True), "it gave the text '1'"),
        (("Lower.", 1.0, True, {}), "it gave four values"),
    ],
)
def test_what_looks_like_a_step_and_is_none_is_refused(value, problem):
    with pytest.raises(TypeError, match=problem):
        as_step(value)


@pytest.mark.parametrize("name", ["rewrd", "rewards", "obsrevation"])
def test_a_misspelt_argument_of_done_is_no_info(name):
    with pytest.raises(TypeError, match=r"done\(\) has no argument .*; did you mean"):
        done("x", **{name: 1.0})
