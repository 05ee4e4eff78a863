"""Containers that are cancelled, killed, hung, waited for and left over, and images of one's own."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time

import pytest

from agentrl.errors import UsageError
from agentrl.sandbox import IsolationError, SandboxError, SandboxLost, SandboxSpec

pytest.importorskip("docker", reason="the extra 'docker' is not installed")
from agentrl.tools.sandboxes import docker, docker_daemon, docker_image
from agentrl.tools.sandboxes.docker import DockerPool, DockerSandbox

from .conftest import CONTAINER_SPEC as SPEC
from .conftest import Background, Use
from .looking import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def test_a_cancelled_call_ends_its_program_and_leaves_the_sandbox_usable(container_sandbox: Use) -> None:
    async def work(sandbox: DockerSandbox) -> None:
        task = asyncio.ensure_future(sandbox.python("import time; open('began', 'w').close()\nwhile True: time.sleep(1)"))
        await asyncio.sleep(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        begun = time.monotonic()
        assert (await sandbox.python("import os; print(os.listdir('.'))")).stdout == "['began']\n"
        assert time.monotonic() - begun < 10  # far below the cancelled program's 20 s

    container_sandbox(work)


def test_a_container_that_is_killed_is_lost_and_the_next_one_is_not(container_sandbox: Use, containers: DockerPool) -> None:
    async def work(sandbox: DockerSandbox) -> None:
        spin = asyncio.ensure_future(sandbox.python("while True: pass"))
        await asyncio.sleep(0.5)
        await containers.threaded(containers._api.kill, sandbox.container.name)
        with pytest.raises(SandboxLost):
            await spin
        assert not await sandbox.alive()
        with pytest.raises(SandboxLost):
            await sandbox.python("print(1)")

    container_sandbox(work)
    assert container_sandbox(lambda sandbox: sandbox.python("print(1)")).stdout == "1\n"


def test_a_worker_that_hangs_is_lost(background: Background, docker_host: str) -> None:
    """A paused container stands for one: it neither answers nor ends."""

    async def main() -> None:
        async with await DockerPool.open(SPEC, 1, warm=1, grace=20.0) as pool, await pool.acquire() as sandbox:
            sandbox.container.link._grace = 0.5
            await pool.threaded(pool._api.pause, sandbox.container.name)
            with pytest.raises(SandboxLost, match="did not report within"):
                await sandbox.python("print(1)", timeout=0.2)
            assert not await sandbox.alive()

    background.run(main(), timeout=200)


def test_a_start_that_hangs_is_given_up_and_its_container_removed(docker_host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(docker, "START_TIMEOUT", 1.0)
    monkeypatch.setattr(docker_image, "START", "import time; time.sleep(100)")
    with pytest.raises(IsolationError, match="it gave no sign of life within 1 s"):
        asyncio.run(DockerPool.open(SPEC, 1, warm=1))
    listed = subprocess.run(["docker", "ps", "-a", "--no-trunc"], capture_output=True, text=True, check=True).stdout
    assert "time.sleep(100)" not in listed


def test_acquire_is_first_come_first_served_and_bounded(background: Background, docker_host: str) -> None:
    async def main() -> list[int]:
        async with await DockerPool.open(SPEC, 1) as pool:
            order: list[int] = []
            held = await pool.acquire()

            async def worker(i: int) -> None:
                async with await pool.acquire():
                    order.append(i)

            tasks = [asyncio.ensure_future(worker(i)) for i in range(4)]
            await asyncio.sleep(0.05)
            tasks[2].cancel()
            assert order == []
            await held.aclose()
            await held.aclose()
            await asyncio.gather(*tasks, return_exceptions=True)
            with pytest.raises(SandboxError, match="closed"):
                await held.python("print(1)")
            return order

    assert background.run(main(), timeout=200) == [0, 1, 3]


def test_containers_of_a_killed_process_go_and_others_stay(
    docker_host: str, containers: DockerPool, background: Background
) -> None:
    """Of one that ran, as of one that was made and never started; the next pool removes both."""
    program = """
import asyncio, os, signal
from agentrl.sandbox import SandboxSpec
from agentrl.tools.sandboxes.docker import DockerPool
async def main():
    pool = await DockerPool.open(SandboxSpec(), 1)
    sandbox = await pool.acquire()
    never = pool._api.create_container(**pool.settings())["Id"]
    print(sandbox.container.name, never, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(main())
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    ran, never = done.stdout.split()
    mine = background.run(containers.acquire())
    background.run(containers.threaded(docker_daemon.remove_left_over, containers._api))
    left = {found["Id"] for found in containers._api.containers(all=True)}
    assert never not in left
    assert mine.container.name in left
    end = time.monotonic() + 30
    while ran in left and time.monotonic() < end:  # its stdin was closed, so it ends by itself
        time.sleep(0.1)
        left = {found["Id"] for found in containers._api.containers(all=True)}
    assert ran not in left
    background.run(mine.aclose())


def test_an_image_of_ones_own(docker_host: str, background: Background) -> None:
    """Any that has a python3; here one made from the host's, with a mark."""

    async def main() -> str:
        async with await DockerPool.open(SPEC, 1, warm=1) as pool:
            base = pool._image.name
            plain = pool._api.create_container(base, entrypoint=["true"])["Id"]
            pool._api.commit(plain, repository="theirs", tag="v1", changes="ENV MARK=1")
            pool._api.remove_container(plain)
        async with (
            await DockerPool.open(SandboxSpec(packages=()), 1, image="theirs:v1", warm=1) as pool,
            await pool.acquire() as box,
        ):
            assert pool._image.name.startswith("agentrl-sandbox:on-")
            return (await box.python("import sys; print(sys.version_info >= (3, 11))")).stdout

    assert background.run(main(), timeout=300) == "True\n"


def test_mistakes_are_named(docker_host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="no runtime 'runsk'"):
        asyncio.run(DockerPool.open(SPEC, 1, runtime="runsk"))
    with pytest.raises(UsageError, match="slots"):
        asyncio.run(DockerPool.open(SPEC, 0))
    with pytest.raises(UsageError, match=r"no_such_package"):
        asyncio.run(DockerPool.open(SandboxSpec(packages=("no_such_package",)), 1))
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    with pytest.raises(IsolationError, match=r"no docker daemon answers"):
        asyncio.run(DockerPool.open(SPEC, 1))
    monkeypatch.setenv("DOCKER_HOST", "ssh://there")
    with pytest.raises(UsageError, match="must be a unix"):
        asyncio.run(DockerPool.open(SPEC, 1))
