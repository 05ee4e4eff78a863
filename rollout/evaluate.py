"""Playing held-out tasks. Touches neither the store nor the seeds of training; what came of it `agentrl.scores` counts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

from agentrl.episode import Episode
from agentrl.task import Task

from .group import Setup, Start, play_sibling
from .seeds import derive


async def evaluate(
    setup: Setup,
    tasks: Sequence[Task],
    *,
    samples: int,
    concurrency: int,
    progress: Callable[[Episode], None] | None = None,
) -> tuple[Episode, ...]:
    """Plays each task `samples` times, at most `concurrency` episodes at once; `progress` is told of each as it ends. Returns
    them by task, then sample, the aborted ones included.

    The same setup and tasks give the same seeds each time, and none that training has. Raises what ends a run (`loop.FATAL`).
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
    return tuple(job.result() for job in jobs)
