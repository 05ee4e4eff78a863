"""Pools that live as long as the session, on an event loop of their own, so that tests are plain functions."""

from __future__ import annotations

import asyncio
import subprocess
import tempfile
import threading
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from agentrl.sandbox import Exec, IsolationError, SandboxSpec
from agentrl.tools.sandboxes.local import LocalPool
from tests.support.dockerd import Unavailable, docker_daemon
from tests.support.isolation import absent, missing

T = TypeVar("T")
Python = Callable[..., Exec]
"""Runs Python code: text, then the options of Sandbox.python."""
Use = Callable[[Any], Any]
"""Runs `await work(sandbox)`."""
SPEC = SandboxSpec(memory="256M", pids=64, disk="64M", output="64K", timeout=60.0, cpu=30.0)
CONTAINER_SPEC = SandboxSpec(memory="256M", pids=64, disk="64M", output="64K", timeout=20.0, cpu=15.0)
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


def pick(pools: dict[str, Local | str], name: str) -> Local:
    """That level's pool. Skips the test where this machine has none, or fails it; see support/isolation.py."""
    found = pools[name]
    if isinstance(found, str):
        absent(name, found)
    return found


@pytest.fixture(params=list(LEVELS))
def each(request: pytest.FixtureRequest, pools: dict[str, Local | str]) -> Local:
    """Every level of isolation that this machine has."""
    return pick(pools, request.param)


@pytest.fixture
def best(pools: dict[str, Local | str]) -> Local:
    found = next((pool for pool in pools.values() if isinstance(pool, Local)), None)
    if found is None:
        missing("this machine gives no isolation at all")
    return found


@pytest.fixture(scope="package")
def docker_host() -> Iterator[str]:
    """A docker daemon of our own, which DOCKER_HOST names meanwhile."""
    try:
        with docker_daemon(Path(tempfile.mkdtemp(prefix="dk"))) as address, pytest.MonkeyPatch.context() as patch:
            patch.setenv("DOCKER_HOST", address)
            yield address
            left = subprocess.run(["docker", "ps", "-aq"], capture_output=True, text=True, check=True).stdout
            assert left == "", "containers are left over"
    except Unavailable as error:
        missing(str(error))


@pytest.fixture(scope="package")
def containers(docker_host: str, background: Background) -> Iterator[Any]:
    """A pool of them."""
    from agentrl.tools.sandboxes.docker import DockerPool  # needs the extra

    made = background.run(DockerPool.open(CONTAINER_SPEC, 3), timeout=300)
    yield made
    background.run(made.aclose())


@pytest.fixture
def container_sandbox(containers: Any, background: Background) -> Callable[[Any], Any]:
    """Runs `await work(sandbox)` with a fresh one."""

    def run(work: Any) -> Any:
        async def main() -> Any:
            async with await containers.acquire() as sandbox:
                return await work(sandbox)

        return background.run(main(), timeout=200)

    return run


@pytest.fixture(scope="module")
def container(containers: Any, background: Background) -> Iterator[Python]:
    """Python in one and the same container, for code that does no harm to it."""
    sandbox = background.run(containers.acquire())
    yield lambda code, **options: background.run(sandbox.python(code, **options))
    background.run(sandbox.aclose())
