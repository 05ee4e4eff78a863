"""Sandboxes in containers: a hardened one for each that is acquired, with a worker inside that forks per execution.

Starting a container takes a second, `docker exec` a tenth of one; a job that is sent to the worker takes what it takes
in the local sandbox. For machines whose users may not make namespaces, for other systems than Linux, for gVisor
(`runtime="runsc"`), and for images of one's own.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from agentrl.errors import UsageError
from agentrl.sandbox import IsolationError, SandboxError, SandboxLost, SandboxSpec

from . import docker_daemon as daemon
from . import docker_image, systems
from .docker_daemon import THREADS, Options
from .docker_image import Image
from .docker_link import GRACE, ContainerLink
from .fifo import Fifo
from .slot_sandbox import SlotSandbox

T = TypeVar("T")
CALL_TIMEOUT = 30.0
"""Seconds for any answer of the daemon but an image's: a call that hangs, which busy daemons know, is made again."""
START_TIMEOUT = 60.0
START_TRIES = 2
WARM = 2
"""Containers that are started ahead of their use, at most."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    name: str
    """Docker's id of it."""
    link: ContainerLink


class DockerPool:
    """Sandboxes in containers. Made by `open`; used by one event loop.

    >>> pool = await DockerPool.open(SandboxSpec(), slots=2)         # doctest: +SKIP
    >>> sandbox = await pool.acquire()                               # doctest: +SKIP
    >>> (await sandbox.python("print(1 + 1)")).stdout                # doctest: +SKIP
    '2\\n'
    """

    isolation = "namespace+cgroup"

    def __init__(self, spec: SandboxSpec, slots: int, options: Options, api: Any) -> None:
        self.spec, self._options, self._api = spec, options, api
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="docker")
        self._free: Fifo[int] = Fifo()
        for slot in range(slots):
            self._free.put(slot)
        self._warm: deque[asyncio.Task[Container]] = deque()
        self._warm_count = min(slots, options.warm)
        self._image: Image | None = None
        self._closed = False

    @classmethod
    async def open(
        cls,
        spec: SandboxSpec | None = None,
        slots: int = 8,
        *,
        image: str | None = None,
        runtime: str | None = None,
        cpus: float = 1.0,
        warm: int = WARM,
        grace: float = GRACE,
    ) -> DockerPool:
        """`slots` containers in use at once, each with `cpus` cores, and up to `warm` that wait for their use.

        Removes containers that earlier, killed processes have left. Raises MissingExtra, UsageError, IsolationError.
        """
        spec = spec or SandboxSpec()
        systems.check("docker")
        if slots < 1:
            raise UsageError(f"a sandbox's slots must be at least 1, not {slots}")
        options = Options(image=image, runtime=runtime, cpus=cpus, warm=warm, grace=grace)
        pool = cls(spec, slots, options, await asyncio.to_thread(daemon.connect))
        try:
            await pool._prepare()
        except BaseException:
            await pool.aclose()
            raise
        return pool

    async def _prepare(self) -> None:
        await self.threaded(daemon.check, self._api, self._options.runtime)
        await self.threaded(daemon.remove_left_over, self._api)
        try:
            self._image = await self.threaded(docker_image.prepare, self._api, self.spec.packages, self._options.image)
            self._api.timeout = CALL_TIMEOUT
            first = await self._start()
        except (SandboxError, OSError) as error:  # the daemon's answers are OSErrors, as those of requests are
            raise IsolationError(f"no container can be started: {error}") from None
        self._warm.append(asyncio.create_task(_already(first)))
        self._warm_up()

    def _warm_up(self) -> None:
        while len(self._warm) < self._warm_count and not self._closed:
            self._warm.append(asyncio.create_task(self._start()))

    async def acquire(self) -> DockerSandbox:
        """A fresh container; waits in arrival order while all are in use. Raises SandboxError."""
        slot = None if self._closed else await self._free.get()
        if slot is None:
            raise SandboxError("the pool is closed")
        try:
            return DockerSandbox(self, slot, await self._take())
        except BaseException:
            self._free.put(slot)
            raise

    async def _take(self) -> Container:
        while True:
            ahead = self._warm.popleft() if self._warm else asyncio.create_task(self._start())
            try:
                container = await asyncio.shield(ahead)
            except asyncio.CancelledError:
                self._warm.appendleft(ahead)  # for the next one, or for `aclose` to remove
                raise
            except OSError as error:
                raise SandboxError(f"no container can be started: {error}") from error
            if not container.link.dead:
                self._warm_up()
                return container
            await self.remove(container)  # it waited too long for someone's taste

    async def release(self, slot: int, container: Container) -> None:
        try:
            await self.remove(container)
        finally:
            self._free.put(slot)

    async def aclose(self) -> None:
        """Removes all containers that wait; those in use end with their sandboxes. Idempotent."""
        self._closed = True
        self._free.clear()
        waiting, self._warm = list(self._warm), deque()
        for found in await asyncio.gather(*waiting, return_exceptions=True):
            if isinstance(found, Container):
                await self.remove(found)
        await asyncio.to_thread(self._threads.shutdown)
        await asyncio.to_thread(self._api.close)

    async def __aenter__(self) -> DockerPool:
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self.aclose()

    async def threaded(self, function: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, functools.partial(function, *arguments))

    async def _start(self) -> Container:
        """Raises SandboxLost, OSError."""
        for tries in range(1, START_TRIES + 1):
            try:
                return await self._start_once()
            except OSError as error:
                if tries == START_TRIES:
                    raise
                log.warning("a container did not start (%s); trying again", error or type(error).__name__)
        raise AssertionError("the last try returns or raises")

    async def _start_once(self) -> Container:
        name, attached = await self.threaded(daemon.create, self._api, self.settings())
        container = Container(name=name, link=ContainerLink(attached, self.spec.disk_bytes, self._options.grace))
        try:
            await self.threaded(self._api.start, name)
            async with asyncio.timeout(START_TIMEOUT):
                await container.link.started()
        except TimeoutError:
            await self.remove(container)
            raise TimeoutError(f"it gave no sign of life within {START_TIMEOUT:g} s") from None
        except BaseException:
            await asyncio.shield(self.remove(container))
            raise
        return container

    def settings(self) -> dict[str, Any]:
        """Of the next container."""
        assert self._image is not None
        return daemon.settings(self._api, self.spec, self._options, self._image)

    async def remove(self, container: Container) -> None:
        """Ends a container and waits until it is gone. Raises OSError when it cannot be removed."""
        await container.link.aclose()
        await self.threaded(daemon.remove, self._api, container.name)


class DockerSandbox(SlotSandbox):
    """One container, held until `aclose`."""

    def __init__(self, pool: DockerPool, slot: int, container: Container) -> None:
        super().__init__(pool.spec)
        self.container = container
        self._pool, self._slot = pool, slot

    async def alive(self) -> bool:
        return not (self._closed or self.container.link.dead)

    async def aclose(self) -> None:
        """Kills what runs, and removes the container. Idempotent."""
        if not self._closed:
            self._closed = True
            await asyncio.shield(self._pool.release(self._slot, self.container))

    def _live(self) -> ContainerLink:
        if self._closed:
            raise SandboxError("the sandbox is closed")
        if self.container.link.dead:
            raise SandboxLost("the container has ended; its files are gone")
        return self.container.link


async def _already(container: Container) -> Container:
    return container
