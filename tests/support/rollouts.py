"""A small world for whole rollouts: the agent says how well it does, and the environment pays it."""

from __future__ import annotations

import hashlib
from typing import Any

import agentrl as rl
from agentrl.engine import GenerateRequest, Sampling
from agentrl.rollout.group import Setup
from agentrl.rollout.limits import Limits
from agentrl.rollout.manager import Schedule

from .chat import CharRenderer
from .engine import FakeEngine, Script, resuming


class Paid(rl.Env):
    """The reward is the number that the action holds."""

    def step(self, action: rl.Action) -> rl.Step:
        return rl.done(reward=action.parse(float))


def drawn(request: GenerateRequest, most: int) -> int:
    """0 to most - 1, from the request's seed alone: what a sampler would draw."""
    return int.from_bytes(hashlib.sha256(str(request.sampling.seed).encode()).digest()[:4], "big") % most


def draws(request: GenerateRequest) -> str:
    """A reward of 0 or 1."""
    return str(drawn(request, 2))


def limited(**limits: Any) -> Limits:
    usual = {"max_new_tokens": 200, "max_episode_tokens": 2000, "episode_timeout": 20.0, "turn_timeout": 20.0}
    return Limits(**{**usual, **limits})


def setup(engine: FakeEngine | Script, **more: Any) -> Setup:
    engine = engine if isinstance(engine, FakeEngine) else FakeEngine(engine)
    usual = {"make_env": Paid, "renderer": CharRenderer(), "sampling": Sampling(), "limits": limited(), "seed": 1}
    return Setup(engine=resuming(engine), **{**usual, **more})


def schedule(**more: Any) -> Schedule:
    usual = {
        "samples_per_prompt": 2,
        "staleness": 0,
        "max_groups": 0,
        "on_abort": "mask",
        "max_abort_rate": 0.5,
        "filter_groups": False,
        "step_timeout": 20.0,
    }
    return Schedule(**{**usual, **more})
