"""Sandboxes on another machine: any server that speaks SandboxFusion's POST /run_code, ours (`agentrl sandbox serve`) first.

Such a server keeps nothing between two runs. A sandbox's files are therefore packed at the end of each run, carried by us
unread, and unpacked at the next; so what a program that was killed has written is not kept.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Mapping, Sequence
from typing import Any

from agentrl.errors import UsageError
from agentrl.sandbox import Call, Exec, IsolationError, SandboxError, SandboxSpec, Status

from . import jobs
from . import remote_programs as programs
from .fifo import Fifo
from .jobs import Report
from .remote_link import PATIENCE, Answer, CodeServer
from .zygote.wire import Reason

ADDRESS = "AGENTRL_SANDBOX_URL"
LEVELS = ("none", "landlock", "wasm", "namespace", "namespace+cgroup")
"""What a server may say it gives, worst first."""
LEAST = {"auto": "landlock"}
MARGIN = 1.0  # seconds of its own that a program of ours gets beyond those it watches over

log = logging.getLogger(__name__)


class RemotePool:
    """Made by `open`; used by one event loop.

    >>> pool = await RemotePool.open(SandboxSpec(), slots=64, url="http://10.0.0.7:8080")          # doctest: +SKIP
    """

    def __init__(self, spec: SandboxSpec, slots: int, server: CodeServer) -> None:
        self.spec, self.server = spec, server
        self.isolation = "remote"
        self._free: Fifo[int] = Fifo()
        for slot in range(slots):
            self._free.put(slot)
        self._closed = False

    @classmethod
    async def open(
        cls, spec: SandboxSpec | None = None, slots: int = 8, *, url: str | None = None, patience: float = PATIENCE
    ) -> RemotePool:
        """`slots` sandboxes, and as many requests, at once. The address: `url`, or what AGENTRL_SANDBOX_URL says.

        `patience`: seconds that a request may wait in the server's queue. The SandboxSpec's timeout and output are kept
        here; memory, processes, disk, network and packages are the server's own. Raises UsageError, SandboxError,
        IsolationError when the server says that it gives less than is asked for (one that is not ours says nothing).
        """
        spec = spec or SandboxSpec()
        url = url or os.environ.get(ADDRESS, "")
        if not url.startswith(("http://", "https://")):
            raise UsageError(f"sandbox=remote needs the address of a code server in {ADDRESS} (http://host:port), not {url!r}")
        if slots < 1:
            raise UsageError(f"a sandbox's slots must be at least 1, not {slots}")
        pool = cls(spec, slots, CodeServer(url, slots, patience))
        try:
            pool._trust(await pool.server.info())
        except BaseException:
            await pool.aclose()
            raise
        return pool

    def _trust(self, said: Mapping[str, Any] | None) -> None:
        asked = LEAST.get(self.spec.isolation, self.spec.isolation)
        if said is None:
            if self.spec.isolation != "auto":
                raise IsolationError(f"{self.server.url} does not say what isolation it gives, and {asked!r} is asked for")
            log.warning("%s does not say what isolation it gives", self.server.url)
            return
        given = str(said.get("isolation", "none"))
        if given not in LEVELS or LEVELS.index(given) < LEVELS.index(asked):
            raise IsolationError(f"{self.server.url} gives the isolation {given!r}, and {asked!r} is asked for")
        self.isolation = given

    async def acquire(self) -> RemoteSandbox:
        slot = None if self._closed else await self._free.get()
        if slot is None:
            raise SandboxError("the pool is closed")
        return RemoteSandbox(self, slot)

    def release(self, slot: int) -> None:
        self._free.put(slot)

    async def aclose(self) -> None:
        """Idempotent."""
        self._closed = True
        self._free.clear()
        await self.server.aclose()

    async def __aenter__(self) -> RemotePool:
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self.aclose()


class RemoteSandbox:
    """Files that are sent along with each run. Calls are done one after the other, but those of `run_many` at once."""

    def __init__(self, pool: RemotePool, slot: int) -> None:
        self._pool, self._slot, self._spec = pool, slot, pool.spec
        self._state: bytes | None = None
        self._turn = asyncio.Lock()
        self._closed = False

    async def run(self, argv: Sequence[str] | str, *, stdin: str = "", timeout: float | None = None) -> Exec:
        arguments = jobs.arguments(argv).split("\0")
        async with self._turn:
            return await self._keeping(programs.keeping_request(argv=arguments), stdin, timeout, keep=True)

    async def python(self, code: str, *, stdin: str = "", timeout: float | None = None) -> Exec:
        async with self._turn:
            return await self._keeping(programs.keeping_request(code=code), stdin, timeout, keep=True)

    async def run_many(
        self, programs: Sequence[str], *, stdins: Sequence[str] | None = None, timeout: float | None = None
    ) -> list[Exec]:
        """All at once, as far as the pool's slots go. None changes the sandbox's files."""
        inputs = [""] * len(programs) if stdins is None else list(stdins)
        pairs = list(zip(programs, inputs, strict=True))
        async with self._turn, asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._alone(code, stdin, timeout)) for code, stdin in pairs]
        return [task.result() for task in tasks]

    async def call_many(
        self, code: str, function: str, inputs: Sequence[Sequence[Any]], *, timeout: float, total: float | None = None
    ) -> list[Call]:
        """See agentrl.sandbox.Sandbox.call_many. Only code and inputs are sent; values are read as data."""

        async def attempt(rest: Sequence[str], seconds: float) -> jobs.Attempt:
            request = json.dumps({"code": code, "function": function, "inputs": list(rest)}).encode()
            program = programs.calling(case_timeout=timeout, timeout=seconds, limit=jobs.RESULTS_LIMIT)
            files, fetch = {programs.REQUEST: request}, (programs.RECORDS, programs.ENDING)
            async with self._turn:
                self._check()
                answer = await self._pool.server.run(program, timeout=seconds + MARGIN, files=files, fetch=fetch)
            return jobs.read_attempt(answer.files.get(programs.RECORDS, b""), len(rest), _ending(answer))

        return await jobs.call_until_done(attempt, inputs, timeout=timeout, total=total)

    async def write(self, path: str, data: bytes) -> None:
        async with self._turn:
            answer = await self._file(path, {"data": data}, programs.STATE, write=True)
            self._state = answer.files.get(programs.STATE, self._state)

    async def read(self, path: str) -> bytes:
        async with self._turn:
            answer = await self._file(path, {}, "data", write=False)
            return answer.files.get("data", b"")

    async def alive(self) -> bool:
        return not self._closed

    async def aclose(self) -> None:
        if not self._closed:
            self._closed = True
            self._state = None
            self._pool.release(self._slot)

    async def __aenter__(self) -> RemoteSandbox:
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self.aclose()

    async def _alone(self, code: str, stdin: str, timeout: float | None) -> Exec:
        """Without files there is nothing to unpack, so the server runs the program itself."""
        if self._state is not None:
            return await self._keeping(programs.keeping_request(code=code), stdin, timeout, keep=False)
        self._check()
        seconds = self._seconds(timeout)
        return as_exec(await self._pool.server.run(code, stdin=stdin, timeout=seconds), self._spec, seconds)

    async def _keeping(self, request: bytes, stdin: str, timeout: float | None, *, keep: bool) -> Exec:
        self._check()
        files = {programs.REQUEST: request} | ({programs.STATE: self._state} if self._state is not None else {})
        fetch = (programs.STATE,) if keep else ()
        seconds = self._seconds(timeout)
        answer = await self._pool.server.run(programs.KEEPING, stdin=stdin, timeout=seconds, files=files, fetch=fetch)
        if keep:
            self._state = answer.files.get(programs.STATE, self._state)
        return as_exec(answer, self._spec, seconds)

    async def _file(self, path: str, files: Mapping[str, bytes], fetch: str, *, write: bool) -> Answer:
        self._check()
        jobs.encoded(path)
        request = json.dumps({"path": path, "write": write}).encode()
        sent = {**files, programs.REQUEST: request} | ({programs.STATE: self._state} if self._state is not None else {})
        answer = await self._pool.server.run(programs.FILES, timeout=self._spec.timeout, files=sent, fetch=(fetch,))
        done = as_exec(answer, self._spec, self._spec.timeout)
        report = Report(status=done.exit_code << 8, reason=Reason.EXIT)
        jobs.raise_for(report, path, done.stderr.encode())
        return answer

    def _seconds(self, timeout: float | None) -> float:
        return self._spec.timeout if timeout is None else min(timeout, self._spec.timeout)

    def _check(self) -> None:
        if self._closed:
            raise SandboxError("the sandbox is closed")


def as_exec(answer: Answer, spec: SandboxSpec, timeout: float) -> Exec:
    """Our own server says all of it; from another one's answer, what can be told."""
    run, limit = answer.run, spec.output_bytes
    out, err = (str(run.get(name) or "").encode("utf-8", "replace") for name in ("stdout", "stderr"))
    said = run.get("agentrl") or {}
    code = run.get("return_code")
    code = 137 if code is None else 128 - int(code) if int(code) < 0 else int(code)
    return Exec(
        status=_status(run, said, code, err),
        exit_code=code,
        stdout=out[:limit].decode("utf-8", "replace"),
        stderr=err[:limit].decode("utf-8", "replace"),
        stdout_cut=bool(said.get("stdout_cut")) or len(out) > limit,
        stderr_cut=bool(said.get("stderr_cut")) or len(err) > limit,
        cpu_s=float(said.get("cpu_s", 0.0)),
        wall_s=float(run.get("execution_time") or (timeout if run.get("status") == "TimeLimitExceeded" else 0.0)),
        peak_bytes=int(said.get("peak_bytes", 0)),
    )


