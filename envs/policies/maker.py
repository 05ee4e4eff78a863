"""What a scripted policy is, and the pieces that several of them are made of."""

from __future__ import annotations

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
    """Says these one after the other, and the last one again when they run out.

    >>> say = script("a", "b")
    >>> say([]), say([Message(role="assistant", content="a")])
    ('a', 'b')
    """
    return lambda messages: texts[min(turns(messages), len(texts) - 1)]


def turns(messages: Sequence[Message]) -> int:
    """How often the agent has spoken."""
    return sum(message.role == "assistant" for message in messages)


def call(name: str, **arguments: Any) -> str:
    """A call of a tool, as `agentrl play` reads it.

    >>> call("search", query="tea")
    '/call search {"query": "tea"}'
    """
    return f"/call {name} {json.dumps(arguments)}"
