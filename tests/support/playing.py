"""One episode at a time, with the fake engine and renderer, and the environments that several tests of the loop play."""

from __future__ import annotations

import asyncio
from typing import Any

import agentrl as rl
from agentrl.engine import Sampling
from agentrl.rollout.limits import Limits
from agentrl.rollout.loop import play
from agentrl.tool import tool

from .chat import CharRenderer
from .engine import FakeEngine, resuming, says
from .rollouts import limited

TASK = rl.Task(id="t", prompt="Hi")


async def played(env: rl.Env, *texts: str, engine: Any = None, limits: Limits = limited(), **more: Any) -> rl.Episode:
    renderer = more.pop("renderer", CharRenderer())
    task, sampling = more.pop("task", TASK), more.pop("sampling", Sampling(seed=5))
    engine, seed = engine or FakeEngine(says(*texts)), more.pop("seed", 7)
    return await play(
        env, resuming(engine), renderer, task, seed=seed, sampling=sampling, limits=limits, id="e", group="g", **more
    )


def run(env: rl.Env, *texts: str, **more: Any) -> rl.Episode:
    return asyncio.run(played(env, *texts, **more))


class Closing(rl.Env):
    closed = 0

    async def close(self) -> None:
        self.closed += 1


class Adder(Closing):
    """Two turns: a tool call, then the answer."""

    max_turns = 3

    @tool
    def add(self, a: int, b: int) -> int:
        """Adds."""
        return a + b

    def step(self, action: rl.Action) -> rl.Step:
        return rl.done("Yes.", reward=float(action.parse(int) == 5))


CALL = '<call>{"name": "add", "arguments": {"a": 2, "b": 3}}</call>'


class Chatty(Closing):
    """Never ends by itself; counts a point each turn."""

    max_turns = 3

    def step(self, action: rl.Action) -> tuple[str, float]:
        return "more", 1.0