def _status(run: Mapping[str, Any], said: Mapping[str, Any], code: int, stderr: bytes) -> Status:
    if run.get("status") == "TimeLimitExceeded":
        return Status.TIMEOUT
    told = str(said.get("status", ""))
    if told in (Status.MEMORY, Status.OUTPUT):
        return Status(told)
    if code == 0:
        return Status.OK
    if stderr.rstrip().rpartition(b"\n")[2].startswith(b"MemoryError"):
        return Status.MEMORY
    return Status.KILLED if code > 128 and code - 128 <= 64 else Status.ERROR


def _ending(answer: Answer) -> Report:
    """How the calls' process ended, as the program that watched it says; killed, when it did not get so far."""
    try:
        said = json.loads(answer.files.get(programs.ENDING, b"null"))
        status, reason = int(said[0]), Reason(said[1])
        os.waitstatus_to_exitcode(status)
    except (ValueError, TypeError, IndexError, KeyError):  # not there, or nonsense of the code, which gains nothing by it
        status, reason = 9, Reason.DEADLINE if answer.run.get("status") == "TimeLimitExceeded" else Reason.EXIT
    if answer.run.get("agentrl", {}).get("status") == Status.MEMORY:
        reason = Reason.MEMORY
    return Report(status=status, reason=reason)
