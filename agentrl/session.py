"""A training run while it goes on: what is done after each step, at the end, and when it is told to stop.

Stands between `trainers.loop` and everything that is not learning: stop requests, evaluations, checkpoints, rows, reports.
Consumes groups from the rollout manager and hands them through. What it holds was opened, and is closed, by `agentrl.run`.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from agentrl import heap, report
from agentrl.assembly import for_evaluation, part, tool_names
from agentrl.config import Config
from agentrl.engine import Engine
from agentrl.episode import EpisodeGroup, EpisodeSource, RolloutError
from agentrl.live import Watch
from agentrl.model_wheel import no_progress_bars
from agentrl.phases import Phases
from agentrl.record import of_groups
from agentrl.rundir import RunDir, replace_text
from agentrl.scores import Evaluations, Score
from agentrl.stop import Stop
from agentrl.task import Task
from agentrl.trackers import Tracker
from agentrl.weights import WeightTransport

NO_TOOLS_AFTER = 3
"""Steps without a single tool call after which it is said: a tool that cannot be reached is else never noticed."""


@dataclass(slots=True, kw_only=True)
class Session:
    """One run. Plays the source and the transport for the training loop, each with a stopwatch around the real one."""

    run: RunDir
    config: Config
    source: EpisodeSource
    transport: WeightTransport
    trainer: Any
    engine: Engine
    backend: Any
    checkpoints: Any
    evaluations: Evaluations
    setup: Any
    held_out: Sequence[Task]
    trackers: Sequence[Tracker]
    watch: Watch
    phases: Phases
    stop: Stop
    pauses: bool
    """The engine reads the trainer's own parameters, so that it must not sample while they change."""
    step: int
    """Steps done."""
    saved: int
    """Steps done at the last checkpoint."""
    rows: list[Mapping[str, Any]] = field(default_factory=list)
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
                await self.evaluate()
        finally:
            self._log(step, metrics)
        if step == NO_TOOLS_AFTER:
            self._look_at_tools()

    def _log(self, step: int, metrics: Mapping[str, float]) -> None:
        """A step that is replayed has its row already."""
        known = any(row["step"] == step for row in self.rows)
        row = self._row(step, metrics)  # sets the stopwatch back in any case
        if known:
            return
        self.rows.append(row)
        for tracker in self.trackers:
            tracker.log(row)
        self.watch.step(row)

    # What is done besides

    async def evaluate(self) -> Score | None:
        """On the held-out tasks, once for each step; keeps the best policy. Raises Stopped, RolloutError."""
        known = self.evaluations.get(self.step)
        if known is not None or not self.held_out:
            return known
        with self.phases("eval"):
            result = await self.stop.unless(self._evaluate())
            score = self.evaluations.add(self.step, result.episodes)
        self.watch.note(f"step {self.step}: {score}, on {len(self.held_out)} held-out tasks")
        best = max(self.evaluations.scores, key=lambda s: (s.pass_rate, s.reward, -s.step))
        if best is score and self.step:
            self._export("best")
        return score

    async def _evaluate(self) -> Any:
        return await part("rollout.evaluate:evaluate")(
            for_evaluation(self.config, self.setup),
            self.held_out,
            samples=self.config.eval.samples,
            concurrency=self.config.engine.slots,
            progress=counter(self.watch, "evaluation", len(self.held_out) * self.config.eval.samples),
        )

    def settle(self) -> None:
        """What is kept whenever a run ends well or is stopped: a checkpoint to go on from, and the model as it is."""
        if self.saved < self.step:
            self.save(self.step)
        self._export("last")

    def _export(self, name: str) -> None:
        with self.phases("checkpoint"), no_progress_bars():
            self.checkpoints.export(name, self.backend.save_pretrained)

    def write_report(self, changed: Mapping[str, str]) -> list[Path]:
        scores = self.evaluations.scores
        whole = scores if len(scores) > 1 else []
        return report.write(
            self.run.report,
            title=self.run.name,
            rows=self.rows,
            scores=scores,
            first=self.evaluations.episodes(whole[0].step) if whole else (),
            last=self.evaluations.episodes(whole[-1].step) if whole else (),
            changed=changed,
        )

    def write_result(self, status: str, seconds: float) -> None:
        scores = [asdict(score) for score in self.evaluations.scores]
        result = {"status": status, "steps": self.step, "seconds": round(seconds, 3), "scores": scores}
        replace_text(self.run.result, json.dumps(result, indent=1) + "\n")

    def _row(self, step: int, metrics: Mapping[str, float]) -> dict[str, Any]:
        """Episodes' numbers come from the episodes that were trained on; `rollout/...` from all that were played meanwhile."""
        engine = {f"engine/{name}": value for name, value in self.engine.metrics().items()}
        score = self.evaluations.get(step)
        return {
            "step": step,
            **metrics,
            **of_groups(self.groups),
            **engine,
            **(score.metrics() if score else {}),
            **self.phases.take(),
            "time/train": metrics.get("step_s", 0.0),
            "memory_gib": peak_memory() / (1 << 30),
        }

    def _look_at_tools(self) -> None:
        called = sum(float(row.get("tool_calls", 0)) for row in self.rows)
        names = tool_names(self.setup.make_env())
        if names and not called:
            self.watch.note(f"note: in {NO_TOOLS_AFTER} steps no episode has called a tool ({', '.join(names)})")


def counter(watch: Watch, name: str, total: int) -> Callable[[Any], None]:
    """Shows how many of `total` are done, each time it is called."""
    done = 0

    def count(_: Any) -> None:
        nonlocal done
        done += 1
        watch.progress(name, done, total)

    return count


def peak_memory() -> int:
    """Bytes that this process has had resident at most."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
