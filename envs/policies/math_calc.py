"""Policies for math_calc: the calculator and then its result, a random operation on two of the numbers, silence."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping

from agentrl.task import Task

from .maker import Maker, Policy, call, noop, script


def calculated(task: Task, rng: random.Random) -> Policy:
    return script(call("calculator", expression=task.secret["expression"]), f"The answer is {task.secret['answer']}.")


def any_operation(task: Task, rng: random.Random) -> Policy:
    a, b = map(int, (re.findall(r"\d+", task.prompt) * 2)[:2])
    return script(str(rng.choice((a + b, abs(a - b), a * b, a // b))))


POLICIES: Mapping[str, Maker] = {"gold": calculated, "random": any_operation, "noop": noop}
