"""A rollout manager for one test, over the fake engine: opened, closed, and what tests ask its batches."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

from agentrl.rollout.manager import RolloutManager, Schedule
from agentrl.rollout.store import GroupStore

from .engine import FakeEngine
from .episodes import Numbered
from .rollouts import schedule, setup


@asynccontextmanager
async def managed(folder: Path, engine: Any, *, step: int = 0, version: int = 0, **more: Any) -> AsyncIterator[Any]:
    """(manager, store, engine)."""
    scheduled = {f.name: more.pop(f.name) for f in fields(Schedule) if f.name in more}
    tasks = more.pop("tasks", Numbered())
    engine = engine if isinstance(engine, FakeEngine) else FakeEngine(engine)
    made = setup(engine, **more)
    store = GroupStore(folder)
    async with RolloutManager(made, tasks, store, schedule=schedule(**scheduled), step=step, version=version) as manager:
        yield manager, store, engine
    store.close()


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(main(), 280))  # a hang; a busy machine takes its time


def numbers(groups: Any) -> list[int]:
    return [g.number for g in groups]


def versions(groups: Any) -> set[int]:
    return {v for g in groups for e in g.episodes for t in e.transcripts for v in t.versions if v >= 0}


async def trained(manager: RolloutManager, engine: FakeEngine, batch: Any, step: int) -> None:
    await engine.update(step)
    await manager.trained(batch, step=step, version=step)
