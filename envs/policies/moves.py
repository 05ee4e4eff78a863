"""Policies for environments that are played by moves: a known way, random moves."""

from __future__ import annotations

import random
from collections.abc import Sequence

from agentrl.envs.moves import STEPS
from agentrl.messages import Message
from agentrl.task import Task

from .maker import Policy, script

A_TURN = 4
"""Moves that are said at one time; no environment allows fewer."""


def way(moves: Sequence[str]) -> Policy:
    """These moves, some each turn."""
    return script(*(", ".join(moves[start : start + A_TURN]) for start in range(0, len(moves), A_TURN)))


def any_moves(task: Task, rng: random.Random) -> Policy:
    def play(messages: Sequence[Message]) -> str:
        return ", ".join(rng.choices(list(STEPS), k=A_TURN))

    return play
