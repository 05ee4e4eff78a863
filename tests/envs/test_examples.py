"""The examples are found by their file, can be played, and reward what they say."""

import asyncio
import random
from pathlib import Path

import pytest

from agentrl.env import as_step
from agentrl.messages import Action, ToolCall
from agentrl.registry import find
from agentrl.task import Task
from agentrl.tool import FunctionTool, ToolBox

EXAMPLES = Path(__file__).parents[2] / "examples"
TASK = Task(id="t")


def make(name, seed=0):
    env = find("env", f"{EXAMPLES}/{name}")()
    env.task, env.rng = TASK, random.Random(seed)
    return env, env.reset(TASK)


def right(env):
    """The answer, worked out from what the environment hides."""
    if hasattr(env, "prices"):
        return str(env.prices[env.item] * env.count)
    return str(sum(letter == env.letter for letter in env.word))


@pytest.mark.parametrize("name", ["first_env.py:CountLetters", "custom_tool.py:Shop"])
def test_right_answers_win_and_seeds_matter(name):
    prompts = set()
    for seed in range(10):
        env, prompt = make(name, seed)
        prompts.add(prompt)
        result = as_step(env.step(Action(text=right(env))))
        assert (result.terminated, result.reward) == (True, 1.0)
    assert len(prompts) > 5
    assert make(name, 1)[1] == make(name, 1)[1]


def test_a_second_answer_is_worth_half():
    env, _ = make("first_env.py:CountLetters")
    assert not as_step(env.step(Action(text="77"))).terminated
    assert as_step(env.step(Action(text=right(env)))).reward == 0.5


def test_the_tool_answers_and_tells_what_it_knows():
    env, _ = make("custom_tool.py:Shop")
    box = ToolBox([FunctionTool(env.price)])

    def call(item):
        ((message, result),) = asyncio.run(box.run([ToolCall(id="c", name="price", arguments={"item": item})], {}))
        return message.text, result.is_error

    assert call(env.item) == (str(env.prices[env.item]), False)
    assert env.tool_used()
    text, is_error = call("gold")
    assert is_error
    assert "tea, bread, rice, soap" in text
