"""The tools of MCP servers. `agentrl.mcp.mcp` makes the settings; here they become tools of an episode.

A server that dies while it is called is started anew for the next call, once in an episode, and the model is told so; when it
dies again the episode is aborted, since that says nothing about the policy.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

from agentrl.errors import UsageError, nearest
from agentrl.messages import Image, Part, Text
from agentrl.schema_tool import Checked
from agentrl.tool import Tool, ToolCrash, ToolError, ToolResult, ToolSpec, call_within

from .mcp_connection import Connection, Server, ServerEnded, StartFailed, there, there_now


class Mcp:
    """The tools of an MCP server: rl.mcp("command ...") or rl.mcp(url="...").

    Which it has is asked once in a process, by a connection that is closed again.
    """

    def __init__(
        self,
        command: Sequence[str] = (),
        url: str = "",
        env: Mapping[str, str] | None = None,
        cwd: str = "",
        headers: Mapping[str, str] | None = None,
        only: Sequence[str] = (),
        prefix: str = "",
        shared: bool = False,
        timeout: float = 30.0,
        max_output: int = 4000,
        start_timeout: float = 30.0,
    ) -> None:
        """As of `agentrl.mcp.mcp`. Raises UsageError when the server cannot be started, or has no such tools."""
        if not command and not url:
            raise UsageError("an MCP server needs a command or a url, as rl.mcp gives them")
        self.server = Server(
            command=tuple(command), url=url, env=env or {}, cwd=cwd, headers=headers or {}, start_timeout=start_timeout
        )
        try:
            described = there_now(_listed(self.server))
        except (StartFailed, ServerEnded) as error:
            raise UsageError(str(error)) from error
        limits = {"timeout": timeout, "max_output": max_output}
        chosen = _chosen(self.server, described, only)
        self.tools = {tool.name: Checked(spec_of(tool, prefix, limits)) for tool in chosen}
        """By the server's own name."""
        self.shared = Shared(self.server) if shared else None

    def session(self) -> McpSession:
        return McpSession(self)


class Shared:
    """The one connection of all episodes of the process. Used on the connections' loop."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._lock = asyncio.Lock()
        self._connection: Connection | None = None

    async def connection(self) -> Connection:
        """Raises StartFailed."""
        async with self._lock:
            if self._connection is not None and self._connection.ended:
                await self._connection.aclose()
                self._connection = None
            if self._connection is None:
                self._connection = await Connection.open(self._server)
            return self._connection


class McpSession:
    """The server's tools for one episode; connects when the first is called."""

    def __init__(self, source: Mcp) -> None:
        self._source = source
        self._connection: Connection | None = None
        self._died = False
        self._opening = asyncio.Lock()  # two parallel calls must not start two

    @property
    def tools(self) -> Sequence[Tool]:
        return [McpTool(name, checked, self) for name, checked in self._source.tools.items()]

    async def connect(self) -> Connection:
        """Raises ToolCrash: that the server can be started was seen before the episode."""
        async with self._opening:
            if self._connection is None or self._connection.ended:
                try:
                    self._connection = await self._opened()
                except StartFailed as error:
                    raise ToolCrash(str(error)) from error
            return self._connection

    async def call(self, name: str, /, **arguments: Any) -> ToolResult:
        """Raises ToolError for what the server refuses and when it has died, ToolCrash when that is for the second time."""
        connection = await self.connect()
        try:
            return as_tool_result(await there(connection.call(name, arguments)))
        except ServerEnded as error:
            if self._died:
                raise ToolCrash(f"{error}; it is the second time in this episode") from error
            self._died = True
            raise ToolError(
                f"{error}. This call was not answered; the next one starts it anew, without what it held"
            ) from error

    async def aclose(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None and self._source.shared is None:
            await there(connection.aclose())

    async def _opened(self) -> Connection:
        if self._source.shared is not None:
            return await there(self._source.shared.connection())
        if self._connection is not None:
            await there(self._connection.aclose())
        return await there(Connection.open(self._source.server))


@dataclass(frozen=True)
class McpTool:
    """One tool of a server in one episode. The server's start is not counted as time of the call, nor of the episode: hundreds
    begin together, and how long the others' servers take says nothing about this one."""

    name: str
    """The server's own."""
    checked: Checked
    session: McpSession

    @property
    def spec(self) -> ToolSpec:
        return self.checked.spec

    async def __call__(self, arguments: Mapping[str, Any], context: Mapping[str, Any]) -> ToolResult:
        given = self.checked.given(arguments)
        if isinstance(given, ToolResult):
            return given
        with context.get("waiting", nullcontext)():
            await self.session.connect()
        return await call_within(self.spec, partial(self.session.call, self.name), given)


def spec_of(tool: Any, prefix: str, limits: Mapping[str, Any]) -> ToolSpec:
    """What the model is told. A tool that says that it only reads may run beside others."""
    return ToolSpec(
        name=re.sub(r"[^a-zA-Z0-9_-]", "_", f"{prefix}{tool.name}")[:64],
        description=(tool.description or "").strip(),
        parameters=tool.input_schema,
        parallel=bool(tool.annotations and tool.annotations.read_only_hint),
        **limits,
    )


def as_tool_result(result: Any) -> ToolResult:
    """The protocol's result as ours: texts and pictures; what is neither is named. Structured content repeats the texts by the
    protocol's rules, and counts only where there are none."""
    parts = [_part(block) for block in result.content]
    if not parts and result.structured_content is not None:
        parts = [Text(text=json.dumps(result.structured_content, ensure_ascii=False))]
    if result.is_error and not any(isinstance(part, Image) for part in parts):
        return ToolResult.error("".join(part.text for part in parts if isinstance(part, Text)))
    return ToolResult(content=tuple(parts), is_error=result.is_error)


def _part(block: Any) -> Part:
    if block.type == "text":
        return Text(text=block.text)
    if block.type == "image":
        return Image.of(base64.b64decode(block.data))
    if block.type == "resource":
        text = getattr(block.resource, "text", None)
        return Text(text=text if text is not None else f"[binary content of {block.resource.uri}]")
    if block.type == "resource_link":
        return Text(text=f"[{block.name}: {block.uri}]")
    return Text(text=f"[{block.type} left out]")


async def _listed(server: Server) -> list[Any]:
    connection = await Connection.open(server)
    try:
        return await connection.tools()
    finally:
        await connection.aclose()


def _chosen(server: Server, described: Sequence[Any], only: Sequence[str]) -> list[Any]:
    names = [tool.name for tool in described]
    for name in only:
        if name not in names:
            raise UsageError(f"{server} has no tool {name!r}; {nearest(name, names)}")
    if not described:
        raise UsageError(f"{server} has no tools")
    return [tool for tool in described if not only or tool.name in only]
