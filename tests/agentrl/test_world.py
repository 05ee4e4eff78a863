"""What episodes are made of, from the config: here the tasks and their seed."""

from __future__ import annotations

from typing import Any

import pytest

from agentrl.config import EnvConfig
from agentrl.env import Env
from agentrl.task import Task, TaskSource
from agentrl.world import build


def tasks(of_run: int, **args: Any) -> TaskSource:
    return build(EnvConfig(id="code_sandbox", tasks=args), seed=of_run).tasks


def ids(source: TaskSource) -> list[str]:
    return [source.get(i).id for i in range(8)]


def test_the_runs_seed_draws_the_training_tasks() -> None:
    assert ids(tasks(1)) == ids(tasks(1)) == ids(tasks(2, seed=1))  # what env.tasks says wins
    assert ids(tasks(1)) != ids(tasks(2))


@pytest.mark.parametrize("args", [{}, {"levels": [2, 3], "split": "families"}, {"source": "humaneval"}], ids=str)
def test_held_out_tasks_do_not_depend_on_it(args: dict[str, Any]) -> None:
    assert tasks(1, **args).held_out(20) == tasks(2, **args).held_out(20)


def test_a_class_whose_tasks_take_no_seed_gets_none() -> None:
    source = build(EnvConfig(id="guess_number"), seed=3).tasks
    assert source.get(0) == build(EnvConfig(id="guess_number"), seed=4).tasks.get(0)


class Collector(Env):
    seen: list[str] = ["class"]  # what an author easily writes
    given: list[str] = []

    def reset(self, task: Task) -> str:
        self.seen.append("episode")
        self.given.append("episode")
        return "Go."


def test_settings_that_an_episode_changes_are_the_next_ones_as_they_were() -> None:
    world = build(EnvConfig(id=f"{__file__}:Collector", args={"given": ["config"]}), seed=0)
    for _ in range(2):
        env = world.make()
        env.reset(Task(id="t"))
        assert (env.seen, env.given) == (["class", "episode"], ["config", "episode"])
