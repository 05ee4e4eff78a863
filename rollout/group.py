"""The second loop: the siblings of one task, played at the same time from the same start.

Consumes a task, produces an EpisodeGroup with all its siblings. One that fails is played again a few times; what stays
failed is in the group as it is, and `unusable` says what is to be done about it.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from agentrl.engine import Completion, Engine, GenerateRequest, Sampling
from agentrl.env import Env
from agentrl.episode import Episode, EpisodeGroup, RolloutError, as_cause
from agentrl.errors import UsageError
from agentrl.renderer import Renderer
from agentrl.sandbox import SandboxPool
from agentrl.task import Task

from .limits import Limits
from .loop import play
from .policy import Generates
from .seeds import derive

OnAbort = Literal["mask", "drop", "stop"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """All that playing needs and that stays the same over a run."""

    make_env: Callable[[], Env]
    """A new instance at each call, cheap: what costs time belongs in `reset`."""
    engine: Engine
    renderer: Renderer
    sampling: Sampling
    limits: Limits
    pool: SandboxPool | None = None
    seed: int = 0
    """The run's. Worlds and draws are derived from it, so that no two groups share a stream."""
    retries: int = 0
    """How often an aborted episode is played again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """What a group starts from."""

    id: str
    task: Task
    size: int
    """Siblings."""
    number: int = 0
    kept: Mapping[int, Episode] = field(default_factory=dict)
    """index -> siblings that were finished before a crash; they are not played again."""


@dataclass(slots=True)
class Watch:
    """The engine as one group sees it; knows the oldest policy version of the group's sampled tokens."""

    engine: Engine
    oldest: int | None = None

    @property
    def max_context(self) -> int:
        return self.engine.max_context

    async def generate(self, request: GenerateRequest) -> Completion:
        completion = await self.engine.generate(request)
        self.note(min(completion.versions, default=None))
        return completion

    def note(self, version: int | None) -> None:
        if version is not None and version >= 0:
            self.oldest = version if self.oldest is None else min(self.oldest, version)


Report = Callable[[Episode, bool], None]
"""(episode, is it final): called for each episode that ends; one that is played again is not final."""


async def play_group(setup: Setup, start: Start, *, engine: Generates, report: Report) -> EpisodeGroup:
    """All siblings, sampled by `engine` (the setup's, or a Watch on it), in order of their index.

    Raises what ends the run (see `loop.FATAL`); then no sibling goes on.
    """
    missing = [index for index in range(start.size) if index not in start.kept]
    tasks = {}
    try:
        async with asyncio.TaskGroup() as siblings:
            for index in missing:
                tasks[index] = siblings.create_task(play_sibling(setup, start, index, engine=engine, report=report))
    except ExceptionGroup as errors:
        first = errors.exceptions[0]
        raise first from first.__cause__  # not the group: what ended the run keeps what it came from
    episodes = {**start.kept, **{index: task.result() for index, task in tasks.items()}}
    return EpisodeGroup(
        id=start.id, number=start.number, task=start.task, episodes=tuple(episodes[i] for i in range(start.size))
    )


async def play_sibling(setup: Setup, start: Start, index: int, *, engine: Generates, report: Report) -> Episode:
    """One sibling, again until it is not aborted or the retries are spent. Its world starts the same, the draws differ. Raises
    UsageError for a task that cannot be copied."""
    for attempt in range(setup.retries + 1):
        episode = await play(
            setup.make_env(),
            engine,
            setup.renderer,
            _own(start.task),
            seed=derive(setup.seed, "world", start.number),
            sampling=replace(setup.sampling, seed=derive(setup.seed, "sampling", start.number, index, attempt)),
            limits=setup.limits,
            pool=setup.pool,
            id=f"{start.id}-{index}",
            group=start.id,
            index=index,
        )
        final = not episode.outcome.is_aborted or attempt == setup.retries
        report(episode, final)
        if final:
            break
    return episode


def _own(task: Task) -> Task:
    """A copy for one episode: what one does to the task's lists, no other may see."""
    try:
        return copy.deepcopy(task)
    except (TypeError, ValueError) as error:
        raise UsageError(f"task {task.id} cannot be copied for each of its episodes: {error}; a task is plain data") from error


def unusable(group: EpisodeGroup, on_abort: OnAbort) -> str:
    """Why the group must not be trained on; empty when it may. Raises RolloutError where the run is to stop."""
    broken = [e for e in group.episodes if e.outcome.is_aborted]
    if not broken:
        return ""
    if on_abort == "stop":
        raise aborted(broken[0])
    return "aborted" if on_abort == "drop" or not group.usable else ""


def aborted(episode: Episode) -> RolloutError:
    """What is said where an aborted episode ends the run."""
    error = RolloutError(f"episode {episode.id} was aborted ({episode.outcome}): {episode.reason}")
    error.__cause__ = as_cause(episode)
    return error


def all_equal(group: EpisodeGroup) -> bool:
    """No sibling did better than another, so that a group baseline leaves nothing to learn."""
    return len({episode.all_rewards for episode in group.usable}) <= 1
