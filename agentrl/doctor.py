"""Looks at this machine: what works, what does not, and what to do about it. Changes nothing and downloads nothing.

Each check is a function that gives one or more `Check`s; a check never raises, since a broken machine is what it is for.
"""

from __future__ import annotations

import asyncio
import os
import platform
import shutil
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from importlib import metadata
from pathlib import Path

import agentrl
from agentrl import models, registry
from agentrl.errors import UsageError
from agentrl.sandbox import SandboxError, SandboxSpec

GIB = 1 << 30
PATIENCE_S = 3.0
"""How long a server may take to answer; a slow answer is no reason to wait in a look-around."""

MEMORY_NEEDED = 5 * GIB  # training the 135 M model with float32 master weights and optimizer
DISK_NEEDED = 3 * GIB  # the model, its converted copy, and two checkpoints with optimizer state
SHARED_MEMORY_NEEDED = GIB // 2  # one copy of the 135 M model's weights, and room
NEEDED = [
    "torch",
    "transformers",
    "safetensors",
    "hydra-core",
    "pydantic",
    "rich",
    "numpy",
    "gguf",
    "matplotlib",
    "tensorboard",
]
FILES_NEEDED = 1024  # pipes of the sandboxes, event files, sockets


class Level(StrEnum):
    """How bad it is."""

    OK = "ok"
    NOTE = "note"  # works, but less well
    BAD = "bad"  # something that `agentrl train` needs does not work


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One finding.

    >>> Check(name="disk", level=Level.OK, text="12.0 GiB free in runs").advice
    ''
    """

    name: str
    level: Level
    text: str
    advice: str = ""


def examine(out: str = "runs", *, online: bool = True) -> list[Check]:
    """All checks, in the order in which a person would look. `online`: ask model sources whether they answer."""
    checks: list[Callable[[], Iterable[Check]]] = [
        machine,
        python,
        packages,
        sandbox,
        lambda: model_sources(online=online),
        shared_memory,
        file_limits,
        lambda: disk(out),
    ]
    return [found for check in checks for found in check()]


def machine() -> Iterator[Check]:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    yield Check(
        name="cpu", level=Level.OK, text=f"{cores} cores, {platform.machine()}, {platform.system()} {platform.release()}"
    )
    total, free = memory()
    level = Level.OK if free >= MEMORY_NEEDED else Level.NOTE
    advice = "" if level is Level.OK else f"smollm2-135m takes about {MEMORY_NEEDED / GIB:.0f} GiB; model=tiny needs little"
    yield Check(name="memory", level=level, text=f"{total / GIB:.1f} GiB, {free / GIB:.1f} free", advice=advice)


def memory() -> tuple[int, int]:
    """(total, free) bytes, within the limit of the control group that we run in."""
    page = os.sysconf("SC_PAGE_SIZE")
    total = page * os.sysconf("SC_PHYS_PAGES")
    free = page * os.sysconf("SC_AVPHYS_PAGES") if "SC_AVPHYS_PAGES" in os.sysconf_names else total
    meminfo = Path("/proc/meminfo")
    if meminfo.is_file():
        fields = dict(line.split(":", 1) for line in meminfo.read_text().splitlines())
        free = int(fields["MemAvailable"].split()[0]) * 1024
    limit, used = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")
    if limit.is_file() and used.is_file() and limit.read_text().strip().isdigit():
        cap = int(limit.read_text())
        total, free = min(total, cap), min(free, max(0, cap - int(used.read_text())))
    return total, free


def python() -> Iterator[Check]:
    good = sys.version_info >= (3, 11)
    text = f"{platform.python_version()} at {sys.executable}"
    yield Check(
        name="python", level=Level.OK if good else Level.BAD, text=text, advice="" if good else "agentrl needs 3.11 or newer"
    )
    where = Path(agentrl.__file__).parent
    yield Check(name="agentrl", level=Level.OK, text=f"{agentrl.__version__} at {where}")


def packages() -> Iterator[Check]:
    """The packages that training needs, and their versions."""
    found: list[str] = []
    for name in NEEDED:
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            yield Check(name=name, level=Level.BAD, text="not installed", advice=f"pip install {name}")
    yield Check(name="packages", level=Level.OK, text=", ".join(found))
    yield accelerator()


def accelerator() -> Check:
    """What torch would compute on."""
    try:
        import torch
    except ImportError as error:
        return Check(name="torch", level=Level.BAD, text=f"cannot be imported: {error}", advice="pip install torch")
    if torch.cuda.is_available():
        return Check(
            name="gpu", level=Level.OK, text=", ".join(torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count()))
        )
    bf16 = torch.cpu.get_capabilities().get("avx512_bf16") if hasattr(torch.cpu, "get_capabilities") else None
    fast = "" if bf16 is None else f", bfloat16 in hardware: {'yes' if bf16 else 'no'}"
    return Check(name="gpu", level=Level.OK, text=f"none; training runs on the CPU{fast}")


def sandbox() -> Iterator[Check]:
    """Whether untrusted code can be isolated here: opens a sandbox and runs a line in it."""
    try:
        isolation, printed = asyncio.run(_try_sandbox())
    except (SandboxError, UsageError, OSError, TimeoutError) as error:
        advice = "use an environment without a sandbox, or see docs; sandbox=unsafe_local runs code with your own rights"
        yield Check(name="sandbox", level=Level.BAD, text=" ".join(str(error).split()), advice=advice)
        return
    works = printed.strip() == "42"
    level = Level.BAD if not works else Level.OK if isolation.startswith("namespace") else Level.NOTE
    advice = "" if level is Level.OK else "user namespaces would isolate better (sysctl kernel.unprivileged_userns_clone=1)"
    text = f"isolation: {isolation}" if works else f"isolation: {isolation}, but code in it printed {printed!r} instead of 42"
    yield Check(name="sandbox", level=level, text=text, advice=advice)


async def _try_sandbox() -> tuple[str, str]:
    async with asyncio.timeout(30):
        pool = await registry.find("sandbox", "local").open(SandboxSpec(), slots=1)
        try:
            box = await pool.acquire()
            result = await box.python("print(6 * 7)")
            await box.aclose()
        finally:
            await pool.aclose()
    return pool.isolation, result.stdout or result.render()


def model_sources(*, online: bool) -> Iterator[Check]:
    """Which models are here, and whether more can be had."""
    held = models.cached()
    for name, about in models.names().items():
        where = f"; in the cache: {held[name]}" if name in held else ""
        yield Check(name=f"model={name}", level=Level.OK, text=f"{about}{where}")
    if not online:
        return
    hub = os.environ.get("HF_ENDPOINT", "https://huggingface.co")
    answers = {"hub": reachable(hub), "package index": reachable(_index())}
    for source, error in answers.items():
        if error:
            yield Check(name=source, level=Level.NOTE, text=f"not reachable: {error}")
        else:
            yield Check(name=source, level=Level.OK, text="reachable")
    if not held and all(answers.values()):
        advice = "connect once, or give a folder: model=path/to/folder; model=tiny needs nothing"
        yield Check(name="models", level=Level.BAD, text="no real model is here and no source answers", advice=advice)


def reachable(url: str) -> str:
    """Empty when the server answers at all; otherwise why not."""
    try:
        urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=PATIENCE_S).close()
    except urllib.error.HTTPError:
        return ""  # it answered
    except (OSError, ValueError) as error:
        return str(getattr(error, "reason", error))
    return ""


def _index() -> str:
    return os.environ.get("PIP_INDEX_URL", "https://pypi.org/simple/")


def shared_memory() -> Iterator[Check]:
    folder = Path("/dev/shm")
    if folder.is_dir():
        free = shutil.disk_usage(folder).free
        level = Level.OK if free >= SHARED_MEMORY_NEEDED else Level.NOTE
        advice = "" if level is Level.OK else "in a container: docker run --shm-size=2g"
        yield Check(name="shared memory", level=level, text=f"{free / GIB:.1f} GiB free in {folder}", advice=advice)


def file_limits() -> Iterator[Check]:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    level = Level.OK if soft >= FILES_NEEDED else Level.NOTE
    advice = "" if level is Level.OK else f"ulimit -n {min(hard, 65536) if hard > 0 else 65536}"
    yield Check(name="open files", level=level, text=f"at most {soft} (can be raised to {hard})", advice=advice)


def disk(out: str) -> Iterator[Check]:
    for purpose, folder in {"runs": Path(out).expanduser(), "model cache": models.cache_folder()}.items():
        there = next(p for p in (folder.absolute(), *folder.absolute().parents) if p.exists())
        free = shutil.disk_usage(there).free
        writable = os.access(there, os.W_OK)
        level = Level.BAD if not writable else Level.OK if free >= DISK_NEEDED else Level.NOTE
        advice = {
            Level.OK: "",
            Level.NOTE: f"a training run keeps about {DISK_NEEDED / GIB:.0f} GiB",
            Level.BAD: "choose another folder: out=... for runs, AGENTRL_CACHE for models",
        }[level]
        text = f"{free / GIB:.1f} GiB free in {folder}{'' if writable else ', which cannot be written to'}"
        yield Check(name=purpose, level=level, text=text, advice=advice)
