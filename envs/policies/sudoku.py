"""Policies for sudoku: the solution, random digits in the free cells, silence."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from math import isqrt

from agentrl.envs.sudoku_tasks import board
from agentrl.messages import Message
from agentrl.task import Task

from .maker import Maker, Policy, noop, script


def solution(task: Task, rng: random.Random) -> Policy:
    return script(board(task.secret["solution"]))


def any_digits(task: Task, rng: random.Random) -> Policy:
    clues = task.public["clues"]

    def play(messages: Sequence[Message]) -> str:
        return board("".join(sign if sign != "0" else str(rng.randint(1, isqrt(len(clues)))) for sign in clues))

    return play


POLICIES: Mapping[str, Maker] = {"gold": solution, "random": any_digits, "noop": noop}
