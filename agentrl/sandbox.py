"""Where untrusted code runs: what is asked of a sandbox, what it answers, and the protocol between them.

The backends live in `agentrl.tools.sandboxes`. A backend that cannot give the isolation asked for raises
`IsolationError`; none falls back to less.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol, runtime_checkable

from agentrl.errors import nearest

ISOLATIONS = ("auto", "landlock", "namespace", "namespace+cgroup")


class SandboxError(RuntimeError):
    """The sandbox itself failed (not the code in it)."""


class IsolationError(SandboxError):
    """This machine cannot give the isolation that was asked for; the text says what is missing and what to do."""


class SandboxLost(SandboxError):
    """The sandbox died while in use. The episode is aborted with this reason: it says nothing about the code."""


class Status(StrEnum):
    """How an execution ended."""

    OK = "ok"
    ERROR = "error"  # the code ended with a non-zero exit code, an uncaught exception included
    TIMEOUT = "timeout"
    MEMORY = "memory"
    OUTPUT = "output"  # it wrote more than the output limit and was cut or stopped
    KILLED = "killed"  # by a signal that is none of the above
    LOST = "lost"  # the sandbox died; never a result


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxSpec:
    """What a sandbox must hold to. Sizes in bytes or as "512M"; times in seconds.

    >>> SandboxSpec(memory="512M").memory_bytes
    536870912
    """

    memory: int | str = "512M"
    """Of all processes of the sandbox together."""
    pids: int = 64
    disk: int | str = "64M"
    output: int | str = "64K"
    """Of stdout and of stderr, each; what is beyond is cut and flagged."""
    timeout: float = 10.0
    """Wall-clock seconds of one execution, where the call does not say less."""
    cpu: float = 10.0
    """CPU seconds of one execution."""
    network: bool = False
    isolation: str = "auto"
    """The least that is accepted; the best that this machine gives is taken. auto (the same as landlock) | landlock |
    namespace | namespace+cgroup."""
    env: Mapping[str, str] | None = None
    packages: tuple[str, ...] = ("numpy",)
    """Import names of installed packages that the code may use. All others are hidden: they may hold a task's answers."""

    @property
    def memory_bytes(self) -> int:
        return size(self.memory)

    @property
    def disk_bytes(self) -> int:
        return size(self.disk)

    @property
    def output_bytes(self) -> int:
        return size(self.output)


def problem(spec: SandboxSpec) -> str:
    """The first thing in a spec that cannot be held to, with the field's name; empty when all is well.

    >>> problem(SandboxSpec(memory="256Q"))
    "memory: '256Q' is no size; write bytes or a number with K, M, G or T, as in '256M'"
    """
    return next(_problems(spec), "")


def _problems(spec: SandboxSpec) -> Iterator[str]:
    for name in ("memory", "disk", "output"):
        value = getattr(spec, name)
        try:
            if size(value) < 1:
                yield f"{name}={value!r} must be above 0"
        except ValueError as error:
            yield f"{name}: {error}"
    if not isinstance(spec.pids, int) or spec.pids < 1:
        yield f"pids={spec.pids!r} must be a whole number of at least 1"
    for name in ("timeout", "cpu"):
        seconds = getattr(spec, name)
        if not isinstance(seconds, (int, float)) or not 0 < seconds < math.inf:
            yield f"{name}={seconds!r} must be seconds above 0"
    if not isinstance(spec.network, bool):
        yield f"network={spec.network!r} must be True or False"
    if spec.isolation not in ISOLATIONS:
        yield f"isolation={spec.isolation!r} does not exist; {nearest(str(spec.isolation), ISOLATIONS)}"
    if isinstance(spec.packages, str) or not all(isinstance(name, str) for name in spec.packages):
        yield f"packages={spec.packages!r} must be a list of names, as in ['numpy']"
    if spec.env is not None and not all(isinstance(text, str) for pair in dict(spec.env).items() for text in pair):
        yield "env must be a mapping from names to texts"


