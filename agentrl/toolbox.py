"""The tools of an environment, as a ToolBox: names, functions, tools, and methods marked with @tool."""

from __future__ import annotations

import inspect
from functools import lru_cache
from pathlib import Path
from typing import Any

from agentrl.env import Env
from agentrl.errors import UsageError
from agentrl.registry import find
from agentrl.tool import FunctionTool, Tool, ToolBox


def toolbox(env: Env) -> ToolBox:
    """What the agent may call in `env`. Raises UsageError for an unknown name, two tools of one name, a tool that cannot be
    described or that lacks its sandbox."""
    named = [env.tools] if isinstance(env.tools, str) else env.tools
    beside = _folder(type(env))
    items = [as_tool(item, beside=beside) for item in named]
    items += [FunctionTool(getattr(env, name)) for name in _marked(type(env))]
    for item in items:
        if _wants_sandbox(item) and env.sandbox is None:
            raise UsageError(f"tool {item.spec.name!r} needs a sandbox: set `sandbox = SandboxSpec()` on {type(env).__name__}")
    return ToolBox(items)


def as_tool(item: Any, *, beside: Path | None = None) -> Tool:
    """A registered name, "module:function", "file.py:function", a function, or a tool, as a tool. `beside`: the folder in which
    a file is looked for first."""
    if isinstance(item, str):
        item = find("tool", item, beside=beside)
    if hasattr(item, "spec"):
        tool: Tool = item
        return tool
    if not callable(item):
        raise UsageError(f"a tool is a name, a function or an object with a spec, not {type(item).__name__}")
    return _function_tool(item)


@lru_cache(maxsize=256)  # building the schema costs about a millisecond, and each episode asks for it
def _function_tool(function: Any) -> Tool:
    return FunctionTool(function)


def _folder(cls: type[Env]) -> Path | None:
    """Where the class that names the tools is written; None for one that stands in no file."""
    owner = next((base for base in cls.__mro__ if "tools" in vars(base) and base is not Env), cls)
    try:
        return Path(inspect.getfile(owner)).parent
    except (OSError, TypeError):
        return None


def _marked(cls: type) -> list[str]:
    return [name for name, f in inspect.getmembers(cls, inspect.isfunction) if hasattr(f, "__agentrl_tool__")]


def _wants_sandbox(item: Tool) -> bool:
    return isinstance(item, FunctionTool) and "sandbox" in inspect.signature(item.function).parameters
