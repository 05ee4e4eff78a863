"""Where tools come from that hold something for an episode, or that take settings.

A class with methods marked `@tool` is made anew for each episode, at its first call, and closed at the end. `use` names a
registered class and gives it settings. What a session holds, its siblings never see.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol, runtime_checkable

from agentrl.blame import one_line, stands
from agentrl.errors import UsageError, nearest
from agentrl.sandbox import SandboxError
from agentrl.threads import invoke
from agentrl.tool import FunctionTool, Tool, ToolCrash, ToolResult, ToolSession, ToolSpec, injected
from agentrl.tool_schema import INJECTED


@runtime_checkable
class ToolSource(Protocol):
    """What gives each episode its own tools. One per process; found through `use`, or listed in `Env.tools` itself."""

    def session(self) -> ToolSession:
        """The tools of one episode. Must be cheap after the first time, and take nothing that must be given back before a
        tool is called: environments are looked at without being played. Raises UsageError."""
        ...


SECRET = ("env", "headers")
"""Settings whose values are not shown."""


@dataclass(frozen=True, slots=True)
class Use:
    """A registered tool with its settings, as `use` gives it. Plain data: it can be sent to another process."""

    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        """As it is written, but for values that may be keys to a server: of `env` and `headers` only the names are shown."""
        shown = {k: dict.fromkeys(v, "...") if k in SECRET and isinstance(v, Mapping) else v for k, v in self.settings.items()}
        return f"rl.use({', '.join([repr(self.name), *(f'{k}={v!r}' for k, v in shown.items())])})"

    @property
    def key(self) -> str:
        """Equal for equal settings, so that what they make is shared by the environments that ask for the same."""
        return json.dumps([self.name, self.settings], sort_keys=True, default=repr)


def use(name: str, /, **settings: Any) -> Use:
    """A tool that takes settings, for `Env.tools`: a bundled or installed name, "module:Name" or "file.py:Name".

    >>> class Quiz(rl.Env):                                                  # doctest: +SKIP
    ...     tools = ["calculator", rl.use("search", corpus="facts.jsonl", top=5)]
    """
    return Use(name, settings)


@lru_cache(maxsize=256)
def marked(cls: Any) -> tuple[str, ...]:
    """Names of the methods of a class that are marked with @tool."""
    return tuple(name for name, member in inspect.getmembers(cls, inspect.isfunction) if hasattr(member, "__agentrl_tool__"))


@lru_cache(maxsize=256)  # building the schema costs about a millisecond, and each episode asks for it
def function_tool(function: Any) -> FunctionTool:
    return FunctionTool(function)


@dataclass(frozen=True)
class BoundTool:
    """A method as a tool of one object. The schema is that of the class's function, made once."""

    tool: FunctionTool
    owner: Any

    @property
    def spec(self) -> ToolSpec:
        return self.tool.spec

    @property
    def asks(self) -> frozenset[str]:
        return self.tool.asks - {"self"}

    async def __call__(self, arguments: Mapping[str, Any], context: Mapping[str, Any]) -> ToolResult:
        return await self.tool(arguments, {**context, "self": self.owner})


def bound_tools(owner: Any) -> list[Tool]:
    """The marked methods of an object. All episodes that list it share it."""
    cls: Any = type(owner)
    return [BoundTool(function_tool(getattr(cls, name)), owner) for name in marked(cls)]


class ClassSource:
    """A class with methods marked @tool, and what its constructor is given besides what an episode fills in.

    The constructor may ask for `env` and `sandbox`. A class method `prepare`, where there is one, is called with the settings
    before anything is played: the place to refuse them with UsageError, and to load what all episodes share.
    """

    def __init__(self, cls: type, settings: Mapping[str, Any]) -> None:
        names = marked(cls)
        if not names:
            raise UsageError(f"{stands(cls)}: {cls.__name__} has no method marked with @tool")
        self.cls, self.settings = cls, dict(settings)
        self.tools = [function_tool(getattr(cls, name)) for name in names]
        self.asks = check_settings(cls, settings, INJECTED)
        if hasattr(cls, "prepare"):
            cls.prepare(**self.settings)

    def session(self) -> ClassSession:
        return ClassSession(self)


def check_settings(cls: Any, settings: Mapping[str, Any], filled_in: Sequence[str] = ()) -> frozenset[str]:
    """Which of `filled_in` the constructor asks for. Raises UsageError for settings that it does not take, or lacks."""
    parameters = inspect.signature(cls).parameters
    asks = frozenset(parameters) & frozenset(filled_in)
    own = {name: p for name, p in parameters.items() if name not in asks}
    anything = any(p.kind is p.VAR_KEYWORD for p in own.values())
    for name in settings:
        if name not in own and not anything:
            raise UsageError(f"{cls.__name__} has no setting {name!r}; {nearest(name, own)}")
    for name, p in own.items():
        if name not in settings and p.default is p.empty and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL):
            raise UsageError(f"{cls.__name__} needs a setting {name!r}: rl.use({cls.__name__.lower()!r}, {name}=...)")
    return asks


class ClassSession:
    """An object of the class for one episode, made when the first of its tools is called."""

    def __init__(self, source: ClassSource) -> None:
        self._source = source
        self._made: Any = None
        self._making = asyncio.Lock()  # two parallel calls must not make two

    @property
    def tools(self) -> Sequence[Tool]:
        return [SessionTool(tool, self) for tool in self._source.tools]

    @property
    def asks(self) -> frozenset[str]:
        """What the constructor asks for."""
        return self._source.asks

    async def owner(self, context: Mapping[str, Any]) -> Any:
        """Raises ToolCrash when the constructor fails."""
        async with self._making:
            if self._made is None:
                cls = self._source.cls
                given = {**self._source.settings, **injected(cls.__name__, self.asks, context)}
                try:
                    self._made = await invoke(cls, **given)
                except (UsageError, SandboxError):
                    raise
                except Exception as error:
                    raise ToolCrash(f"tool {cls.__name__} cannot be made: {one_line(error)}") from error
            return self._made

    async def aclose(self) -> None:
        made, self._made = self._made, None
        close = getattr(made, "close", None)
        if close is not None:
            await invoke(close)


@dataclass(frozen=True)
class SessionTool:
    """A method of the object that a session makes."""

    tool: FunctionTool
    session: ClassSession

    @property
    def spec(self) -> ToolSpec:
        return self.tool.spec

    @property
    def asks(self) -> frozenset[str]:
        return (self.tool.asks | self.session.asks) - {"self"}

    async def __call__(self, arguments: Mapping[str, Any], context: Mapping[str, Any]) -> ToolResult:
        return await self.tool(arguments, {**context, "self": await self.session.owner(context)})
