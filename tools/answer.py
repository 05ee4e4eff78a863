"""The tool by which a model hands in its answer. The environment takes it as it takes a final message: by `step`."""

from __future__ import annotations

from agentrl.env import Env, Step, as_step
from agentrl.messages import Action
from agentrl.threads import invoke
from agentrl.tool import tool

TIMEOUT = 600.0
"""Seconds: the environment's own deadline, rollout.turn_timeout, is what bounds it."""


@tool(timeout=TIMEOUT)
async def answer(answer: str, env: Env) -> Step:
    """Hand in your answer.

    Args:
        answer: the answer itself, in the form that was asked for
    """
    return as_step(await invoke(env.step, Action(text=answer, raw=answer)))
