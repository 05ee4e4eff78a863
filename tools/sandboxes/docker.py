"""Sandboxes in containers: a hardened one for each that is acquired, with a worker inside that forks per execution.

Starting a container takes a second, `docker exec` a tenth of one; a job that is sent to the worker takes what it takes
in the local sandbox. For machines whose users may not make namespaces, for other systems than Linux, for gVisor
(`runtime="runsc"`), and for images of one's own. Talks to the daemon that DOCKER_HOST names, over a unix or TCP socket.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import json
import logging
import os
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from agentrl.errors import MissingExtra, UsageError
from agentrl.sandbox import Call, Exec, IsolationError, SandboxError, SandboxLost, SandboxSpec

from . import cgroup, docker_image, jobs
from . import docker_frames as frames
from .docker_image import Image
from .docker_link import GRACE, ContainerLink
from .fifo import Fifo
from .zygote import wire

T = TypeVar("T")
LABEL, OWNER = "agentrl.sandbox", "agentrl.owner"
IMAGE_TIMEOUT = 600.0  # seconds that a pull or an import may be silent
CALL_TIMEOUT = 30.0
"""Seconds for any other answer of the daemon: a call that hangs, which busy daemons know, is made again."""
START_TIMEOUT = 60.0
START_TRIES = 2
REMOVE_TIMEOUT = 100.0
WARM = 2
"""Containers that are started ahead of their use, at most."""
SHARED_MEMORY = 16 << 20  # bytes of /dev/shm, where semaphores of multiprocessing live
THREADS = 8  # that wait for the daemon's answers
_uids = itertools.count()

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What belongs to containers alone."""

    image: str | None = None
    """None: this machine's own Python, packed up (on Linux), with the packages of the SandboxSpec."""
    runtime: str | None = None
    """runsc | ...: one that the daemon knows; None: its default."""
    cpus: float = 1.0
    warm: int = WARM
    grace: float = GRACE


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
        if slots < 1:
            raise UsageError(f"a sandbox's slots must be at least 1, not {slots}")
        options = Options(image=image, runtime=runtime, cpus=cpus, warm=warm, grace=grace)
        pool = cls(spec, slots, options, await asyncio.to_thread(_connect))
        try:
            await pool._prepare()
        except BaseException:
            await pool.aclose()
            raise
        return pool

    async def _prepare(self) -> None:
        await self.threaded(_check, self._api, self._options.runtime)
        await self.threaded(_remove_left_over, self._api)
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
        assert self._image is not None
        name, attached = await self.threaded(_create, self._api, self._settings(self._image))
        container = Container(name=name, link=ContainerLink(attached, self._options.grace))
        try:
            await self.threaded(self._api.start, name)
            async with asyncio.timeout(START_TIMEOUT):
                await container.link.started()
        except BaseException:
            await asyncio.shield(self.remove(container))
            raise
        return container

    async def remove(self, container: Container) -> None:
        """Ends a container and waits until it is gone. Raises OSError when it cannot be removed."""
        await container.link.aclose()
        await self.threaded(_remove, self._api, container.name)

    def _settings(self, image: Image) -> dict[str, Any]:
        """The container's, as docker's create_container takes them."""
        spec, api = self.spec, self._api
        # Files are in memory, too. Should they fill it, even the worker could not go on: that much is added to the limit
        memory = spec.memory_bytes + max(0, spec.disk_bytes - spec.memory_bytes // 2) + cgroup.OVERHEAD
        inodes = max(1024, spec.disk_bytes // 8192)
        flags = "rw,nosuid,nodev,exec,mode=1777"
        host = api.create_host_config(
            network_mode="bridge" if spec.network else "none",
            read_only=True,
            cap_drop=["ALL"],
            security_opt=["no-new-privileges"],
            pids_limit=spec.pids + 1,  # the worker is one
            mem_limit=memory,
            memswap_limit=memory,
            nano_cpus=round(self._options.cpus * 1e9),
            ipc_mode="private",
            tmpfs={
                "/tmp": f"{flags},size={spec.disk_bytes},nr_inodes={inodes}",
                "/dev/shm": f"{flags},size={SHARED_MEMORY},nr_inodes=256",
            },
            ulimits=[{"Name": "nofile", "Soft": 1024, "Hard": 1024}, {"Name": "core", "Soft": 0, "Hard": 0}],
            log_config={"Type": "none", "Config": {}},
            runtime=self._options.runtime,
            auto_remove=True,
        )
        uid = docker_image.FIRST_UID + next(_uids) % docker_image.UIDS
        return {
            "image": image.name,
            "entrypoint": [
                image.python,
                "-I",
                "-S" if image.import_path else "-I",
                "-B",
                "-X",
                "utf8",
                "-c",
                docker_image.START,
            ],
            "command": [json.dumps(self._worker_settings(image))],
            "user": f"{uid}:{uid}",
            "hostname": "sandbox",
            "stdin_open": True,  # with what it attaches to: closed with the connection, when we end in whatever way
            "labels": {LABEL: _machine(), OWNER: _owner()},
            "host_config": host,
        }

    def _worker_settings(self, image: Image) -> dict[str, Any]:
        spec = self.spec
        paths = {"PYTHONPATH": ":".join(image.import_path)} if image.import_path else {}
        return {
            "memory": spec.memory_bytes,
            "pids": spec.pids,
            "disk": spec.disk_bytes,
            "cpu": spec.cpu,
            "network": spec.network,
            "env": {"PATH": image.path, **paths, **(spec.env or {})},
            "import_path": image.import_path,
            "preload": image.preload,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    name: str
    """Docker's id of it."""
    link: ContainerLink


class DockerSandbox:
    """One container, held until `aclose`. Calls are done one after the other, in the order they came."""

    def __init__(self, pool: DockerPool, slot: int, container: Container) -> None:
        self.container = container
        self._pool, self._slot, self._spec = pool, slot, pool.spec
        self._turn = asyncio.Lock()
        self._closed = False

    async def run(self, argv: Sequence[str] | str, *, stdin: str = "", timeout: float | None = None) -> Exec:
        """Runs a program: a list of arguments, or a text for /bin/sh. Raises SandboxLost."""
        arguments = ["/bin/sh", "-c", argv] if isinstance(argv, str) else list(argv)
        if not arguments or any("\0" in argument for argument in arguments):
            raise ValueError(f"{argv!r} is no list of arguments")
        async with self._turn:
            return await self._program(wire.EXEC, "\0".join(arguments), stdin, timeout)

    async def python(self, code: str, *, stdin: str = "", timeout: float | None = None) -> Exec:
        """Runs Python code in a fresh interpreter. Raises SandboxLost."""
        async with self._turn:
            return await self._program(wire.PYTHON, code, stdin, timeout)

    async def run_many(
        self, programs: Sequence[str], *, stdins: Sequence[str] | None = None, timeout: float | None = None
    ) -> list[Exec]:
        """Runs Python programs, each in a fresh interpreter; `timeout` seconds each. Raises SandboxLost.

        None sees a process, memory or new file of another; changes to files that were there before remain.
        """
        inputs = [""] * len(programs) if stdins is None else list(stdins)
        async with self._turn:
            await self._live().mark()
            return [
                await self._program(wire.PYTHON, code, stdin, timeout, wire.TIDY)
                for code, stdin in zip(programs, inputs, strict=True)
            ]

    async def call_many(
        self, code: str, function: str, inputs: Sequence[Sequence[Any]], *, timeout: float, total: float | None = None
    ) -> list[Call]:
        """Calls a function that `code` defines, once per tuple of arguments. See agentrl.sandbox.Sandbox.call_many."""

        async def attempt(rest: Sequence[str], seconds: float) -> jobs.Attempt:
            request = json.dumps({"code": code, "function": function, "inputs": list(rest)}).encode()
            async with self._turn:
                done = await self._live().run(
                    wire.CALL, self._fitting(request), err=jobs.MAX_PATH, kind=frames.FIXED,
                    room=min(jobs.RESULTS_LIMIT, self._spec.disk_bytes), timeout=seconds, case_timeout=timeout,
                )  # fmt: skip
            return jobs.read_attempt(done.data, len(rest), done.report)

        return await jobs.call_until_done(attempt, inputs, timeout=timeout, total=total)

    async def write(self, path: str, data: bytes) -> None:
        """Writes a file below the working folder. Raises ValueError for a path that leaves it, OSError, SandboxLost."""
        if len(data) > self._spec.disk_bytes:
            raise OSError(f"{path!r}: {len(data)} bytes are more than the disk limit")
        async with self._turn:
            text = jobs.checked(path)
            done = await self._live().run(wire.WRITE, data, text=text, err=jobs.MAX_PATH, timeout=self._spec.timeout)
        jobs.raise_for(done.report, path, done.err)

    async def read(self, path: str) -> bytes:
        """Reads a file below the working folder. Raises FileNotFoundError, ValueError, OSError, SandboxLost."""
        async with self._turn:
            text, timeout = jobs.checked(path), self._spec.timeout
            done = await self._live().run(wire.READ, b"", text=text, err=jobs.MAX_PATH, kind=frames.GROWING, timeout=timeout)
        jobs.raise_for(done.report, path, done.err)
        return done.data

    async def alive(self) -> bool:
        return not (self._closed or self.container.link.dead)

    async def aclose(self) -> None:
        """Kills what runs, and removes the container. Idempotent."""
        if not self._closed:
            self._closed = True
            await asyncio.shield(self._pool.release(self._slot, self.container))

    async def __aenter__(self) -> DockerSandbox:
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self.aclose()

    async def _program(self, mode: bytes, text: str, stdin: str, timeout: float | None, flags: int = 0) -> Exec:
        seconds = self._spec.timeout if timeout is None else min(timeout, self._spec.timeout)
        limit = min(self._spec.output_bytes, self._spec.disk_bytes)
        given = self._fitting(stdin.encode("utf-8", "surrogatepass"))
        code = self._fitting(text.encode("utf-8", "surrogatepass"))
        done = await self._live().run(
            mode, code, out=limit, err=limit, data=given,
            kind=frames.INPUT if given else frames.NONE, timeout=seconds, flags=flags,
        )  # fmt: skip
        return jobs.as_exec(done.report, (done.out[:limit], len(done.out) > limit), (done.err[:limit], len(done.err) > limit))

    def _fitting(self, data: bytes) -> bytes:
        """The worker, which holds it as a file, keeps to the limit of its programs. Raises ValueError."""
        if len(data) > self._spec.disk_bytes:
            raise ValueError(f"{len(data)} bytes of code or input are more than the sandbox's disk limit")
        return data

    def _live(self) -> ContainerLink:
        if self._closed:
            raise SandboxError("the sandbox is closed")
        if self.container.link.dead:
            raise SandboxLost("the container has ended; its files are gone")
        return self.container.link


async def _already(container: Container) -> Container:
    return container


def _connect() -> Any:
    try:
        import docker
        import docker.utils
    except ImportError:
        raise MissingExtra("docker", extra="docker") from None
    settings = docker.utils.kwargs_from_env()
    address = settings.get("base_url", "unix://")
    if not address.startswith(("unix://", "tcp://", "http://")) or settings.get("tls"):
        raise UsageError(f"DOCKER_HOST={address} must be a unix:// or tcp:// address without TLS; an ssh tunnel gives one")
    try:
        api = docker.APIClient(version="auto", timeout=IMAGE_TIMEOUT, max_pool_size=4 * THREADS, **settings)
        api.ping()
    except docker.errors.DockerException as error:
        raise IsolationError(
            f"no docker daemon answers ({error}); start one, or set DOCKER_HOST. sandbox=local needs none on Linux"
        ) from None
    return api


def _check(api: Any, runtime: str | None) -> None:
    """What the daemon says that it cannot hold to must not be asked of it in silence. Raises IsolationError."""
    about = api.info()
    if about.get("OSType", "linux") != "linux":
        raise IsolationError(f"the docker daemon runs {about['OSType']} containers; the sandbox needs Linux ones")
    for key, what in (("MemoryLimit", "memory"), ("PidsLimit", "processes"), ("CpuCfsQuota", "CPU")):
        if not about.get(key, True):
            raise IsolationError(f"this docker daemon cannot limit {what} (its {key} is false); rootless ones need cgroup v2")
    if not about.get("SwapLimit", True):
        log.warning("this docker daemon cannot limit swap: a sandbox may swap beyond its memory")
    if runtime is not None and runtime not in about.get("Runtimes", {runtime: {}}):
        raise UsageError(f"the docker daemon knows no runtime {runtime!r}, only {', '.join(about['Runtimes'])}")


def _create(api: Any, settings: dict[str, Any]) -> tuple[str, Any]:
    """(id, connection): attached before it starts, so that not a byte is missed."""
    name = api.create_container(**settings)["Id"]
    try:
        return name, api.attach_socket(name, {"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1})
    except BaseException:
        api.remove_container(name, force=True)
        raise


def _remove(api: Any, name: str) -> None:
    """Returns when it is gone; one that is on its way out already counts once it is."""
    from docker.errors import NotFound

    end = time.monotonic() + REMOVE_TIMEOUT
    while True:
        try:
            api.remove_container(name, force=True, v=True)
            return
        except NotFound:
            return
        except OSError:
            if time.monotonic() >= end:
                raise
            time.sleep(0.05)


def _remove_left_over(api: Any) -> None:
    """Containers of processes of this machine that are no more."""
    for found in api.containers(all=True, filters={"label": f"{LABEL}={_machine()}"}):
        if _is_gone(found["Labels"].get(OWNER, "")):
            log.warning("removing the container %s, which a process that is gone has left", found["Id"][:12])
            with contextlib.suppress(OSError):  # someone else removes it, too
                _remove(api, found["Id"])


def _machine() -> str:
    """Where process numbers mean the same: this machine, since its start, in this pid namespace."""
    if not sys.platform.startswith("linux"):
        return socket.gethostname()
    with open("/proc/sys/kernel/random/boot_id") as file:
        return f"{file.read().strip()}-{os.stat('/proc/self/ns/pid').st_ino}"


def _owner() -> str:
    return cgroup.process_tag() if sys.platform.startswith("linux") else f"{os.getpid()}"


def _is_gone(owner: str) -> bool:
    if sys.platform.startswith("linux"):
        return cgroup.is_left_over(f"{cgroup.PREFIX}-{owner}-")
    try:
        os.kill(int(owner), 0)
    except ProcessLookupError:
        return True
    except (OSError, ValueError):
        return False
    return False
