"""Policies for wordle: the word, random words (of those named, where some are), silence."""

from __future__ import annotations

import random
from collections.abc import Mapping

from agentrl.envs.wordle_tasks import words
from agentrl.task import Task

from .maker import Maker, Policy, noop, script


def word(task: Task, rng: random.Random) -> Policy:
    return script(task.secret["word"])


def any_word(task: Task, rng: random.Random) -> Policy:
    choices = task.public.get("choices") or words()
    return lambda messages: rng.choice(choices)


POLICIES: Mapping[str, Maker] = {"gold": word, "random": any_word, "noop": noop}
