"""What holds of every bundled environment that draws its tasks: gold is best, silence worst, nothing mixes, nothing breaks."""

from __future__ import annotations

import asyncio
import contextlib
import doctest
import importlib
import json
import math
import os
import pkgutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import MethodType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import agentrl.envs
from agentrl import compose, registry
from agentrl.commands.env import describe
from agentrl.env import as_step
from agentrl.envs.policies import POLICIES, policy
from agentrl.errors import UsageError
from agentrl.messages import Action, ParseError, ToolCall
from agentrl.person import PlainRenderer, encode
from agentrl.reward import marked
from agentrl.tool import ToolCrash
from agentrl.toolbox import toolbox

from .bundled import EACH_LEVEL, LEVELS, NAMES, new, played, source

ROOT = Path(__file__).resolve().parents[2]
MODULES = sorted(info.name for info in pkgutil.walk_packages(agentrl.envs.__path__, "agentrl.envs."))


@pytest.mark.parametrize(("name", "level"), EACH_LEVEL)
def test_gold_solves_every_task(name: str, level: int) -> None:
    tasks = [*(source(name, level).get(index) for index in range(25)), *source(name, level).held_out(25)]
    episodes = played(name, "gold", tasks)
    assert [episode.reward for episode in episodes] == [1.0] * 50
    assert all(episode.outcome.is_terminated for episode in episodes)


@pytest.mark.parametrize(("name", "level"), EACH_LEVEL)
def test_silence_gets_nothing_and_random_lies_between(name: str, level: int) -> None:
    tasks = source(name, level).held_out(30)
    silent = [episode.reward for episode in played(name, "noop", tasks[:5])]
    chance = [episode.reward for episode in played(name, "random", tasks)]
    assert silent == [0.0] * 5
    assert all(0 <= reward <= 1 for reward in chance)
    assert sum(chance) / len(chance) < 0.75
    if level == 1:
        assert sum(chance) > 0


@pytest.mark.parametrize("name", NAMES)
def test_same_seed_same_tasks_and_other_seeds_others(name: str) -> None:
    def secrets(seed: int) -> list[Any]:
        tasks = [source(name, LEVELS[name], seed).get(index) for index in range(20)]
        return [(task, task.secret.reveal()) for task in tasks]

    assert secrets(3) == secrets(3)
    assert not {task.id for task, _ in secrets(3)} & {task.id for task, _ in secrets(4)}
    assert {task.public["level"] for task, _ in secrets(3)} == set(LEVELS[name])


@pytest.mark.parametrize("name", NAMES)
def test_held_out_tasks_are_always_the_same_and_never_trained_on(name: str) -> None:
    held_out = source(name, LEVELS[name], 3).held_out(40)
    assert held_out == source(name, LEVELS[name], 4).held_out(40)
    assert held_out[:7] == source(name, LEVELS[name]).held_out(7)
    assert len({task.id for task in held_out}) == 40
    trained = {source(name, LEVELS[name]).get(index).id for index in range(200)}
    assert not trained & {task.id for task in held_out}


def test_tasks_are_the_same_in_every_process() -> None:
    """Sets of texts are ordered anew in every process."""

    def told(hash_seed: str) -> str:
        env = {**os.environ, "PYTHONHASHSEED": hash_seed}
        done = subprocess.run(
            [sys.executable, "-c", DIGEST], cwd=ROOT, env=env, capture_output=True, text=True, check=True, timeout=120
        )
        return done.stdout

    first = told("1")
    assert first == told("2")
    assert len(first.splitlines()) == 3 * len(EACH_LEVEL)


DIGEST = f"""
from agentrl import registry
for name, level in {EACH_LEVEL!r}:
    tasks = registry.find("env", name).tasks(level)
    for task in [*tasks.held_out(2), tasks.get(5)]:
        print(name, task.to_public_dict(), sorted(task.secret.reveal().items()))
"""


@pytest.mark.parametrize("name", NAMES)
def test_episodes_that_take_turns_do_not_mix(name: str) -> None:
    tasks = source(name, LEVELS[name]).held_out(2)
    alone = [[(message.role, message.text) for message in episode.messages] for episode in played(name, "random", tasks)]

    shown = {"demonstration": True} if hasattr(registry.find("env", name), "demonstration") else {}
    envs = [new(name, task, **shown) for task in tasks]
    players = [policy(name, "random", task) for task in tasks]
    talks: list[list[Any]] = [list(as_step(env.reset(task)).observation) for env, task in zip(envs, tasks, strict=True)]
    over = [False, False]
    for _ in range(envs[0].max_turns):
        for which in (0, 1):
            if not over[which]:
                over[which] = _turn(envs[which], players[which], talks[which])
    for talk, before, env in zip(talks, alone, envs, strict=True):
        opening = 1 if env.system_prompt else 0
        assert [(message.role, message.text) for message in talk] == before[opening:]


def _turn(env: Any, player: Any, talk: list[Any]) -> bool:
    """One turn without the loop; whether it was the last."""
    action = PlainRenderer().parse(encode(player(talk)))
    talk.append(action.message())
    if action.tool_calls:
        answers = asyncio.run(toolbox(env).run(action.tool_calls, {"env": env, "sandbox": None}))
        talk.extend(message for message, _ in answers)
        return False
    try:
        step = as_step(env.step(action))
    except ParseError as error:
        step = as_step(str(error))
    talk.extend(step.observation)
    return step.terminated


