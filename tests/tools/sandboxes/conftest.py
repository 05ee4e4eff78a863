"""Pools that live as long as the session, on an event loop of their own, so that tests are plain functions."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar

import pytest

from agentrl.sandbox import Exec, IsolationError, SandboxSpec
from agentrl.tools.sandboxes.local import LocalPool
from tests.support.isolation import missing

T = TypeVar("T")
SPEC = SandboxSpec(memory="256M", pids=64, disk="64M", output="64K", timeout=60.0, cpu=30.0)
LEVELS = {
    "namespace+cgroup": ("namespace", True),
    "namespace": ("namespace", False),
    "landlock": ("landlock", False),
}


class Background:
    """An event loop in a thread."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()

    def run(self, work: Coroutine[Any, Any, T], timeout: float = 120.0) -> T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(timeout)

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()


class Local:
    """A pool and its loop."""

    def __init__(self, background: Background, pool: LocalPool) -> None:
        self.background, self.pool, self.run = background, pool, background.run

    def python(self, code: str, **options: Any) -> Exec:
        """In a fresh sandbox."""

        async def work() -> Exec:
            async with await self.pool.acquire() as sandbox:
                return await sandbox.python(code, **options)

        return self.run(work())


@pytest.fixture(scope="session")
def background() -> Iterator[Background]:
    made = Background()
    yield made
    made.close()


@pytest.fixture(scope="session")
def pools(background: Background) -> Iterator[dict[str, Local | str]]:
    """Each level's pool, or why this machine has none."""
    opened: dict[str, Local | str] = {}
    for name, (level, use_cgroup) in LEVELS.items():
        try:
            pool = background.run(LocalPool.open(SPEC, 3, level=level, use_cgroup=use_cgroup))
        except IsolationError as error:
            opened[name] = str(error)
            continue
        if pool.isolation == name:
            opened[name] = Local(background, pool)
        else:
            opened[name] = f"{name} is not to be had here, only {pool.isolation}"
            background.run(pool.aclose())
    yield opened
    for made in opened.values():
        if isinstance(made, Local):
            background.run(made.pool.aclose())


def _pick(pools: dict[str, Local | str], name: str) -> Local:
    found = pools[name]
    if isinstance(found, str):
        if name == "namespace":
            missing(found)
        pytest.skip(found)  # landlock is a matter of the kernel, control groups of who owns them
    return found


@pytest.fixture(params=list(LEVELS))
def each(request: pytest.FixtureRequest, pools: dict[str, Local | str]) -> Local:
    """Every level of isolation that this machine has."""
    return _pick(pools, request.param)


@pytest.fixture
def best(pools: dict[str, Local | str]) -> Local:
    found = next((pool for pool in pools.values() if isinstance(pool, Local)), None)
    if found is None:
        missing("this machine gives no isolation at all")
    return found
