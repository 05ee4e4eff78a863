"""One connected MCP server: a program of ours on its standard streams, or one that listens on HTTP.

Consumes calls, produces results. All connections live on the event loop of one thread (`there` leads to it), so that they
outlive the loop of a run and that reading a server's answers holds up no episode. Each is held open by a task of its own,
which enters and leaves the protocol's contexts. Waits for: the server, under the caller's deadline or `start_timeout`.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import logging
import os
import sys
import tempfile
import threading
from collections.abc import Coroutine, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from agentrl.errors import MissingExtra
from agentrl.tool import ToolError

T = TypeVar("T")

STARTS = 8
"""Servers that start at the same time: hundreds of episodes begin together, and a start is a second of a core."""

LAST_WORDS = 300
"""Characters of a server's standard error that are told."""

LOG_BYTES = 1 << 20
"""What is kept of a server's standard error."""

HTTP_TIMEOUT = 30.0  # seconds to connect or send, as the package's own client
HTTP_READ_TIMEOUT = 300.0  # seconds between two pieces of an answer: a server may hold a stream open

CLOSE_TIMEOUT = 10.0  # seconds; the protocol's own steps (close its input, wait, terminate, kill) take 6 at most

log = logging.getLogger(__name__)


class ServerEnded(RuntimeError):
    """The server has ended, or can no longer be reached."""


class StartFailed(RuntimeError):
    """The server could not be started, or does not speak the protocol."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """How a server is reached.

    >>> str(Server(command=("/usr/bin/python", "files.py")))
    "the MCP server 'python files.py'"
    """

    command: tuple[str, ...] = ()
    url: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    start_timeout: float = 30.0  # seconds

    def __str__(self) -> str:
        return f"the MCP server {self.url or ' '.join(Path(word).name or word for word in self.command)!r}"


class _Loop:
    """An event loop in a daemon thread, for as long as the process."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.starts = asyncio.Semaphore(STARTS)
        self.open: set[Connection] = set()
        threading.Thread(target=self.loop.run_forever, name="agentrl-mcp", daemon=True).start()
        atexit.register(self.close)

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def close(self) -> None:
        """Ends the servers that are still there, so that none outlives the process."""
        try:
            self.submit(self._close_all()).result(CLOSE_TIMEOUT)
        except TimeoutError:
            log.warning("MCP servers could not be ended within %g s", CLOSE_TIMEOUT)

    async def _close_all(self) -> None:
        await asyncio.gather(*(connection.aclose() for connection in list(self.open)))


@cache
def _loop() -> _Loop:
    return _Loop()


async def there(work: Coroutine[Any, Any, T]) -> T:
    """Awaits work that is done on the connections' loop; cancelling reaches it."""
    return await asyncio.wrap_future(_loop().submit(work))


def there_now(work: Coroutine[Any, Any, T]) -> T:
    """The same, for callers that are not async."""
    return _loop().submit(work).result()


