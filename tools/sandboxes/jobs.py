"""What a sandbox can be asked for, as jobs of a slot: files in, files out, and what the report means."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from agentrl.sandbox import Call, Exec, Status

from . import memfd
from .link import Report, SlotLink
from .zygote import values, wire
from .zygote.wire import Reason

RESULTS_LIMIT = 8 << 20  # bytes of all values that one run of `calls` gives back
MAX_PATH = 4000
TOTAL_FACTOR = 4
"""All cases of one candidate get this times one case's timeout, unless the caller says otherwise."""


async def program(slot: SlotLink, mode: bytes, text: str, stdin: str, timeout: float, output: int, flags: int = 0) -> Exec:
    """Runs Python code, or arguments separated by NUL."""
    with _files() as add:
        fds = [add(memfd.holding(text.encode("utf-8", "surrogatepass"))), add(memfd.taking(output)), add(memfd.taking(output))]
        if stdin:
            fds.append(add(memfd.holding(stdin.encode("utf-8", "surrogatepass"))))
        report = await slot.run(mode, "", fds, timeout=timeout, flags=flags)
        return as_exec(report, memfd.taken(fds[1], output), memfd.taken(fds[2], output))


def as_exec(report: Report, out: tuple[bytes, bool], err: tuple[bytes, bool]) -> Exec:
    code = os.waitstatus_to_exitcode(report.status)
    code = 128 - code if code < 0 else code
    return Exec(
        status=_status(report, code, err[0], out[1] or err[1]),
        exit_code=code,
        stdout=out[0].decode("utf-8", "replace"),
        stderr=err[0].decode("utf-8", "replace"),
        stdout_cut=out[1],
        stderr_cut=err[1],
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


async def write(slot: SlotLink, path: str, data: bytes, timeout: float) -> None:
    with _files() as add:
        fds = [add(memfd.holding(data)), add(memfd.taking(0)), add(memfd.taking(MAX_PATH))]
        report = await slot.run(wire.WRITE, checked(path), fds, timeout=timeout)
        raise_for(report, path, memfd.taken(fds[2])[0])


async def read(slot: SlotLink, path: str, timeout: float) -> bytes:
    with _files() as add:
        fds = [add(memfd.holding(b"")), add(memfd.taking(0)), add(memfd.taking(MAX_PATH)), add(memfd.growing())]
        report = await slot.run(wire.READ, checked(path), fds, timeout=timeout)
        raise_for(report, path, memfd.taken(fds[2])[0])
        return memfd.taken(fds[3])[0]


def checked(path: str) -> str:
    """Raises ValueError for what no file can be called."""
    if "\0" in path or len(path.encode("utf-8", "surrogateescape")) > MAX_PATH:
        raise ValueError(f"{path[:80]!r} is no path")
    return path


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


async def calls(
    slot: SlotLink, code: str, function: str, inputs: Sequence[str], *, case_timeout: float, timeout: float
) -> Attempt:
    """`inputs` are texts of values.dumps, one tuple of arguments each."""
    request = json.dumps({"code": code, "function": function, "inputs": list(inputs)}).encode()
    with _files() as add:
        fds = [add(memfd.holding(request)), add(memfd.taking(0)), add(memfd.taking(MAX_PATH)), add(memfd.taking(RESULTS_LIMIT))]
        report = await slot.run(wire.CALL, "", fds, timeout=timeout, case_timeout=case_timeout)
        return read_attempt(memfd.taken(fds[3])[0], len(inputs), report)


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


@contextlib.contextmanager
def _files() -> Iterator[Callable[[int], int]]:
    """Collects file descriptors and closes them."""
    fds: list[int] = []

    def add(fd: int) -> int:
        fds.append(fd)
        return fd

    try:
        yield add
    finally:
        for fd in fds:
            os.close(fd)
