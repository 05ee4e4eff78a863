"""One code server over HTTP: sends a program to its /run_code and gives the answer back, at the server's own pace.

What is bounded: how many requests are under way, and how long one may take in all. Waiting for a turn, here or there, is not
execution: the program's own timeout is kept by the server, and only patience for the queue by us.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from agentrl.sandbox import SandboxError, SandboxLost

PATIENCE = 600.0  # seconds that a request may wait in queues, beyond its execution
BACKOFF, MAX_BACKOFF = 0.2, 10.0  # seconds before a busy server is asked again, where it does not say
BROKEN_CONNECTIONS = 4  # in a row, with one request
BUSY = (429, 502, 503, 504)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Of one execution. See agentrl.tools.sandboxes.server for the fields of `run`."""

    run: Mapping[str, Any]
    files: Mapping[str, bytes] = field(default_factory=dict)


class CodeServer:
    """Used by one event loop; to be closed."""

    def __init__(self, url: str, slots: int, patience: float = PATIENCE) -> None:
        self.url = url.rstrip("/").removesuffix("/run_code")
        self._patience = patience
        self._turns = asyncio.Semaphore(slots)
        self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=slots))

    async def info(self) -> Mapping[str, Any] | None:
        """What our own server says of itself; None of another one that answers. Raises SandboxError."""
        try:
            async with asyncio.timeout(30):
                async with self._session.get(f"{self.url}/v1/info") as response:
                    if response.status == 200:
                        return dict(await response.json())
                async with self._session.get(f"{self.url}/v1/ping") as response:
                    response.raise_for_status()
                    return None
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise SandboxError(f"no code server answers at {self.url}: {error or 'timeout'}") from None

    async def run(
        self,
        code: str,
        *,
        language: str = "python",
        stdin: str = "",
        timeout: float,
        files: Mapping[str, bytes] | None = None,
        fetch: Sequence[str] = (),
    ) -> Answer:
        """Runs one program; `timeout` seconds for itself. Raises SandboxError, SandboxLost when the server gives no result."""
        body = {
            "code": code,
            "language": language,
            "stdin": stdin,
            "compile_timeout": timeout,
            "run_timeout": timeout,
            "memory_limit_MB": -1,
            "files": {name: base64.b64encode(data).decode() for name, data in (files or {}).items()},
            "fetch_files": list(fetch),
        }
        end = time.monotonic() + self._patience + timeout
        try:
            async with asyncio.timeout(self._patience + timeout), self._turns:
                return _answer(await self._post(body, end))
        except TimeoutError:
            raise SandboxLost(f"{self.url} gave no result within {self._patience + timeout:.0f} s") from None

    async def _post(self, body: Mapping[str, Any], end: float) -> dict[str, Any]:
        broken, pause = 0, BACKOFF
        while True:
            try:
                async with self._session.post(f"{self.url}/run_code", json=body, timeout=_left(end)) as response:
                    if response.status == 200:
                        return dict(await response.json())
                    if response.status not in BUSY:
                        raise SandboxError(f"{self.url} answers {response.status}: {(await response.text())[:300]}")
                    wait, broken = _retry_after(response.headers.get("Retry-After"), pause), 0
            except (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError) as error:
                broken += 1
                if broken >= BROKEN_CONNECTIONS:
                    raise SandboxLost(f"{self.url} cannot be reached: {error}") from None
                wait = pause
            await asyncio.sleep(wait)  # the timeout of `run` ends this loop
            pause = min(MAX_BACKOFF, 2 * pause)

    async def aclose(self) -> None:
        await self._session.close()


def _left(end: float) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(total=max(0.1, end - time.monotonic()))


def _retry_after(value: str | None, otherwise: float) -> float:
    """Seconds; a date, which the header may hold as well, counts as if it were not there."""
    try:
        return min(60.0, max(0.0, float(value))) if value is not None else otherwise
    except ValueError:
        return otherwise


def _answer(got: Mapping[str, Any]) -> Answer:
    run = got.get("run_result")
    if got.get("status") == "SandboxError" or not isinstance(run, dict) or run.get("status") == "Error":
        raise SandboxLost(f"the code server failed: {str(got.get('message') or got)[:300]}")
    try:
        files = {str(name): base64.b64decode(text) for name, text in dict(got.get("files") or {}).items()}
    except (ValueError, TypeError) as error:
        raise SandboxLost(f"the code server's answer makes no sense: {error}") from None
    return Answer(run=run, files=files)
