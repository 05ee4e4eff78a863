"""What is asked of the docker daemon: its limits, a container of the right kind, and that none is left. All of it blocks.

Talks to the daemon that DOCKER_HOST names, over a unix or TCP socket; `api` is docker.APIClient.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import os
import socket
import sys
import time
from dataclasses import dataclass
from typing import Any

from agentrl.errors import MissingExtra, UsageError
from agentrl.sandbox import IsolationError, SandboxSpec

from . import cgroup, docker_image
from .docker_image import Image

LABEL, OWNER = "agentrl.sandbox", "agentrl.owner"
IMAGE_TIMEOUT = 600.0  # seconds that a pull or an import may be silent
REMOVE_TIMEOUT = 100.0
SHARED_MEMORY = 16 << 20  # bytes of /dev/shm, where semaphores of multiprocessing live
THREADS = 8  # that wait for the daemon's answers
_uids = itertools.count()

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What belongs to containers alone."""

    image: str | None
    """None: this machine's own Python, packed up (on Linux), with the packages of the SandboxSpec."""
    runtime: str | None
    """runsc | ...: one that the daemon knows; None: its default."""
    cpus: float
    warm: int
    """Containers that are started ahead of their use, at most."""
    grace: float
    """Seconds beyond its deadline that a worker may take to report."""


def connect() -> Any:
    """Raises MissingExtra, UsageError, IsolationError."""
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


def check(api: Any, runtime: str | None) -> None:
    """What the daemon says that it cannot hold to must not be asked of it in silence. Raises IsolationError, UsageError."""
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


def settings(api: Any, spec: SandboxSpec, options: Options, image: Image) -> dict[str, Any]:
    """A container's, as docker's create_container takes them."""
    uid = docker_image.FIRST_UID + next(_uids) % docker_image.UIDS
    program = [image.python, "-I", "-S" if image.import_path else "-I", "-B", "-X", "utf8", "-c", docker_image.START]
    return {
        "image": image.name,
        "entrypoint": program,
        "command": [json.dumps(_worker_settings(spec, image))],
        "user": f"{uid}:{uid}",
        "hostname": "sandbox",
        "stdin_open": True,  # with what it attaches to: closed with the connection, when we end in whatever way
        "labels": {LABEL: _machine(), OWNER: _owner()},
        "host_config": _host_settings(api, spec, options),
    }


def _host_settings(api: Any, spec: SandboxSpec, options: Options) -> Any:
    # Files are in memory, too. Should they fill it, even the worker could not go on: that much is added to the limit
    memory = spec.memory_bytes + max(0, spec.disk_bytes - spec.memory_bytes // 2) + cgroup.OVERHEAD
    inodes = max(1024, spec.disk_bytes // 8192)
    flags = "rw,nosuid,nodev,exec,mode=1777"
    return api.create_host_config(
        network_mode="bridge" if spec.network else "none",
        read_only=True,
        cap_drop=["ALL"],
        security_opt=["no-new-privileges"],
        pids_limit=spec.pids + 1,  # the worker is one
        mem_limit=memory,
        memswap_limit=memory,
        nano_cpus=round(options.cpus * 1e9),
        ipc_mode="private",
        tmpfs={
            "/tmp": f"{flags},size={spec.disk_bytes},nr_inodes={inodes}",
            "/dev/shm": f"{flags},size={SHARED_MEMORY},nr_inodes=256",
        },
        ulimits=[{"Name": "nofile", "Soft": 1024, "Hard": 1024}, {"Name": "core", "Soft": 0, "Hard": 0}],
        log_config={"Type": "none", "Config": {}},
        runtime=options.runtime,
        auto_remove=True,
    )


def _worker_settings(spec: SandboxSpec, image: Image) -> dict[str, Any]:
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


def create(api: Any, container: dict[str, Any]) -> tuple[str, Any]:
    """(id, connection): attached before it starts, so that not a byte is missed."""
    name = api.create_container(**container)["Id"]
    try:
        return name, api.attach_socket(name, {"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1})
    except BaseException:
        api.remove_container(name, force=True)
        raise


def remove(api: Any, name: str) -> None:
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


def remove_left_over(api: Any) -> None:
    """Containers of processes of this machine that are no more."""
    for found in api.containers(all=True, filters={"label": f"{LABEL}={_machine()}"}):
        if _is_gone(found["Labels"].get(OWNER, "")):
            log.warning("removing the container %s, which a process that is gone has left", found["Id"][:12])
            with contextlib.suppress(OSError):  # someone else removes it, too
                remove(api, found["Id"])


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
