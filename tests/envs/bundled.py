"""The bundled environments that draw their tasks, and scripted policies in the model's seat, through the loop of training."""

from __future__ import annotations

import asyncio
import importlib
import random
from collections.abc import Sequence
from typing import Any

from agentrl import registry
from agentrl.engine import Sampling
from agentrl.env import Env
from agentrl.envs.policies import policy
from agentrl.episode import Episode
from agentrl.person import CONTEXT, Person, PlainRenderer
from agentrl.rollout.limits import Limits
from agentrl.rollout.loop import play
from agentrl.task import Task, TaskSource

NAMES = ("countdown", "frozen_lake", "math_calc", "minesweeper", "search_qa", "sokoban", "sudoku", "wordle")
LEVELS: dict[str, tuple[int, ...]] = {
    name: tuple(importlib.import_module(f"agentrl.envs.{name}_tasks").FAMILY.levels) for name in NAMES
}
EACH_LEVEL = [(name, level) for name in NAMES for level in LEVELS[name]]

LIMITS = Limits(max_new_tokens=CONTEXT, max_episode_tokens=CONTEXT, episode_timeout=60.0, turn_timeout=60.0)


def source(name: str, levels: Any = 1, seed: int = 0) -> TaskSource:
    return registry.find("env", name).tasks(levels, seed=seed)


def new(name: str, task: Task, seed: int = 0, **settings: Any) -> Env:
    """An instance before its reset; without a demonstration unless it is set."""
    env: Env = registry.find("env", name)()
    if hasattr(env, "demonstration"):
        env.demonstration = False
    for key, value in settings.items():
        setattr(env, key, value)
    env.task, env.rng = task, random.Random(f"{task.id} {seed}")
    return env


def played(name: str, who: str, tasks: Sequence[Task]) -> list[Episode]:
    """An episode of each task with the policy `who`."""

    async def each() -> list[Episode]:
        return [await one(name, policy(name, who, task), task) for task in tasks]

    return asyncio.run(each())


async def one(name: str, answer: Any, task: Task) -> Episode:
    renderer = PlainRenderer()
    person = Person(answer, renderer)
    return await play(registry.find("env", name)(), person, renderer, task, seed=0, sampling=Sampling(), limits=LIMITS)
