"""Policies for code_sandbox: the reference solution, a function that returns a constant, silence."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from agentrl.errors import UsageError
from agentrl.messages import Message
from agentrl.task import Task

from .maker import Maker, Policy, noop, script


def solution(task: Task, rng: random.Random) -> Policy:
    code = task.secret.get("solution")
    if not code:
        raise UsageError(f"task {task.id} has no solution to show")
    return script(f"```python\n{str(code).rstrip()}\n```")


def any_constant(task: Task, rng: random.Random) -> Policy:
    """Functions that return a random constant, whatever they are given."""

    def play(messages: Sequence[Message]) -> str:
        value: object = rng.choice((True, False, 0, rng.randint(-99, 99), "", "a", [], None))
        return f"```python\ndef {task.public['function']}(*args):\n    return {value!r}\n```"

    return play


POLICIES: Mapping[str, Maker] = {"gold": solution, "random": any_constant, "noop": noop}
