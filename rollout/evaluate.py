"""Measuring a policy on held-out tasks. Touches neither the store nor the training's seeds."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from agentrl.episode import Episode, RolloutError
from agentrl.record import passed, wilson
from agentrl.task import Task

from .group import Setup, Start, play_sibling
from .seeds import derive


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalResult:
    """What came of it. Rates are over the episodes that were not aborted.

    >>> EvalResult(episodes=(), tasks=200, samples=1, aborted=0, passed=60, scored=200, mean_reward=0.35).pass_rate
    0.3
    """

    episodes: tuple[Episode, ...]
    """All, by task, then sample."""
    tasks: int
    samples: int
    aborted: int
    passed: int
    scored: int
    """Episodes that count: not aborted."""
    mean_reward: float

    @property
    def pass_rate(self) -> float:
        return self.passed / self.scored

    @property
    def interval(self) -> tuple[float, float]:
        """95% of `pass_rate`, by Wilson. It takes episodes as independent: with several samples of a task it is too narrow."""
        return wilson(self.passed, self.scored)

    def metrics(self) -> dict[str, float]:
        """Flat, for a log: pass rate with interval, mean reward, lengths, and the mean of each metric of the environment."""
        low, high = self.interval
        counted = [e for e in self.episodes if not e.outcome.is_aborted]
        names = sorted({name for e in counted for name in e.metrics})
        return {
            "pass_rate": self.pass_rate,
            "pass_rate_low": low,
            "pass_rate_high": high,
            "reward_mean": self.mean_reward,
            "episodes": float(len(self.episodes)),
            "aborted": float(self.aborted),
            "truncated": float(sum(e.outcome.is_truncated for e in counted)),
            "turns_mean": statistics.fmean(len(e.turns) for e in counted),
            "sampled_tokens": float(sum(t.sampled_length for e in counted for t in e.transcripts)),
            **{f"metric/{name}": statistics.fmean(e.metrics[name] for e in counted if name in e.metrics) for name in names},
        }


async def evaluate(
    setup: Setup,
    tasks: Sequence[Task],
    *,
    samples: int,
    concurrency: int,
    progress: Callable[[Episode], None] | None = None,
) -> EvalResult:
    """Plays each task `samples` times, at most `concurrency` episodes at once; `progress` is told of each.

    The same setup and tasks give the same seeds each time, and none that training has. Raises RolloutError when every
    episode was aborted.
    """
    setup = replace(setup, seed=derive(setup.seed, "evaluation"))
    free = asyncio.Semaphore(concurrency)

    def report(episode: Episode, final: bool) -> None:
        if final and progress is not None:
            progress(episode)

    async def one(number: int, sample: int) -> Episode:
        start = Start(id=f"eval{number}", task=tasks[number], size=samples, number=number)
        async with free:
            return await play_sibling(setup, start, sample, engine=setup.engine, report=report)

    try:
        async with asyncio.TaskGroup() as group:
            jobs = [group.create_task(one(number, sample)) for number in range(len(tasks)) for sample in range(samples)]
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return summarize([job.result() for job in jobs], tasks=len(tasks), samples=samples)


def summarize(episodes: Sequence[Episode], *, tasks: int, samples: int) -> EvalResult:
    """Raises RolloutError when there is nothing to count."""
    counted = [e for e in episodes if not e.outcome.is_aborted]
    if not counted:
        first = f"; the first: {episodes[0].error}" if episodes else ""
        raise RolloutError(f"all {len(episodes)} episodes of the evaluation were aborted{first}")
    return EvalResult(
        episodes=tuple(episodes),
        tasks=tasks,
        samples=samples,
        aborted=len(episodes) - len(counted),
        passed=sum(map(passed, counted)),
        scored=len(counted),
        mean_reward=statistics.fmean(e.reward for e in counted),
    )
