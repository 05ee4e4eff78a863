"""A code server over any pool of sandboxes: SandboxFusion's POST /run_code, as its clients (verl's among them) call it.

Each request gets a fresh sandbox. Requests beyond the pool's slots wait their turn, in order, and beyond `queue` are turned
away with 503 and Retry-After; the time of an execution is counted from its own start. Not served: other languages than
Python and a shell, and a memory limit per request: the pool's own limits hold.
"""

from __future__ import annotations

import base64
import binascii
import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from agentrl.sandbox import Exec, Sandbox, SandboxError, SandboxPool, Status

QUEUE = 1024  # requests that may wait
LARGEST = 256 << 20  # bytes of a request
RETRY_AFTER = 1  # seconds
LANGUAGES = ("python", "bash")
TIMEOUT = 10.0  # seconds, SandboxFusion's default

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What /run_code takes, checked. Other fields that SandboxFusion knows are accepted and mean nothing here."""

    code: str
    language: str
    stdin: str
    timeout: float
    files: Mapping[str, bytes] = field(default_factory=dict)
    fetch: tuple[str, ...] = ()


class Server:
    """`app` serves. The pool is the caller's, who closes it."""

    def __init__(self, pool: SandboxPool, *, backend: str, slots: int, queue: int = QUEUE) -> None:
        self._pool, self._queue = pool, queue
        self._about = {"backend": backend, "isolation": pool.isolation, "slots": slots, "languages": LANGUAGES}
        self._waiting = 0
        self.app = web.Application(client_max_size=LARGEST)
        self.app.add_routes(
            [web.post("/run_code", self._run_code), web.get("/v1/ping", _ping), web.get("/v1/info", self._info)]
        )

    async def _info(self, request: web.Request) -> web.Response:
        return web.json_response({**self._about, "waiting": self._waiting})

    async def _run_code(self, request: web.Request) -> web.Response:
        try:
            asked = parse(await request.json())
        except ValueError as error:  # as FastAPI answers what its model does not take
            return web.json_response({"detail": str(error)}, status=422)
        if asked.language not in LANGUAGES:
            return web.json_response(failure(f"the language {asked.language!r} is not served here, only {LANGUAGES}"))
        if self._waiting >= self._queue:
            return web.json_response({"detail": "too many wait"}, status=503, headers={"Retry-After": str(RETRY_AFTER)})
        try:
            return web.json_response(await self._run(asked))
        except (SandboxError, OSError, ValueError) as error:
            log.warning("a request failed: %s", error)
            return web.json_response(failure(str(error)))

    async def _run(self, asked: Request) -> dict[str, Any]:
        self._waiting += 1
        try:
            sandbox = await self._pool.acquire()
        finally:
            self._waiting -= 1
        try:
            for name, data in asked.files.items():
                await sandbox.write(name, data)
            if asked.language == "python":
                done = await sandbox.python(asked.code, stdin=asked.stdin, timeout=asked.timeout)
            else:
                done = await sandbox.run(["/bin/bash", "-c", asked.code], stdin=asked.stdin, timeout=asked.timeout)
            return result(done, await _fetch(sandbox, asked.fetch))
        finally:
            await sandbox.aclose()


async def _ping(request: web.Request) -> web.Response:
    return web.json_response("pong")


async def _fetch(sandbox: Sandbox, names: tuple[str, ...]) -> dict[str, bytes]:
    """Those that are there: a file that was not made is no fault of the server's."""
    found = {}
    for name in names:
        try:
            found[name] = await sandbox.read(name)
        except (OSError, ValueError):
            continue
    return found


def parse(body: Any) -> Request:
    """Raises ValueError that names the field."""
    if not isinstance(body, dict):
        raise ValueError("the body must be a JSON object")
    timeout = body.get("run_timeout", TIMEOUT)
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not (math.isfinite(timeout) and timeout > 0):
        raise ValueError(f"run_timeout must be seconds above 0, not {timeout!r}")
    fetch = body.get("fetch_files") or []
    if not isinstance(fetch, list) or not all(isinstance(name, str) for name in fetch):
        raise ValueError("fetch_files must be a list of paths")
    return Request(
        code=_text(body, "code"),
        language=_text(body, "language"),
        stdin=_text(body, "stdin") if body.get("stdin") is not None else "",
        timeout=float(timeout),
        files=_files(body.get("files") or {}),
        fetch=tuple(fetch),
    )


def _text(body: Mapping[str, Any], name: str) -> str:
    value = body.get(name)
    if not isinstance(value, str):
        raise ValueError(f"{name} must be a text, not {type(value).__name__}")
    return value


def _files(given: Any) -> dict[str, bytes]:
    if not isinstance(given, dict):
        raise ValueError("files must map paths to base64")
    try:
        return {name: base64.b64decode(text, validate=True) for name, text in given.items() if text is not None}
    except (binascii.Error, TypeError, ValueError) as error:
        raise ValueError(f"files must map paths to base64: {error}") from None


def result(done: Exec, files: Mapping[str, bytes]) -> dict[str, Any]:
    """SandboxFusion's answer; under "agentrl" what it has no field for."""
    timed_out = done.status is Status.TIMEOUT
    code = done.exit_code
    if done.status in (Status.KILLED, Status.MEMORY) and code > 128:
        code = 128 - code  # as Python's subprocess counts signals
    said = {
        "status": done.status.value,
        "stdout_cut": done.stdout_cut,
        "stderr_cut": done.stderr_cut,
        "cpu_s": done.cpu_s,
        "peak_bytes": done.peak_bytes,
    }
    run = {
        "status": "TimeLimitExceeded" if timed_out else "Finished",
        "execution_time": done.wall_s,
        "return_code": None if timed_out else code,
        "stdout": done.stdout,
        "stderr": done.stderr,
        "agentrl": said,
    }
    return {
        "status": "Success" if done.ok else "Failed",
        "message": "",
        "compile_result": None,
        "run_result": run,
        "executor_pod_name": None,
        "files": {name: base64.b64encode(data).decode() for name, data in files.items()},
    }


def failure(message: str) -> dict[str, Any]:
    """The sandbox failed, not the code in it."""
    empty: dict[str, Any] = {"compile_result": None, "run_result": None, "executor_pod_name": None, "files": {}}
    return {"status": "SandboxError", "message": message, **empty}
