"""A training run while it goes on: what is done around each step, and when it is told to stop.

Stands between `trainers.loop` and everything that is not learning: plays the loop's source and transport, each with a
stopwatch around the real one, and says when to evaluate, save and log. What it holds was opened, and is closed, by
`agentrl.run`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentrl import heap
from agentrl.config import Config
from agentrl.engine import Engine
from agentrl.episode import EpisodeGroup, EpisodeSource, RolloutError
from agentrl.evaluator import Evaluator
from agentrl.live import Watch
from agentrl.logbook import Logbook, row_of
from agentrl.model_wheel import no_progress_bars
from agentrl.phases import Phases
from agentrl.rundir import RunDir
from agentrl.stop import Stop
from agentrl.weights import WeightTransport


@dataclass(slots=True, kw_only=True)
class Session:
    """One run."""

    run: RunDir
    config: Config
    source: EpisodeSource
    transport: WeightTransport
    trainer: Any
    engine: Engine
    backend: Any
    checkpoints: Any
    evaluator: Evaluator
    logbook: Logbook
    watch: Watch
    phases: Phases
    stop: Stop
    pauses: bool
    """The engine reads the trainer's own parameters, so that it must not sample while they change."""
    step: int
    """Steps done."""
    saved: int
    """Steps done at the last checkpoint."""
    groups: Sequence[EpisodeGroup] = ()
    """The batch in hand."""

    # What the training loop calls, in its order

    async def next_batch(self, prompts: int) -> Sequence[EpisodeGroup]:
        """Raises Stopped: the one place where a stop takes effect, besides evaluations."""
        with self.phases("rollout"):
            self.groups = await self.stop.unless(self._next_batch(prompts))
        return self.groups

    async def _next_batch(self, prompts: int) -> Sequence[EpisodeGroup]:
        return await self.source.next_batch(prompts)

    async def pause(self) -> None:
        """Before a step; publishing lets the engine go on. After a failure it stays paused.

        In synchronous training nothing is in flight, and the update would make its cache stale: the trainer gets that memory.
        Raises RolloutError after `rollout.step_timeout`.
        """
        seconds = self.config.rollout.step_timeout
        try:
            async with asyncio.timeout(seconds) as scope:
                await self._quiet()
        except TimeoutError as error:
            if not scope.expired():
                raise
            raise RolloutError(
                f"the engine did not pause within {seconds:g} s (rollout.step_timeout); it is {self.engine.state}"
            ) from error
        heap.trim()
        self.watch.phase("training")

    async def _quiet(self) -> None:
        synchronous = not self.config.rollout.staleness
        if self.pauses or synchronous:
            mode: Any = self.config.rollout.mode
            await self.engine.pause(mode)
        if synchronous:
            await self.engine.sleep("cache")

    async def publish(self, version: int) -> int:
        with self.phases("publish"):
            heap.trim()
            return await self.transport.publish(version)

    async def trained(self, groups: Sequence[EpisodeGroup], *, step: int, version: int) -> None:
        await self.source.trained(groups, step=step, version=version)
        self.step = step

    def save(self, step: int) -> None:
        """Blocks; called in the trainer's thread."""
        with self.phases("checkpoint"):
            self.checkpoints.save(self.backend.save, {"step": step, "version": step, "seed": self.config.seed})
        self.saved = step

    def metrics(self) -> Mapping[str, float]:
        """What was played since the last step, trained on or not, named apart from the batch's own numbers."""
        return {f"rollout/{name}": value for name, value in self.source.metrics().items()}

    async def on_step(self, step: int, metrics: Mapping[str, float]) -> None:
        """Evaluates where it is due and writes the step's row, also when the evaluation is stopped or fails: the step is
        done, and will not be done again."""
        every = self.config.eval.every
        try:
            if step == self.config.trainer.steps or (every and step % every == 0):
                await self.evaluator.evaluate(step)
        finally:
            self._log(step, metrics)

    def _log(self, step: int, metrics: Mapping[str, float]) -> None:
        row = row_of(
            step,
            groups=self.groups,
            training=metrics,
            engine=self.engine.metrics(),
            score=self.evaluator.evaluations.get(step),
            times=self.phases.take(),  # sets the stopwatch back, also where the row is not needed
        )
        self.logbook.log(row, self.groups)

    # What is done besides

    def settle(self) -> None:
        """What is kept whenever a run ends well or is stopped: a checkpoint to go on from, and the model as it is."""
        if self.saved < self.step:
            self.save(self.step)
        export(self.checkpoints, self.backend, self.phases, "last", self.step)


def export(checkpoints: Any, backend: Any, phases: Phases, name: str, step: int) -> None:
    """The model as it is after `step` steps, in Hugging Face format, as `name` (best, last)."""
    with phases("checkpoint"), no_progress_bars():
        checkpoints.export(name, backend.save_pretrained, {"step": step})
