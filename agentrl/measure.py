"""Measuring a model on held-out tasks, outside of a run: what `agentrl eval` does.

Waits for: the episodes, each bounded by its deadlines. Unblocked by: the last of them, or a stop, after which what has
been played so far counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

from agentrl import assembly, models
from agentrl.config import Config
from agentrl.episode import Episode
from agentrl.errors import UsageError
from agentrl.evaluator import counter
from agentrl.live import Watch
from agentrl.opening import check_first_prompts, open_place
from agentrl.scores import Score, score
from agentrl.stop import Stop, Stopped, signals
from agentrl.task import Task

STOPPING = "stopping: what has been played so far is counted; once more stops at once"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What an evaluation has come to; of one that was stopped, so far.

    >>> Measured(what="tiny (random)", score=score(0, []), episodes=(), planned=200).stopped
    True
    """

    what: str
    """The model that was measured; of a run, which checkpoint, and after how many steps."""
    score: Score
    episodes: tuple[Episode, ...]
    planned: int
    """Episodes that were to be played."""

    @property
    def stopped(self) -> bool:
        return len(self.episodes) < self.planned


async def measure(config: Config, watch: Watch) -> Measured:
    """`config.model` on the held-out tasks. Raises UsageError, IsolationError, EngineError, RolloutError."""
    async with AsyncExitStack() as stack:
        stop = Stop()
        stack.enter_context(signals(stop, watch.note, STOPPING))
        place = await open_place(stack, config, watch)
        if not place.held_out:
            raise UsageError("eval.tasks=0 leaves nothing to evaluate")
        watch.note(f"loading the model {config.model.id}")
        assembly.set_threads(config)
        loaded = models.load(config.model.id, dtype=config.model.dtype)
        step = assembly.exported_step(loaded.folder)
        setup = _setup(stack, config, place, loaded)
        await check_first_prompts(setup, place.held_out, watch)
        what, planned = _what(loaded, step), len(place.held_out) * config.eval.samples
        watch.begin(f"{what} in {config.env.id}: {len(place.held_out)} held-out tasks", steps=0)
        stack.callback(watch.close)
        episodes = await _play(config, setup, place.held_out, stop, counter(watch, "evaluation", planned))
    return Measured(what=what, score=score(step or 0, episodes), episodes=episodes, planned=planned)


def _setup(stack: AsyncExitStack, config: Config, place: Any, loaded: models.Loaded) -> Any:
    renderer = assembly.renderer(config, loaded.tokenizer, tools=bool(assembly.tool_names(place.world.make())))
    engine = assembly.engine(config, loaded.model, loaded.tokenizer)
    stack.push_async_callback(engine.aclose)
    return assembly.setup(config, place.world, assembly.resuming(config, engine, loaded.tokenizer), renderer, place.pool)


async def _play(
    config: Config, setup: Any, tasks: Sequence[Task], stop: Stop, shown: Callable[[Episode], None]
) -> tuple[Episode, ...]:
    """All episodes, in the order of their tasks; after a stop, those that had ended, in the order in which they did."""
    ended: list[Episode] = []

    def progress(episode: Episode) -> None:
        ended.append(episode)
        shown(episode)

    try:
        return await stop.unless(assembly.play_held_out(config, setup, tasks, progress))
    except Stopped:
        return tuple(ended)


def _what(loaded: models.Loaded, step: int | None) -> str:
    if loaded.folder is None or step is None:
        return f"{loaded.id} ({loaded.source})"
    return f"{loaded.folder} ({loaded.folder.name}, after {step} training steps)"
