"""Scripted policies for the bundled environments: what a perfect, a random and a silent agent would say.

They stand in the model's seat when an environment is checked: gold must get the best reward there is, noop the worst.
A policy is a function from the conversation so far to the next message's text. Not for training, and no part of an
environment: gold may look at the task's secret.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

from agentrl.errors import UsageError, nearest
from agentrl.task import Task

from . import (
    code_sandbox,
    countdown,
    frozen_lake,
    guess_number,
    kuhn_poker,
    math_calc,
    minesweeper,
    search_qa,
    sokoban,
    sudoku,
    tictactoe,
    wordle,
)
from .maker import Maker, Policy

POLICIES: Mapping[str, Mapping[str, Maker]] = {
    "code_sandbox": code_sandbox.POLICIES,
    "countdown": countdown.POLICIES,
    "frozen_lake": frozen_lake.POLICIES,
    "guess_number": guess_number.POLICIES,
    "kuhn_poker": kuhn_poker.POLICIES,
    "math_calc": math_calc.POLICIES,
    "minesweeper": minesweeper.POLICIES,
    "search_qa": search_qa.POLICIES,
    "sokoban": sokoban.POLICIES,
    "sudoku": sudoku.POLICIES,
    "tictactoe": tictactoe.POLICIES,
    "wordle": wordle.POLICIES,
}


def policy(env: str, name: str, task: Task, seed: int = 0) -> Policy:
    """The policy `name` (gold, random, noop) for the environment `env` on this task. Raises UsageError.

    >>> from agentrl.messages import Message
    >>> guess = policy("guess_number", "gold", Task(id="t"))
    >>> guess([Message(role="user", content="I think of a whole number between 1 and 100. What is it?")])
    '50'
    """
    if env not in POLICIES:
        raise UsageError(f"there are no scripted policies for {env!r}; {nearest(env, POLICIES)}")
    if name not in POLICIES[env]:
        raise UsageError(f"there is no policy {name!r} for {env}; {nearest(name, POLICIES[env])}")
    return POLICIES[env][name](task, random.Random(f"{task.id} {seed}"))