def size(value: int | str) -> int:
    """Bytes of 1024 or "1K", "64M", "2G" (powers of 1024).

    >>> size("64K"), size(10)
    (65536, 10)
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    text = str(value).strip().upper().removesuffix("B").removesuffix("I")
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
    try:
        return int(float(text[:-1]) * units[text[-1]]) if text[-1:] in units else int(text)
    except (ValueError, OverflowError):
        raise ValueError(f"{value!r} is no size; write bytes or a number with K, M, G or T, as in {_like(text)!r}") from None


def _like(text: str) -> str:
    """A size that may have been meant."""
    number = re.match(r"[1-9]\d*", text)
    return f"{number[0]}M" if number else "512M"


@dataclass(frozen=True, slots=True, kw_only=True)
class Exec:
    """The result of one execution.

    >>> Exec(status=Status.TIMEOUT, stdout="1\\n", wall_s=2.0).render()
    '1\\n[timed out after 2.0 s]'
    """

    status: Status
    exit_code: int = 0
    """The process's exit code; 128 + n when signal n ended it."""
    stdout: str = ""
    stderr: str = ""
    stdout_cut: bool = False
    stderr_cut: bool = False
    cpu_s: float = 0.0
    wall_s: float = 0.0
    peak_bytes: int = 0

    @property
    def ok(self) -> bool:
        return self.status is Status.OK

    def render(self, limit: int = 2000) -> str:
        """A short text for the model, at most about `limit` characters: output, then errors, then how it ended."""
        body = cut(self.stdout, limit)
        if self.stderr:
            body = f"{body}{'' if not body or body.endswith(chr(10)) else chr(10)}{cut(self.stderr, limit, tail=0.8)}"
        note = {
            Status.OK: "" if body else "[no output]",
            Status.ERROR: "" if self.stderr else f"[exit code {self.exit_code}]",
            Status.TIMEOUT: f"[timed out after {self.wall_s:.1f} s]",
            Status.MEMORY: "[stopped: out of memory]",
            Status.OUTPUT: "[stopped: too much output]",
            Status.KILLED: f"[killed, exit code {self.exit_code}]",
            Status.LOST: "[the sandbox was lost]",
        }[self.status]
        if (self.stdout_cut or self.stderr_cut) and self.status is not Status.OUTPUT:
            note = f"{note}[output was cut]"
        return f"{body}{chr(10) if body and note and not body.endswith(chr(10)) else ''}{note}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What one call of a candidate's function gave.

    >>> Call(status=Status.OK, value=(1, {2.5}))
    Call(status=<Status.OK: 'ok'>, value=(1, {2.5}), error='')
    """

    status: Status
    value: Any = None
    """Where the status is OK: data of exact builtin types, built anew outside the sandbox."""
    error: str = ""
    """Otherwise: what was raised, or how the process ended."""


def cut(text: str, limit: int, tail: float = 0.3) -> str:
    """At most about `limit` characters: the head and, for the share `tail`, the end, with a note of what is missing."""
    if len(text) <= limit:
        return text
    end = int(limit * tail)
    return f"{text[: limit - end]}\n[... {len(text) - limit} characters left out ...]\n{text[len(text) - end :]}"


@runtime_checkable
class Sandbox(Protocol):
    """One isolated place, held by one episode or one grading. Files live in its working folder until `aclose`."""

    async def run(self, argv: Sequence[str] | str, *, stdin: str = "", timeout: float | None = None) -> Exec:
        """Runs a program: a list of arguments, or a text for the shell."""
        ...

    async def python(self, code: str, *, stdin: str = "", timeout: float | None = None) -> Exec:
        """Runs Python code in a fresh interpreter."""
        ...

    async def run_many(
        self, programs: Sequence[str], *, stdins: Sequence[str] | None = None, timeout: float | None = None
    ) -> list[Exec]:
        """Runs several Python programs, each in a fresh interpreter and none seeing another; results in their order.

        `stdins` is one text per program; `timeout` is seconds of each.
        """
        ...

    async def call_many(
        self, code: str, function: str, inputs: Sequence[Sequence[Any]], *, timeout: float, total: float | None = None
    ) -> list[Call]:
        """Loads Python code once and calls `function` of it once per tuple of arguments, all in one process.

        `timeout` is seconds of one call; after one that hangs or ends the process, the rest goes on in a new one. `total`
        seconds bound all (default: four times `timeout`). Arguments and values are plain data (None, bool, numbers, str,
        bytes, list, tuple, set, frozenset, dict, nested); TypeError for other arguments, Status.ERROR for other values.
        """
        ...

    async def write(self, path: str, data: bytes) -> None:
        """Writes a file below the working folder. Raises ValueError for a path that leaves it."""
        ...

    async def read(self, path: str) -> bytes:
        """Reads a file below the working folder, links not followed out of it. Raises FileNotFoundError, ValueError."""
        ...

    async def alive(self) -> bool: ...

    async def aclose(self) -> None:
        """Kills what runs and gives everything back. Idempotent."""
        ...


class SandboxPool(Protocol):
    """Makes sandboxes. One per run; shared by all episodes and graders. A backend's is made by its classmethod
    `async open(spec, slots)`, which raises IsolationError."""

    isolation: str
    """What it really gives: namespace+cgroup | namespace | landlock | wasm | none | remote (a server that does not say)."""

    async def acquire(self) -> Sandbox:
        """A fresh sandbox; waits in arrival order while all are in use. Raises SandboxError."""
        ...

    async def aclose(self) -> None: ...
