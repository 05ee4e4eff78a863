"""The tools of an environment, as a ToolBox: names, functions, classes, sources, tools, and methods marked with @tool."""

from __future__ import annotations

import inspect
from functools import lru_cache
from pathlib import Path
from typing import Any

from agentrl.env import Env
from agentrl.errors import UsageError
from agentrl.registry import find
from agentrl.tool import Tool, ToolBox, ToolSession
from agentrl.tool_source import ClassSource, ToolSource, Use, bound_tools, check_settings, function_tool, marked

_sources: dict[tuple[Path | None, str], ToolSource] = {}
"""What `use` has made in this process, by folder and settings: the same server or index is not made for each episode."""


def toolbox(env: Env) -> ToolBox:
    """What the agent may call in `env`. Raises UsageError for an unknown name, two tools of one name, a tool that cannot be
    described or that lacks its sandbox."""
    named = [env.tools] if isinstance(env.tools, str) else env.tools
    beside = _folder(type(env))
    items: list[Tool] = []
    sessions: list[ToolSession] = []
    for item in named:
        made = resolve(item, beside=beside)
        if isinstance(made, list):
            items += made
        elif isinstance(made, ToolSource):
            sessions.append(made.session())
            items += sessions[-1].tools
        else:
            items.append(made)
    items += bound_tools(env)
    box = ToolBox(items, sessions)
    for spec in box.specs:
        if "sandbox" in box.asks(spec.name) and env.sandbox is None:
            raise UsageError(f"tool {spec.name!r} needs a sandbox: set `sandbox = SandboxSpec()` on {type(env).__name__}")
    return box


def resolve(item: Any, *, beside: Path | None = None) -> Tool | list[Tool] | ToolSource:
    """Whatever may stand in `Env.tools`, as a tool, the tools of an object, or a source that gives each episode its own.

    A registered name, "module:name", "file.py:name", `use(...)`, a function, a class or an object with methods marked @tool, a
    source, or a tool. `beside`: the folder in which a file is looked for first. Raises UsageError.
    """
    if isinstance(item, Use):
        return _used(item, beside)
    if isinstance(item, str):
        return _used(Use(item), beside) if inspect.isclass(found := find("tool", item, beside=beside)) else resolve(found)
    kind: Any = type(item)
    if issubclass(kind, type):
        return _class_source(item)
    if hasattr(item, "spec"):
        tool: Tool = item
        return tool
    if isinstance(item, ToolSource):
        return item
    if marked(kind):
        return bound_tools(item)
    if not callable(item):
        kinds = "a name, a function, a class with methods marked @tool, or an object with a spec"
        raise UsageError(f"a tool is {kinds}, not {kind.__name__}")
    return function_tool(item)


def _used(item: Use, beside: Path | None) -> ToolSource:
    key = (beside, item.key)
    if key not in _sources:
        found: Any = find("tool", item.name, beside=beside)
        if not inspect.isclass(found):
            raise UsageError(f"tool {item.name!r} takes no settings; write its name alone")
        if hasattr(found, "session"):
            check_settings(found, item.settings)
            made: Any = found
            _sources[key] = made(**item.settings)
        else:
            _sources[key] = ClassSource(found, item.settings)
    return _sources[key]


@lru_cache(maxsize=256)
def _class_source(cls: Any) -> ClassSource:
    return ClassSource(cls, {})


def _folder(cls: type[Env]) -> Path | None:
    """Where the class that names the tools is written; None for one that stands in no file."""
    owner = next((base for base in cls.__mro__ if "tools" in vars(base) and base is not Env), cls)
    try:
        return Path(inspect.getfile(owner)).parent
    except (OSError, TypeError):
        return None
