"""No sandbox: code runs as plain processes of this user, with limits of time, memory and output only.

For debugging, and for machines that can give no isolation. Taken by name only; it warns each time it is opened. The code
can read and delete the user's files, reach the network, and leave processes that start a session of their own.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import mmap
import os
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

from agentrl.sandbox import Call, Exec, IsolationError, SandboxError, SandboxSpec, Status

from . import ground, jobs, systems
from .fifo import Fifo
from .turns import Turns
from .zygote import folder, wire
from .zygote.wire import Reason

WARNING = (
    "sandbox=unsafe_local runs the model's code as this user, without any isolation: it can read and delete files, use the "
    "network and leave processes behind"
)
POLL = 0.02  # seconds between looks at a running process
HERE = Path(__file__).parent
CALLER = (
    "import sys, mmap; sys.path.insert(0, sys.argv[1]); from zygote import calls; "
    "page = mmap.mmap(int(sys.argv[3]), 4096); calls.serve(sys.stdin.buffer.read(), int(sys.argv[2]), page)"
)

log = logging.getLogger(__name__)


class UnsafeLocalPool:
    isolation = "none"

    def __init__(self, spec: SandboxSpec, slots: int) -> None:
        self.spec = spec
        self._free: Fifo[int] = Fifo()
        for slot in range(slots):
            self._free.put(slot)
        self._closed = False

    @classmethod
    async def open(cls, spec: SandboxSpec | None = None, slots: int = 8) -> UnsafeLocalPool:
        """Raises IsolationError when any isolation is asked for."""
        spec = spec or SandboxSpec()
        systems.check("unsafe_local")
        if spec.isolation != "auto":
            raise IsolationError(
                f"sandbox=unsafe_local isolates nothing, and isolation={spec.isolation} is asked for; use sandbox=local"
            )
        await asyncio.to_thread(ground.remove_left_over, "unsafe")
        warnings.warn(WARNING, RuntimeWarning, stacklevel=2)
        log.warning(WARNING)
        return cls(spec, slots)

    async def acquire(self) -> UnsafeLocalSandbox:
        slot = None if self._closed else await self._free.get()
        if slot is None:
            raise SandboxError("the pool is closed")
        try:
            return UnsafeLocalSandbox(self, slot, ground.make("unsafe"))
        except BaseException:
            self._free.put(slot)
            raise

    async def aclose(self) -> None:
        self._closed = True
        self._free.clear()

    async def __aenter__(self) -> UnsafeLocalPool:
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self.aclose()

    def release(self, slot: int) -> None:
        self._free.put(slot)


class UnsafeLocalSandbox:
    """A temporary folder. Blocking work is done in threads, so that calls of several sandboxes overlap."""

    def __init__(self, pool: UnsafeLocalPool, slot: int, home: str) -> None:
        self._pool, self._slot, self._spec = pool, slot, pool.spec
        self._home = Path(home)
        self._turns = Turns()

    async def run(self, argv: Sequence[str] | str, *, stdin: str = "", timeout: float | None = None) -> Exec:
        return await self._program(["/bin/sh", "-c", argv] if isinstance(argv, str) else list(argv), stdin, timeout)

    async def python(self, code: str, *, stdin: str = "", timeout: float | None = None) -> Exec:
        return await self._program([sys.executable, "-c", code], stdin, timeout)

    async def run_many(
        self, programs: Sequence[str], *, stdins: Sequence[str] | None = None, timeout: float | None = None
    ) -> list[Exec]:
        """As of other sandboxes, but a program sees the files of the one before."""
        inputs = [""] * len(programs) if stdins is None else stdins
        return [await self.python(code, stdin=stdin, timeout=timeout) for code, stdin in zip(programs, inputs, strict=True)]

    async def call_many(
        self, code: str, function: str, inputs: Sequence[Sequence[Any]], *, timeout: float, total: float | None = None
    ) -> list[Call]:
        async def attempt(rest: Sequence[str], seconds: float) -> jobs.Attempt:
            request = json.dumps({"code": code, "function": function, "inputs": list(rest)}).encode()
            stopped = self._turns.stopped
            return await self._turns.do(_calls, self._home, self._spec, request, len(rest), timeout, seconds, stopped)

        return await jobs.call_until_done(attempt, inputs, timeout=timeout, total=total)

    async def write(self, path: str, data: bytes) -> None:
        await self._turns.do(_write, self._inside(path), data, self._spec.disk_bytes)

    async def read(self, path: str) -> bytes:
        return await self._turns.do(_read, self._inside(path), self._spec.disk_bytes)

    async def alive(self) -> bool:
        return not self._turns.closed

    async def aclose(self) -> None:
        if await self._turns.close(self._remove):
            self._pool.release(self._slot)

    def _remove(self) -> None:
        with contextlib.suppress(OSError):  # a process that got away may still be writing in it
            folder.remove(str(self._home))

    async def __aenter__(self) -> UnsafeLocalSandbox:
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self.aclose()

    def _inside(self, path: str) -> Path:
        real = (self._home / path).resolve()
        if not path or real == self._home.resolve() or not real.is_relative_to(self._home.resolve()):
            raise ValueError(f"{path!r} leads out of the working folder")
        return real

    async def _program(self, argv: list[str], stdin: str, timeout: float | None) -> Exec:
        seconds = self._spec.timeout if timeout is None else min(timeout, self._spec.timeout)
        return await self._turns.do(_program, argv, stdin, seconds, self._home, self._spec, self._turns.stopped)


def _write(path: Path, data: bytes, limit: int) -> None:
    if len(data) > limit:
        raise OSError(f"{path.name!r}: {len(data)} bytes are more than the disk limit")
    if path.exists() and not path.is_file():
        raise OSError(f"{path.name!r} is no regular file")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def _read(path: Path, limit: int) -> bytes:
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:  # a FIFO must not hold us
        about = os.fstat(file.fileno())
        if not stat.S_ISREG(about.st_mode):
            raise OSError(f"{path.name!r} is no regular file")
        if about.st_size > limit:
            raise OSError(f"{path.name!r}: {about.st_size} bytes are more than the disk limit")
        return file.read()


def _program(argv: list[str], stdin: str, timeout: float, home: Path, spec: SandboxSpec, stopped: threading.Event) -> Exec:
    """Files, not pipes: a process that is left behind holds nobody up."""
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        given.write(stdin.encode("utf-8", "surrogatepass"))
        given.seek(0)
        begun = time.monotonic()
        try:
            process = _start(argv, home, spec, given, out, err)
        except FileNotFoundError:
            return Exec(status=Status.ERROR, exit_code=127, stderr=f"{argv[0]}: not found\n")
        much = 2 * spec.output_bytes
        reason = oversee(process, begun + timeout, lambda: max(size_of(out), size_of(err)) > much, stopped)
        report = report_of(process, reason, begun)
        limit = spec.output_bytes
        return jobs.as_exec(report, start_of(out, limit + 1), start_of(err, limit + 1), limit)


def _start(
    argv: list[str], home: Path, spec: SandboxSpec, stdin: Any, out: Any, err: Any, fds: Sequence[int] = ()
) -> subprocess.Popen[bytes]:
    env = {"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "HOME": str(home), "TMPDIR": str(home), **(spec.env or {})}
    return subprocess.Popen(
        argv, cwd=home, env=env, stdin=stdin, stdout=out, stderr=err, start_new_session=True, pass_fds=fds,
        preexec_fn=lambda: _limit(spec),
    )  # fmt: skip


def _limit(spec: SandboxSpec) -> None:
    """Where it works: macOS refuses some, and address space is no limit on the sum of processes anywhere."""
    import resource

    space, cpu = spec.memory_bytes + (512 << 20), max(1, round(spec.cpu))
    for limit, value in ((resource.RLIMIT_AS, space), (resource.RLIMIT_CPU, cpu), (resource.RLIMIT_CORE, 0)):
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(limit, (value, value))


def oversee(
    process: subprocess.Popen[bytes],
    deadline: float,
    too_much: Callable[[], bool],
    stopped: threading.Event,
    case_deadline: Callable[[], float] | None = None,
) -> Reason:
    """Waits for the process; kills its group at the deadline, when it has written too much, or when it is stopped."""
    reason = Reason.EXIT
    while reason is Reason.EXIT:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(POLL)
            break
        now = time.monotonic()
        if now >= deadline or (case_deadline is not None and now >= case_deadline()):
            reason = Reason.DEADLINE
        elif stopped.is_set():
            reason = Reason.KILLED
        elif too_much():
            break
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return reason


def report_of(process: subprocess.Popen[bytes], reason: Reason, begun: float) -> jobs.Report:
    code = process.returncode
    status = -code if code < 0 else code << 8
    return jobs.Report(status=status, reason=reason, wall_s=time.monotonic() - begun)


def _calls(
    home: Path, spec: SandboxSpec, request: bytes, count: int, timeout: float, seconds: float, stopped: threading.Event
) -> jobs.Attempt:
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as results, tempfile.TemporaryFile() as shared:
        given.write(request)
        given.seek(0)
        shared.truncate(4096)
        page = mmap.mmap(shared.fileno(), 4096)
        fds = (results.fileno(), shared.fileno())
        begun = time.monotonic()
        argv = [sys.executable, "-c", CALLER, str(HERE), *map(str, fds)]
        process = _start(argv, home, spec, given, subprocess.DEVNULL, subprocess.DEVNULL, fds)
        reason = oversee(
            process,
            begun + seconds,
            lambda: size_of(results) > jobs.RESULTS_LIMIT,
            stopped,
            lambda: max(begun, min(time.monotonic(), wire.PAGE.unpack_from(page)[0])) + timeout,
        )
        return jobs.read_attempt(start_of(results, jobs.RESULTS_LIMIT), count, report_of(process, reason, begun))


def size_of(file: IO[bytes]) -> int:
    return os.fstat(file.fileno()).st_size


def start_of(file: IO[bytes], limit: int) -> bytes:
    return os.pread(file.fileno(), min(size_of(file), limit), 0)
