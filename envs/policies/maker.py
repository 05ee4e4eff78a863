"""What a scripted policy is, and the pieces that several of them are made of."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable, Sequence
from typing import Any

from agentrl.messages import Message
from agentrl.task import Task

Policy = Callable[[Sequence[Message]], str]
"""The conversation so far -> what the agent says next."""
Maker = Callable[[Task, random.Random], Policy]


def noop(task: Task, rng: random.Random) -> Policy:
    """Says nothing."""
    return lambda messages: ""


def script(*texts: str) -> Policy:
    """Says these one after the other, and the last one again when they run out. Whatever is shown before the first turn, a
    demonstration for one, does not count.

    >>> say = script("a", "b")
    >>> say([]), say([]), say([])
    ('a', 'b', 'b')
    """
    rest = itertools.chain(texts, itertools.repeat(texts[-1]))
    return lambda messages: next(rest)


def call(name: str, **arguments: Any) -> str:
    """A call of a tool, as `agentrl play` reads it.

    >>> call("search", query="tea")
    '/call search {"query": "tea"}'
    """
    return f"/call {name} {json.dumps(arguments)}"
