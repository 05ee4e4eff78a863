"""MCP servers and HTTP APIs as tools, for `Env.tools`. Only their settings stand here: nothing is imported or started until an
environment that lists one is opened."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from inspect import signature
from os import PathLike, fspath
from typing import Any

from agentrl.errors import UsageError
from agentrl.tool_source import Use, use


def mcp(
    command: str | Sequence[str | PathLike[str]] | None = None,
    *,
    url: str | None = None,
    env: Mapping[str, str] | None = None,
    cwd: str | PathLike[str] | None = None,
    headers: Mapping[str, str] | None = None,
    only: Sequence[str] = (),
    prefix: str = "",
    shared: bool = False,
    timeout: float = 30.0,
    max_output: int = 4000,
    start_timeout: float = 30.0,
) -> Use:
    """The tools of an MCP server: of a program that is started (`command`, over its standard streams; `python` is the Python
    that runs agentrl), or of one that listens (`url`, streamable HTTP).

    Each episode has a connection, and so a program, of its own; `shared` is for servers that hold no state: all episodes of
    the process use one. `env` is added to the few variables that a server inherits, `headers` to its requests. `only` names the
    tools that are taken, `prefix` stands before their names. `timeout` (seconds) and `max_output` (characters) bound each call,
    `start_timeout` the start. Raises UsageError.

    >>> class Files(rl.Env):                                                              # doctest: +SKIP
    ...     tools = [rl.mcp("python file_server.py"), rl.mcp(url="http://localhost:8000/mcp", shared=True)]
    """
    if (command is None) == (url is None):
        raise UsageError("rl.mcp takes a command or a url: rl.mcp('python server.py') or rl.mcp(url='http://...')")
    settings: dict[str, Any] = {
        "command": _words(command) if command is not None else [],
        "url": url or "",
        "env": dict(env or {}),
        "cwd": fspath(cwd) if cwd is not None else "",
        "headers": dict(headers or {}),
        "only": [only] if isinstance(only, str) else list(only),
        "prefix": prefix,
        "shared": shared,
        "timeout": timeout,
        "max_output": max_output,
        "start_timeout": start_timeout,
    }
    return use("mcp", **_set(settings, mcp))


def openapi(
    spec: str | PathLike[str] | Mapping[str, Any],
    *,
    url: str = "",
    headers: Mapping[str, str] | None = None,
    only: Sequence[str] = (),
    prefix: str = "",
    timeout: float = 30.0,
    max_output: int = 4000,
) -> Use:
    """The operations of an HTTP API as tools, by its OpenAPI 3 description: a file (JSON or YAML) or its content.

    `url`: where it is served, if not where the description says; `only`: the operations that are taken, by `operationId`; the
    rest as of `mcp`.

    >>> class Orders(rl.Env):                                                             # doctest: +SKIP
    ...     tools = [rl.openapi("orders.yaml", url="http://localhost:8080", only=["get_order"])]
    """
    settings: dict[str, Any] = {
        "spec": dict(spec) if isinstance(spec, Mapping) else fspath(spec),
        "url": url,
        "headers": dict(headers or {}),
        "only": [only] if isinstance(only, str) else list(only),
        "prefix": prefix,
        "timeout": timeout,
        "max_output": max_output,
    }
    return use("openapi", **_set(settings, openapi))


def _set(settings: Mapping[str, Any], function: Any) -> dict[str, Any]:
    """Those that are not the defaults of `function`."""
    defaults = {name: p.default for name, p in signature(function).parameters.items()}
    empty: tuple[Any, ...] = (None, "", [], {})
    return {name: value for name, value in settings.items() if value not in empty and value != defaults[name]}


def _words(command: str | Sequence[str | PathLike[str]]) -> list[str]:
    words = shlex.split(command) if isinstance(command, str) else [fspath(word) for word in command]
    if not words:
        raise UsageError("rl.mcp: the command is empty")
    return words
