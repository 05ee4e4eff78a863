"""The operations of an HTTP API as tools, by its OpenAPI 3 description. `agentrl.mcp.openapi` makes the settings.

Parameters of path, query and header, and the fields of a JSON body, are the tool's arguments. An answer with a status of 400 to
499 is an error that the model reads; a server that cannot be reached, or fails itself, aborts the episode.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any
from urllib.parse import quote

import aiohttp

from agentrl.errors import UsageError, nearest
from agentrl.schema_tool import Checked, SchemaTool
from agentrl.tool import Tool, ToolError, ToolSpec

from .openapi_spec import Operation, operations, read

MAX_BYTES = 1 << 20
"""What is read of an answer at most; the tool's own limit cuts the text further."""


class OpenApi:
    """The operations of an HTTP API, by its description: rl.openapi("api.yaml", url="...")."""

    def __init__(
        self,
        spec: str | Mapping[str, Any],
        url: str = "",
        headers: Mapping[str, str] | None = None,
        only: Sequence[str] = (),
        prefix: str = "",
        timeout: float = 30.0,
        max_output: int = 4000,
    ) -> None:
        """As of `agentrl.mcp.openapi`. Raises UsageError for what is no description, or has no such operations."""
        description = read(spec)
        servers = description.get("servers") or [{}]
        self.url = (url or servers[0].get("url", "")).rstrip("/")
        if not self.url.startswith(("http://", "https://")):
            raise UsageError(f"the API needs a url, as in rl.openapi(..., url='http://localhost:8080'), not {self.url!r}")
        self.headers = dict(headers or {})
        known = {operation.name: operation for operation in operations(description)}
        for name in only:
            if name not in known:
                raise UsageError(f"the API has no operation {name!r}; {nearest(name, known)}")
        chosen = {name: operation for name, operation in known.items() if not only or name in only}
        if not chosen:
            raise UsageError("the OpenAPI description has no operations")
        self.tools = [(made, _checked(made, prefix, timeout, max_output)) for made in chosen.values()]

    def session(self) -> OpenApiSession:
        return OpenApiSession(self)


class OpenApiSession:
    """The operations for one episode, with one client, so that cookies are the episode's own."""

    def __init__(self, source: OpenApi) -> None:
        self._source = source
        self._client: aiohttp.ClientSession | None = None

    @property
    def tools(self) -> Sequence[Tool]:
        return [SchemaTool(checked, partial(self._call, operation)) for operation, checked in self._source.tools]

    async def aclose(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def _call(self, operation: Operation, /, **arguments: Any) -> Any:
        if self._client is None:
            jar = aiohttp.CookieJar(unsafe=True)  # also of a server that is called by its number
            self._client = aiohttp.ClientSession(headers=self._source.headers, cookie_jar=jar)
        request = self._client.request(operation.method, **sent(self._source.url, operation, arguments))
        async with request as response:
            body = (await response.content.read(MAX_BYTES)).decode("utf-8", "replace")
            if response.status >= 500:
                raise RuntimeError(
                    f"{operation.method.upper()} {operation.path} was answered with {response.status}: {body[:200]}"
                )
            if response.status >= 400:
                raise ToolError(f"HTTP {response.status}: {body or response.reason}")
            return body


def sent(url: str, operation: Operation, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """What aiohttp's request takes: url, params, headers, json.

    >>> get = Operation(name="get", method="get", path="/orders/{id}", places={"id": "path", "all": "query"})
    >>> sent("http://a", get, {"id": "b/c", "all": True})
    {'url': 'http://a/orders/b%2Fc', 'params': {'all': 'true'}, 'headers': {}, 'json': None}
    """
    path, by_place = operation.path, {place: dict[str, Any]() for place in ("query", "header", "field", "body", "path")}
    for name, value in arguments.items():
        by_place[operation.places[name]][name] = value
    for name, value in by_place["path"].items():
        path = path.replace("{" + name + "}", quote(_text(value), safe=""))
    whole = list(by_place["body"].values())
    return {
        "url": url + path,
        "params": {name: _texts(value) for name, value in by_place["query"].items() if value is not None},
        "headers": {name: _text(value) for name, value in by_place["header"].items()},
        "json": whole[0] if whole else by_place["field"] or None,
    }


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _texts(value: Any) -> str | list[str]:
    """A list is given as a repeated parameter."""
    return [_text(item) for item in value] if isinstance(value, list) else _text(value)


def _checked(operation: Operation, prefix: str, timeout: float, max_output: int) -> Checked:
    return Checked(
        ToolSpec(
            name=f"{prefix}{operation.name}"[:64],
            description=operation.description,
            parameters=operation.parameters,
            timeout=timeout,
            max_output=max_output,
            parallel=operation.method == "get",
        )
    )
