"""A world for tests of whole runs: one short turn, no tools, a reward that differs between siblings and is never random."""

from __future__ import annotations

from typing import Any

from agentrl.env import Env, done
from agentrl.messages import Action


class Vowels(Env):
    """Say something with vowels in it. The reward is the share of vowels among the characters said."""

    max_turns = 1

    def reset(self, task: Any) -> str:
        return f"Word {self.rng.randint(0, 9)}?"

    def step(self, action: Action) -> Any:
        text = action.raw.lower()
        return done(reward=sum(char in "aeiou" for char in text) / max(1, len(text)))


class TwoTurns(Vowels):
    """The same in two turns, so that an observation stands between two sampled texts."""

    max_turns = 2

    def step(self, action: Action) -> Any:
        share = super().step(action).reward
        if hasattr(self, "first"):
            return done(reward=(self.first + share) / 2)
        self.first = share
        return "And another?"