class Connection:
    """A server, connected. Made by `open`; all is called on the connections' loop."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self._errors = tempfile.TemporaryFile("a+")  # appended to, so that it can be cut short while it is written  # noqa: SIM115
        self._closing = asyncio.Event()
        self._dead = False
        self._ready: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._holder = asyncio.create_task(self._hold(), name=str(server))

    @classmethod
    async def open(cls, server: Server) -> Connection:
        """Raises StartFailed, MissingExtra."""
        here = _loop()
        async with here.starts:
            self = cls(server)
            here.open.add(self)
            try:
                async with asyncio.timeout(server.start_timeout):
                    await asyncio.wait({self._holder, self._ready}, return_when=asyncio.FIRST_COMPLETED)
                if self._holder.done():
                    self._holder.result()
                return self
            except BaseException as error:
                words = self._last_words()
                await self.aclose()
                if isinstance(error, TimeoutError):
                    raise StartFailed(f"{server} gave no answer within {server.start_timeout:g} s{words}") from None
                if isinstance(error, Exception) and not isinstance(error, MissingExtra):
                    raise StartFailed(f"{server} cannot be started: {_cause(error)}{words}") from error
                raise

    @property
    def ended(self) -> bool:
        """Has a call found it dead, or the protocol's client?"""
        return self._dead or self._holder.done()

    async def tools(self) -> list[Any]:
        """Its tools, as the protocol describes them. Raises ServerEnded."""
        found: list[Any] = []
        cursor: str | None = None
        while True:
            page = await self._ask(self._ready.result().list_tools(cursor=cursor))
            found += page.tools
            cursor = page.next_cursor
            if not cursor:
                return found

    async def call(self, name: str, arguments: Mapping[str, Any]) -> Any:
        """The protocol's result. Raises ServerEnded, and ToolError for what the server says is wrong with the request."""
        try:
            return await self._ask(self._ready.result().call_tool(name, dict(arguments)))
        finally:
            self._trim()

    async def aclose(self) -> None:
        """Ends the connection, and the program where it is ours. Idempotent."""
        _loop().open.discard(self)
        self._closing.set()
        if not self._ready.done():
            self._holder.cancel()
        await asyncio.wait({self._holder}, timeout=CLOSE_TIMEOUT)
        if not self._holder.done():
            log.warning("%s does not end", self.server)
        elif not self._holder.cancelled() and (error := self._holder.exception()) is not None:
            log.debug("%s ended: %r", self.server, error)
        self._errors.close()

    async def _hold(self) -> None:
        async with contextlib.AsyncExitStack() as stack:
            client = await stack.enter_async_context(await self._client(stack))
            self._ready.set_result(client)
            await self._closing.wait()

    async def _client(self, stack: contextlib.AsyncExitStack) -> Any:
        try:
            import httpx2  # what the package itself uses
            import mcp
            from mcp.client.streamable_http import streamable_http_client
        except ModuleNotFoundError:
            raise MissingExtra("mcp", extra="mcp") from None
        if self.server.url:
            waits = httpx2.Timeout(HTTP_TIMEOUT, read=HTTP_READ_TIMEOUT)
            web = await stack.enter_async_context(httpx2.AsyncClient(headers=dict(self.server.headers), timeout=waits))
            return mcp.Client(streamable_http_client(self.server.url, http_client=web))
        program, *arguments = self.server.command
        parameters = mcp.StdioServerParameters(
            command=sys.executable if program in ("python", "python3") else program,
            args=arguments,
            env=dict(self.server.env),
            cwd=self.server.cwd or None,
        )
        return mcp.Client(mcp.stdio_client(parameters, errlog=self._errors))

    async def _ask(self, request: Coroutine[Any, Any, T]) -> T:
        """Waits for the answer, or for the end of the server, which the protocol's client may not tell to a request."""
        import mcp
        import mcp_types

        task = asyncio.ensure_future(request)
        task.add_done_callback(lambda done: done.cancelled() or done.exception())  # nobody may be left to look at it
        try:
            await asyncio.wait({task, self._holder}, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
        except mcp.MCPError as error:
            if error.code != mcp_types.CONNECTION_CLOSED:
                raise ToolError(error.message) from error
        finally:
            task.cancel()
        self._dead = True
        raise ServerEnded(f"{self.server} has ended{self._last_words()}")

    def _last_words(self) -> str:
        size = os.fstat(self._errors.fileno()).st_size
        text = os.pread(self._errors.fileno(), 4 * LAST_WORDS, max(0, size - 4 * LAST_WORDS)).decode("utf-8", "replace").strip()
        return f"; its last words: {text[-LAST_WORDS:]}" if text else ""

    def _trim(self) -> None:
        with contextlib.suppress(ValueError):  # closed meanwhile
            if os.fstat(self._errors.fileno()).st_size > LOG_BYTES:
                os.ftruncate(self._errors.fileno(), 0)


def _cause(error: BaseException) -> str:
    """The first error inside of groups, in one line."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