PIECES = st.sampled_from(
    [
        *(
            "up",
            "LEFT",
            "r\u0130ght",
            "\u2192",
            "<answer>",
            "</answer>",
            "answer:",
            "####",
            "\\\\boxed{",
            "open",
            "row",
            "```",
            "|",
        ),
        *(
            "crane",
            "CRANE",
            "c r a n e",
            "cr\u0130ne",
            "1",
            "2 3",
            "9" * 50,
            "-1",
            "3.5",
            "1e999",
            "0",
            "(",
            ")",
            "((((",
            "+",
            "*",
            "/",
        ),
        *(
            "**",
            "%",
            "=",
            "^",
            "1 2 3 4",
            "1234123412341234",
            ". . . .",
            "\u0663",
            "\u00b2",
            "\x00",
            "\n",
            "\n\n",
            " ",
            ",",
            "x",
        ),
    ]
)
ANSWERS = st.one_of(
    st.text(max_size=60), st.lists(PIECES, max_size=14).map("".join), st.lists(PIECES, max_size=14).map(" ".join)
)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=150, deadline=None)
@given(said=st.lists(ANSWERS, min_size=1, max_size=4), index=st.integers(0, 5))
def test_whatever_is_said_gives_an_observation_and_a_bounded_reward(name: str, said: list[str], index: int) -> None:
    task = source(name, LEVELS[name]).get(index)
    env = new(name, task)
    env.reset(task)
    total = 0.0
    for text in said:
        try:
            step = as_step(env.step(Action(text=text)))
        except ParseError as error:
            step = as_step(str(error))
        total += step.reward
        assert all(message.text for message in step.observation)
        assert step.observation
        if step.terminated:
            break
    total += sum(weight * MethodType(function, env)() for _, function, weight in marked(type(env)) if weight is not None)
    assert math.isfinite(total)
    assert 0 <= total <= 1


LONG = ["(" * 20_000, "1" * 20_000, "1 + " * 5_000, "up, " * 5_000, "<answer>" * 2_000, "a b c d " * 2_500, "9**" * 7_000]


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("text", LONG, ids=lambda text: text[:8])
def test_long_answers_are_read(name: str, text: str) -> None:
    """A pattern that backtracks would not come to an end."""
    task = source(name).get(0)
    env = new(name, task)
    env.reset(task)
    with contextlib.suppress(ParseError):
        assert as_step(env.step(Action(text=text))).observation


@pytest.mark.parametrize(
    ("name", "tool", "argument"), [("math_calc", "calculator", "expression"), ("search_qa", "search", "query")]
)
@settings(max_examples=200, deadline=None)
@given(text=ANSWERS)
def test_tools_answer_whatever_they_are_given(name: str, tool: str, argument: str, text: str) -> None:
    task = source(name).get(0)
    env = new(name, task)
    env.reset(task)
    box = toolbox(env)
    try:
        ((message, _),) = asyncio.run(box.run([_call(tool, argument, text)], {"env": env, "sandbox": None}))
    except ToolCrash as error:
        raise AssertionError(f"{tool} broke on {text!r}") from error
    assert message.text


def _call(tool: str, argument: str, text: str) -> Any:
    return ToolCall(id="c", name=tool, arguments={argument: text})


@pytest.mark.parametrize("name", NAMES)
def test_each_is_described_configured_and_has_its_policies(name: str) -> None:
    assert set(POLICIES[name]) == {"gold", "random", "noop"}
    assert compose.compose([f"env={name}"]).config.env.id == name
    about = describe(name, registry.find("env", name))
    for word in ("Reward: 1", "Levels: 1 ", "env.tasks.levels=1", "a task of it"):
        assert word in about
    for level in LEVELS[name][1:]:
        assert str(level) in about


@pytest.mark.parametrize("levels", [0, 9, [], [1, 9], "1", 1.5, True, [True]])
def test_levels_that_there_are_not_are_refused(levels: Any) -> None:
    with pytest.raises(UsageError, match="sokoban: levels are a list of numbers from 1 to 4"):
        source("sokoban", levels)


@pytest.mark.parametrize("name", ["frozen_lake", "sokoban"])
def test_moves_per_turn_is_at_least_one(name: str) -> None:
    task = source(name).get(0)
    with pytest.raises(ValueError, match="moves_per_turn is 0"):
        new(name, task, moves_per_turn=0).reset(task)


@pytest.mark.parametrize("name", NAMES)
def test_tasks_are_plain_data(name: str) -> None:
    """What a run writes down of a task reads back as the same world."""
    task = source(name, LEVELS[name][-1]).get(1)
    public = json.loads(json.dumps(task.to_public_dict()))["public"]
    env, again = new(name, task), new(name, task)
    assert env.reset(task) == again.reset(replace(task, public=public))


@pytest.mark.parametrize("module", MODULES)
def test_examples_in_docstrings(module: str) -> None:
    assert doctest.testmod(importlib.import_module(module)).failed == 0


@pytest.mark.parametrize("name", sorted(set(NAMES) - {"math_calc", "search_qa"}))
def test_demonstrations_are_part_of_the_prompt_and_can_be_left_out(name: str) -> None:
    task = source(name).get(0)
    with_one = as_step(new(name, task, demonstration=True).reset(task)).observation
    without = as_step(new(name, task).reset(task)).observation
    assert [message.role for message in with_one] == ["user", "assistant", "user"]
    assert with_one[-1:] == without
    episode = played(name, "gold", [task])[0]
    assert episode.opening == 3
    assert episode.reward == 1.0
