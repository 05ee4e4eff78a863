"""Evaluations while a run goes on: plays the held-out tasks, keeps the scores, and the best policy so far.

Waits for: the episodes, each bounded by its deadlines. Unblocked by: the last of them, a stop, a failure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from agentrl import assembly
from agentrl.config import Config
from agentrl.live import Watch
from agentrl.phases import Phases
from agentrl.scores import Evaluations, Score, check_measured
from agentrl.stop import Stop
from agentrl.task import Task


@dataclass(slots=True, kw_only=True)
class Evaluator:
    """Measures one run's policy."""

    config: Config
    setup: Any
    """What training episodes are played with."""
    tasks: Sequence[Task]
    """Held out from training."""
    evaluations: Evaluations
    watch: Watch
    phases: Phases
    stop: Stop
    keep_best: Callable[[int], None]
    """(step): exports the policy as it is."""

    async def evaluate(self, step: int) -> Score | None:
        """Once for each step; None without held-out tasks. Raises Stopped, and RolloutError when nothing was measured."""
        known = self.evaluations.get(step)
        if known is not None or not self.tasks:
            return known
        with self.phases("eval"):
            episodes = await self.stop.unless(self._play())
            check_measured(episodes)
            score = self.evaluations.add(step, episodes)
        self.watch.note(f"step {step}: {score}, on {len(self.tasks)} held-out tasks")
        best = max(self.evaluations.scores, key=lambda s: (s.pass_rate, s.reward, -s.step))
        if best is score and step:
            self.keep_best(step)
        return score

    async def _play(self) -> Any:
        total = len(self.tasks) * self.config.eval.samples
        return await assembly.play_held_out(self.config, self.setup, self.tasks, counter(self.watch, "evaluation", total))


def counter(watch: Watch, name: str, total: int) -> Callable[[Any], None]:
    """Shows how many of `total` are done, each time it is called."""
    done = 0

    def count(_: Any) -> None:
        nonlocal done
        done += 1
        watch.progress(name, done, total)

    return count
