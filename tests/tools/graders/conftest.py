"""Sandboxes for graders: one pool with pytest inside, one without. They live as long as the session."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from agentrl.sandbox import IsolationError, SandboxSpec
from agentrl.tools.graders.hidden_tests import PYTEST_PACKAGES
from agentrl.tools.sandboxes.local import LocalPool
from tests.support.isolation import missing

InSandbox = Callable[[Callable[[Any], Any]], Any]
"""Runs `await work(sandbox)` with a fresh sandbox."""


@pytest.fixture(scope="session")
def run() -> Iterator[Callable[[Any], Any]]:
    """Runs a coroutine on one event loop, in a thread."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    yield lambda work: asyncio.run_coroutine_threadsafe(work, loop).result(120)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def _opened(run: Callable[[Any], Any], packages: tuple[str, ...]) -> Iterator[InSandbox]:
    try:
        pool = run(LocalPool.open(SandboxSpec(memory="256M", packages=packages, timeout=20.0, cpu=15.0), 1))
    except IsolationError as error:
        missing(str(error))

    def within(work: Callable[[Any], Any]) -> Any:
        async def go() -> Any:
            async with await pool.acquire() as sandbox:
                return await work(sandbox)

        return run(go())

    yield within
    run(pool.aclose())


@pytest.fixture(scope="session")
def plain(run: Callable[[Any], Any]) -> Iterator[InSandbox]:
    """A sandbox without pytest."""
    yield from _opened(run, ())


@pytest.fixture(scope="session")
def with_pytest(run: Callable[[Any], Any]) -> Iterator[InSandbox]:
    yield from _opened(run, PYTEST_PACKAGES)


@pytest.fixture(params=["plain", "with_pytest"])
def each(request: pytest.FixtureRequest) -> InSandbox:
    return request.getfixturevalue(request.param)
