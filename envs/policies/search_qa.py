"""Policies for search_qa: one search for each step of the way, a random name from one search, silence."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence

from agentrl.messages import Message
from agentrl.task import Task

from .maker import Maker, Policy, call, noop, script


def step_by_step(task: Task, rng: random.Random) -> Policy:
    *things, answer = task.secret["path"]
    return script(*(call("search", query=thing) for thing in things), answer)


def any_name(task: Task, rng: random.Random) -> Policy:
    """Searches for the question and says a name or a year of the first passage."""

    def play(messages: Sequence[Message]) -> str:
        if messages[-1].role != "tool":
            return call("search", query=task.prompt)
        passage = messages[-1].text.splitlines()[1]  # below its title
        return rng.choice(re.findall(r"\d{4}|[A-Z]\w+(?: [A-Z]\w+)?", passage))

    return play


POLICIES: Mapping[str, Maker] = {"gold": step_by_step, "random": any_name, "noop": noop}
