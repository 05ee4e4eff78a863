"""Policies for countdown: the solution, random expressions of the numbers, silence."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from agentrl.messages import Message
from agentrl.task import Task

from .maker import Maker, Policy, noop, script


def solution(task: Task, rng: random.Random) -> Policy:
    return script(task.secret["solution"])


def any_expression(task: Task, rng: random.Random) -> Policy:
    """Joins two or more of the numbers at random, from left to right."""

    def play(messages: Sequence[Message]) -> str:
        numbers = task.public["numbers"]
        text, *others = map(str, rng.sample(numbers, rng.randint(2, len(numbers))))
        for other in others:
            text = f"({text} {rng.choice('+-*/')} {other})"
        return text

    return play


POLICIES: Mapping[str, Maker] = {"gold": solution, "random": any_expression, "noop": noop}
