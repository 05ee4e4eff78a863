"""What a slot can be asked for, as jobs, and what its report of them means. Whoever carries a job there and back is a Link."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from agentrl.sandbox import Call, Exec, SandboxSpec, Status

from .zygote import values, wire
from .zygote.wire import Fourth, Reason

RESULTS_LIMIT = 8 << 20  # bytes of all values that one run of `calls` gives back
MAX_PATH = 4000
TOTAL_FACTOR = 4
"""All cases of one candidate get this times one case's timeout, unless the caller says otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Times in seconds, sizes in bytes.

    >>> writing("a.txt", b"1", timeout=10.0).code
    b'a.txt'
    """

    mode: bytes
    """One of zygote/wire.py."""
    code: bytes
    """A program, arguments separated by NUL, a path, or a request."""
    timeout: float
    case_timeout: float = 0.0
    flags: int = 0
    out: int = 0
    """Room for stdout, as the next for stderr; a little more is taken, which shows that it was too much."""
    err: int = 0
    fourth: Fourth = Fourth.NONE
    data: bytes = b""
    room: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """How a job ended. Times in seconds."""

    status: int
    """As from waitpid."""
    reason: Reason
    peak_bytes: int = 0
    cpu_s: float = 0.0
    wall_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a job came to: its report, and what it has written."""

    report: Report
    out: bytes = b""
    err: bytes = b""
    data: bytes = b""


class Link(Protocol):
    """The host's end of one slot, here or in a container."""

    dead: bool

    async def run(self, job: Job) -> Result:
        """One job; earlier ones of this slot, a cancelled one included, are over before it begins. Raises SandboxLost."""
        ...

    async def mark(self) -> None:
        """Remembers which files there are, for jobs that tidy up after themselves. Raises SandboxLost."""
        ...


def program(spec: SandboxSpec, mode: bytes, text: str, stdin: str, timeout: float | None, flags: int = 0) -> Job:
    """Python code, or arguments separated by NUL. No more time than the spec's is granted."""
    given = stdin.encode("utf-8", "surrogatepass")
    return Job(
        mode=mode,
        code=text.encode("utf-8", "surrogatepass"),
        timeout=spec.timeout if timeout is None else min(timeout, spec.timeout),
        flags=flags,
        out=output_room(spec),
        err=output_room(spec),
        fourth=Fourth.INPUT if given else Fourth.NONE,
        data=given,
    )


def output_room(spec: SandboxSpec) -> int:
    """Bytes of stdout and of stderr, each. They are files, for which the limit of all files holds."""
    return min(spec.output_bytes, spec.disk_bytes)


def arguments(argv: Sequence[str] | str) -> str:
    """A list of arguments, or a text for /bin/sh, as a job's code. Raises ValueError for what is neither."""
    words = ["/bin/sh", "-c", argv] if isinstance(argv, str) else list(argv)
    if not words or any("\0" in word for word in words):
        raise ValueError(f"{argv!r} is no list of arguments")
    return "\0".join(words)


def calling(code: str, function: str, inputs: Sequence[str], *, case_timeout: float, timeout: float) -> Job:
    """`inputs` are texts of values.dumps, one tuple of arguments each."""
    request = json.dumps({"code": code, "function": function, "inputs": list(inputs)}).encode()
    return Job(
        mode=wire.CALL,
        code=request,
        timeout=timeout,
        case_timeout=case_timeout,
        err=MAX_PATH,
        fourth=Fourth.FIXED,
        room=RESULTS_LIMIT,
    )


def writing(path: str, data: bytes, *, timeout: float) -> Job:
    return Job(mode=wire.WRITE, code=encoded(path), timeout=timeout, err=MAX_PATH, fourth=Fourth.INPUT, data=data)


def reading(path: str, *, timeout: float) -> Job:
    return Job(mode=wire.READ, code=encoded(path), timeout=timeout, err=MAX_PATH, fourth=Fourth.GROWING)


def encoded(path: str) -> bytes:
    """Raises ValueError for what no file can be called."""
    data = path.encode("utf-8", "surrogateescape")
    if b"\0" in data or len(data) > MAX_PATH:
        raise ValueError(f"{path[:80]!r} is no path")
    return data


