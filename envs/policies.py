"""Scripted policies for the bundled environments: what a perfect, a random and a silent agent would say.

They stand in the model's seat when an environment is checked: gold must get the best reward there is, noop the worst.
A policy is a function from the conversation so far to the next message's text. Not for training, and no part of an
environment: gold may look at the task's secret.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence

from agentrl.errors import UsageError, nearest
from agentrl.messages import Message
from agentrl.task import Task

Policy = Callable[[Sequence[Message]], str]
Maker = Callable[[Task, random.Random], Policy]


def policy(env: str, name: str, task: Task, seed: int = 0) -> Policy:
    """The policy `name` (gold, random, noop) for the environment `env` on this task. Raises UsageError.

    >>> guess = policy("guess_number", "gold", Task(id="t"))
    >>> guess([Message(role="user", content="I think of a whole number between 1 and 100. What is it?")])
    '50'
    """
    if env not in POLICIES:
        raise UsageError(f"there are no scripted policies for {env!r}; {nearest(env, POLICIES)}")
    if name not in POLICIES[env]:
        raise UsageError(f"there is no policy {name!r} for {env}; {nearest(name, POLICIES[env])}")
    return POLICIES[env][name](task, random.Random(f"{task.id} {seed}"))


def _noop(task: Task, rng: random.Random) -> Policy:
    return lambda messages: ""


def _halving(task: Task, rng: random.Random) -> Policy:
    def play(messages: Sequence[Message]) -> str:
        low, high = _interval(messages)
        return str((low + high) // 2)

    return play


def _any_number(task: Task, rng: random.Random) -> Policy:
    def play(messages: Sequence[Message]) -> str:
        return str(rng.randint(*_bounds(messages)))

    return play


def _bounds(messages: Sequence[Message]) -> tuple[int, int]:
    """(low, high) as the first observation names them."""
    first = next(message for message in messages if message.role == "user")
    found = re.search(r"between (-?\d+) and (-?\d+)", first.text)
    if found is None:
        raise ValueError(f"no range in the first observation {first.text!r}")
    return int(found[1]), int(found[2])


def _interval(messages: Sequence[Message]) -> tuple[int, int]:
    """Where the number can still be, after the answers so far."""
    low, high = _bounds(messages)
    guess = 0
    for message in messages:
        if message.role == "assistant":
            guess = int(message.text)
        elif message.text == "Higher.":
            low = guess + 1
        elif message.text == "Lower.":
            high = guess - 1
    return low, high


def _solution(task: Task, rng: random.Random) -> Policy:
    code = task.secret.get("solution")
    if not code:
        raise UsageError(f"task {task.id} has no solution to show")
    return lambda messages: f"```python\n{str(code).rstrip()}\n```"


def _any_constant(task: Task, rng: random.Random) -> Policy:
    """Functions that return a random constant, whatever they are given."""

    def play(messages: Sequence[Message]) -> str:
        value: object = rng.choice((True, False, 0, rng.randint(-99, 99), "", "a", [], None))
        return f"```python\ndef {task.public['function']}(*args):\n    return {value!r}\n```"

    return play


POLICIES: dict[str, dict[str, Maker]] = {
    "guess_number": {"gold": _halving, "random": _any_number, "noop": _noop},
    "code_sandbox": {"gold": _solution, "random": _any_constant, "noop": _noop},
}
