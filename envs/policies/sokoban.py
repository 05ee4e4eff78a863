"""Policies for sokoban: the shortest solution, random moves, silence."""

from __future__ import annotations

import random
from collections.abc import Mapping

from agentrl.task import Task

from .maker import Maker, Policy, noop
from .moves import any_moves, way


def shortest(task: Task, rng: random.Random) -> Policy:
    return way(task.secret["solution"])


POLICIES: Mapping[str, Maker] = {"gold": shortest, "random": any_moves, "noop": noop}