def as_exec(report: Report, out: bytes, err: bytes, limit: int) -> Exec:
    """`limit`: bytes of stdout and of stderr, each; what is beyond is cut."""
    code = os.waitstatus_to_exitcode(report.status)
    code = 128 - code if code < 0 else code
    kept = err[:limit]
    return Exec(
        status=_status(report, code, kept, max(len(out), len(err)) > limit),
        exit_code=code,
        stdout=out[:limit].decode("utf-8", "replace"),
        stderr=kept.decode("utf-8", "replace"),
        stdout_cut=len(out) > limit,
        stderr_cut=len(err) > limit,
        cpu_s=report.cpu_s,
        wall_s=report.wall_s,
        peak_bytes=report.peak_bytes,
    )


def _status(report: Report, code: int, stderr: bytes = b"", cut: bool = False) -> Status:
    if report.reason in (Reason.DEADLINE, Reason.CPU):
        return Status.TIMEOUT
    if report.reason is Reason.MEMORY:
        return Status.MEMORY
    if report.reason is not Reason.EXIT:
        return Status.KILLED
    if code == 0:
        return Status.OK
    last = stderr.rstrip().rpartition(b"\n")[2]
    if last.startswith((b"MemoryError", b"numpy._core._exceptions._ArrayMemoryError")):
        return Status.MEMORY
    if cut:
        return Status.OUTPUT
    return Status.KILLED if os.WIFSIGNALED(report.status) else Status.ERROR


def raise_for(report: Report, path: str, text: bytes) -> None:
    """What the end of a READ or WRITE means: nothing, or FileNotFoundError, ValueError, OSError."""
    code = os.waitstatus_to_exitcode(report.status)
    message = text.decode("utf-8", "replace") or f"{path!r}: {report.reason.name.lower()}, exit code {code}"
    if report.reason is Reason.EXIT and code == wire.FILE_OK:
        return
    if code == wire.FILE_MISSING:
        raise FileNotFoundError(message)
    raise ValueError(message) if code == wire.FILE_OUTSIDE else OSError(message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """What one process made of the cases it was given."""

    calls: tuple[Call, ...]
    """Of the first cases; the next one, if any, ended the process."""
    failure: Call | None = None
    """How it ended there."""
    hopeless: bool = False
    """The code could not even be loaded: so it is for all cases."""


def read_attempt(data: bytes, count: int, report: Report) -> Attempt:
    """What the records mean. They may be forged: no more is believed of them than the values they hold."""
    found = wire.records(data)
    if found and found[0][0] == wire.REFUSED:
        text = found[0][1].decode("utf-8", "replace")
        return Attempt(calls=(), failure=Call(status=Status.ERROR, error=text), hopeless=True)
    loaded = bool(found) and found[0][0] == wire.LOADED
    made = tuple(_as_call(kind, body) for kind, body in found[1:] if kind in (wire.VALUE, wire.RAISED))[:count]
    if len(made) == count and loaded:
        return Attempt(calls=made)
    code = os.waitstatus_to_exitcode(report.status)
    status = _status(report, 128 - code if code < 0 else code)
    if report.reason is Reason.EXIT and status is Status.OK:
        status = Status.ERROR  # it left before it was done
    text = "the values are too large" if code == wire.TOO_LARGE else f"the process ended: {_ending(report, code)}"
    return Attempt(calls=made if loaded else (), failure=Call(status=status, error=text), hopeless=not loaded)


def _ending(report: Report, code: int) -> str:
    if report.reason is not Reason.EXIT:
        return report.reason.name.lower()
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def _as_call(kind: bytes, body: bytes) -> Call:
    if kind == wire.RAISED:
        return Call(status=Status.ERROR, error=body.decode("utf-8", "replace"))
    try:
        return Call(status=Status.OK, value=values.loads(body))
    except ValueError as error:
        return Call(status=Status.ERROR, error=str(error))


async def call_until_done(
    attempt: Callable[[Sequence[str], float], Awaitable[Attempt]],
    inputs: Sequence[Sequence[Any]],
    *,
    timeout: float,
    total: float | None,
) -> list[Call]:
    """Goes on in a new process after a case that ended the last one, until all are done or `total` seconds are over."""
    rest = [values.dumps(tuple(arguments)) for arguments in inputs]
    end = time.monotonic() + (TOTAL_FACTOR * timeout if total is None else total)
    done: list[Call] = []
    while rest:
        left = end - time.monotonic()
        if left <= 0:
            return done + [Call(status=Status.TIMEOUT, error="no time was left for this case")] * len(rest)
        made = await attempt(rest, left)
        done += made.calls
        rest = rest[len(made.calls) :]
        if made.failure is not None and rest:
            if made.hopeless:
                return done + [made.failure] * len(rest)
            done.append(made.failure)
            rest = rest[1:]
    return done
