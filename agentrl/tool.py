"""Tools: plain Python functions that a model may call.

The schema comes from type hints and docstring; arguments are validated by pydantic; an invalid call is answered with a
text the model can learn from. Parameters named `sandbox` or `env` are filled in by the framework and hidden from the
model. A tool that raises `ToolError` answers with its text; any other exception aborts the episode as TOOL_CRASH. One that
returns `rl.done(...)` ends the episode.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby
from typing import Any, Protocol, TypeVar, overload

from agentrl.blame import blaming
from agentrl.env import Step, as_step
from agentrl.errors import UsageError, nearest
from agentrl.messages import Image, Message, ParseError, Part, Text, ToolCall, as_messages
from agentrl.sandbox import Exec, SandboxError, cut
from agentrl.threads import invoke
from agentrl.tool_schema import INJECTED, arguments_model, docstring, explain, json_schema, name_of

F = TypeVar("F", bound=Callable[..., Any])


class ToolError(RuntimeError):
    """An expected failure of a tool; its text is shown to the model."""


class ToolCrash(RuntimeError):
    """A tool raised what it should not have. The episode is aborted: this says nothing about the policy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """What a model is told of a tool, and the limits it runs under.

    >>> ToolSpec(name="add", description="Adds.", parameters={"type": "object"}).to_dict()["function"]["name"]
    'add'
    """

    name: str
    description: str
    parameters: Mapping[str, Any]  # JSON schema
    timeout: float = 30.0  # seconds
    max_output: int = 4000  # characters; head and tail are kept
    retries: int = 0
    """How often a call that ended in ToolError or a timeout is tried again. For idempotent tools only. A sync tool is never
    tried again after a timeout: its thread cannot be stopped, and two of them would work at the same time."""
    parallel: bool = False
    """May run beside other calls of the same turn."""

    def to_dict(self) -> dict[str, Any]:
        """The form that chat templates and OpenAI-compatible endpoints take."""
        function = {"name": self.name, "description": self.description, "parameters": dict(self.parameters)}
        return {"type": "function", "function": function}


NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""What endpoints and chat templates take as a tool's name."""


def problem(spec: ToolSpec) -> str:
    """The first thing in a spec that cannot be held to; empty when all is well.

    >>> problem(ToolSpec(name="add", description="Adds.", parameters={}, timeout=0))
    'timeout=0 must be seconds above 0'
    """
    if not NAME.fullmatch(spec.name):
        return "a name may hold letters, digits, _ and -, 64 at most"
    if not isinstance(spec.timeout, (int, float)) or not 0 < spec.timeout < math.inf:
        return f"timeout={spec.timeout!r} must be seconds above 0"
    for name, least in (("max_output", 1), ("retries", 0)):
        value = getattr(spec, name)
        if not isinstance(value, int) or value < least:
            return f"{name}={value!r} must be a whole number of at least {least}"
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """The answer to one call."""

    content: tuple[Part, ...]
    is_error: bool = False
    step: Step | None = None
    """What the call did to the episode, where the tool returned a Step: its reward counts, and it may end the episode."""

    @property
    def text(self) -> str:
        """The text parts, joined."""
        return "".join(part.text for part in self.content if isinstance(part, Text))

    @property
    def is_last(self) -> bool:
        """Did it end the episode?"""
        return self.step is not None and (self.step.terminated or self.step.truncated)

    @classmethod
    def error(cls, text: str) -> ToolResult:
        return cls(content=(Text(text=f"Error: {text}"),), is_error=True)


class Tool(Protocol):
    """Anything with a spec that can be called. `FunctionTool` is the usual one."""

    @property
    def spec(self) -> ToolSpec: ...

    async def __call__(self, arguments: Mapping[str, Any], context: Mapping[str, Any]) -> ToolResult:
        """`context` holds what a tool may ask for: env, sandbox; and, while an episode is played, `waiting`: its body's time
        counts against no deadline of the episode. Raises ToolCrash."""
        ...


@dataclass(frozen=True)
class Limits:
    """What `@tool` was given."""

    name: str | None = None
    timeout: float = 30.0
    max_output: int = 4000
    retries: int = 0
    parallel: bool = False


@overload
def tool(function: F) -> F: ...
@overload
def tool(
    *, name: str | None = None, timeout: float = 30.0, max_output: int = 4000, retries: int = 0, parallel: bool = False
) -> Callable[[F], F]: ...
def tool(function: Any = None, **limits: Any) -> Any:
    """Marks a function or a method of an environment as a tool. Times in seconds, output in characters.

    >>> @tool(timeout=5)
    ... def add(a: int, b: int) -> int:
    ...     "Adds two numbers."
    ...     return a + b
    >>> FunctionTool(add).spec.parameters["required"]
    ['a', 'b']
    """

    def mark(f: F) -> F:
        f.__agentrl_tool__ = Limits(**limits)  # type: ignore[attr-defined]
        return f

    return mark if function is None else mark(function)


@dataclass
class FunctionTool:
    """A tool made of a function, sync (run in a thread) or async."""

    function: Callable[..., Any]
    limits: Limits = field(init=False)

    def __post_init__(self) -> None:
        self.limits = getattr(self.function, "__agentrl_tool__", Limits())

    @cached_property
    def spec(self) -> ToolSpec:
        return ToolSpec(
            name=self.limits.name or name_of(self.function),
            description=docstring(self.function)[0],
            parameters=json_schema(self._model),
            timeout=self.limits.timeout,
            max_output=self.limits.max_output,
            retries=self.limits.retries,
            parallel=self.limits.parallel,
        )

    @cached_property
    def _model(self) -> Any:
        return arguments_model(self.function)

    @cached_property
    def asks(self) -> frozenset[str]:
        """What the framework must fill in: sandbox, env, self."""
        return frozenset(inspect.signature(self.function).parameters) & frozenset(INJECTED)

    async def __call__(self, arguments: Mapping[str, Any], context: Mapping[str, Any]) -> ToolResult:
        """Raises ToolCrash for whatever the function should not have raised; a lost sandbox passes as SandboxError."""
        import pydantic

        try:
            valid = self._model.model_validate(dict(arguments))
        except pydantic.ValidationError as error:
            return ToolResult.error(explain(self.spec.name, self.spec.parameters, error))
        given = {info.alias: getattr(valid, field) for field, info in type(valid).model_fields.items()}
        return await call_within(self.spec, self.function, given | injected(self.spec.name, self.asks, context))


def injected(name: str, asks: Iterable[str], context: Mapping[str, Any]) -> dict[str, Any]:
    """What tool `name` asks for, out of the context of its episode. Raises UsageError for what is not there."""
    for thing in asks:
        if context.get(thing) is None:
            what = "declares no SandboxSpec" if thing == "sandbox" else "is not there"
            raise UsageError(f"tool {name} asks for {thing!r}, but the environment {what}")
    return {thing: context[thing] for thing in asks}


async def call_within(spec: ToolSpec, function: Callable[..., Any], given: Mapping[str, Any]) -> ToolResult:
    """Calls a tool's function under the limits of its spec: timeout, output, retries.

    Raises ToolCrash for whatever it should not have raised; SandboxError and UsageError pass.
    """
    result, again = await _once(spec, function, given)
    for _ in range(spec.retries):
        if not again:
            break
        result, again = await _once(spec, function, given)
    return result


async def _once(spec: ToolSpec, function: Callable[..., Any], given: Mapping[str, Any]) -> tuple[ToolResult, bool]:
    """(the result, may it be tried again)."""
    try:
        async with asyncio.timeout(spec.timeout) as limit:
            value = await invoke(function, **given)
        with blaming(function):
            return as_result(value, spec.max_output), False
    except (ToolError, ParseError) as error:
        return ToolResult.error(cut(str(error), spec.max_output)), True
    except (ToolCrash, SandboxError, UsageError):
        raise
    except TimeoutError as error:
        if not limit.expired():  # its own, of a socket for one
            raise ToolCrash(f"tool {spec.name} raised TimeoutError: {error}") from error
        stopped = inspect.iscoroutinefunction(function)
        end = "stopped" if stopped else "given up"  # a thread goes on
        return ToolResult.error(f"{spec.name} took longer than {spec.timeout:g} s and was {end}"), stopped
    except Exception as error:
        raise ToolCrash(f"tool {spec.name} raised {type(error).__name__}: {error}") from error


def as_result(value: Any, max_output: int) -> ToolResult:
    """What a tool returned, as a result of at most about `max_output` characters of text.

    Text, an Exec, an image, a Step, or a list with images or parts in it; anything else as JSON. Raises TypeError and
    ValueError for a Step that is none (see `as_step`).

    >>> as_result({"a": [1, None]}, 100).text
    '{"a": [1, null]}'
    """
    if isinstance(value, Step):
        step = as_step(value)
        shown = as_result([part for message in step.observation for part in message.content] or "", max_output)
        return replace(shown, step=step)
    if isinstance(value, Exec):
        return ToolResult(content=(Text(text=value.render(max_output)),), is_error=not value.ok)
    left, parts = max_output, []
    for part in value.content if isinstance(value, ToolResult) else _parts(value):
        if isinstance(part, Text):
            part = Text(text=cut(part.text, max(left, 0)))
            left -= len(part.text)
        parts.append(part)
    empty = not any(isinstance(part, Image) or part.text for part in parts)
    content = (Text(text="[no output]"),) if empty else tuple(parts)
    return replace(value, content=content) if isinstance(value, ToolResult) else ToolResult(content=content)


def _parts(value: Any) -> tuple[Part, ...]:
    if value is None or isinstance(value, str):
        return (Text(text=value or ""),)
    items = value if isinstance(value, (list, tuple)) else [value]
    if any(isinstance(item, (Text, Image, Message)) or _is_picture(item) for item in items):
        return tuple(part for message in as_messages(value) for part in message.content)
    if isinstance(value, (Mapping, list, tuple, int, float)):
        return (Text(text=json.dumps(value, ensure_ascii=False, default=str)),)
    return (Text(text=str(value)),)


def _is_picture(value: Any) -> bool:
    return type(value).__module__.partition(".")[0] == "PIL" or getattr(value, "ndim", 0) in (2, 3)


class ToolSession(Protocol):
    """Tools that hold something for one episode: an object with state, a connection to a server."""

    @property
    def tools(self) -> Sequence[Tool]: ...

    async def aclose(self) -> None:
        """Gives back what the calls have taken. Called once, however the episode ended."""
        ...


class ToolBox:
    """The tools of one episode.

    >>> box = ToolBox([FunctionTool(len)])        # doctest: +SKIP
    """

    def __init__(self, tools: Iterable[Tool] = (), sessions: Iterable[ToolSession] = ()) -> None:
        """`sessions`: where some of the tools come from; they are closed with the box."""
        self._tools: dict[str, Tool] = {}
        self._sessions = tuple(sessions)
        for item in tools:
            if wrong := problem(item.spec):
                raise UsageError(f"tool {item.spec.name!r}: {wrong}")
            if item.spec.name in self._tools:
                raise UsageError(f"two tools are called {item.spec.name!r}")
            self._tools[item.spec.name] = item

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        return tuple(item.spec for item in self._tools.values())

    def __len__(self) -> int:
        return len(self._tools)

    def asks(self, name: str) -> frozenset[str]:
        """What the framework must fill in for a tool: sandbox, env."""
        return frozenset(getattr(self._tools[name], "asks", ()))

    def only(self, names: Iterable[str]) -> ToolBox:
        """Those with these names. The sessions stay with this box, which closes them."""
        return ToolBox(self._tools[name] for name in names)

    def mapped(self, change: Callable[[Tool], Tool]) -> ToolBox:
        """With what `change` makes of each tool. The sessions go along."""
        return ToolBox(map(change, self._tools.values()), self._sessions)

    async def run(self, calls: Sequence[ToolCall], context: Mapping[str, Any]) -> list[tuple[Message, ToolResult]]:
        """(the tool's message, its result) for each call, in order. Neighboring `parallel` calls run together; those after one
        that has ended the episode do not run.

        Raises ToolCrash, SandboxError or UsageError, whichever call raised it first; the calls beside it are cancelled.
        """
        out: list[tuple[Message, ToolResult]] = []
        for together, batch in groupby(calls, key=self._is_parallel):
            for group in [list(batch)] if together else [[call] for call in batch]:
                over = any(result.is_last for _, result in out)
                out += [_not_run(call) for call in group] if over else await self._together(group, context)
        return out

    async def aclose(self) -> None:
        """Closes the sessions. Tries each before it raises what failed."""
        failures: list[Exception] = []
        for session in self._sessions:
            try:
                await session.aclose()
            except Exception as error:
                failures.append(error)
        if failures:
            raise ExceptionGroup("tools could not be closed", failures)

    def _is_parallel(self, call: ToolCall) -> bool:
        known = self._tools.get(call.name)
        return known is not None and known.spec.parallel

    async def _together(self, calls: Sequence[ToolCall], context: Mapping[str, Any]) -> list[tuple[Message, ToolResult]]:
        if len(calls) == 1:
            return [await self._one(calls[0], context)]
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._one(call, context)) for call in calls]
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from failures
        return [task.result() for task in tasks]

    async def _one(self, call: ToolCall, context: Mapping[str, Any]) -> tuple[Message, ToolResult]:
        known = self._tools.get(call.name)
        if known is None:
            result = ToolResult.error(f"there is no tool {call.name!r}; {nearest(call.name, self._tools)}")
        else:
            result = await known(call.arguments, context)
        return _message(call, result), result


def _message(call: ToolCall, result: ToolResult) -> Message:
    return Message(role="tool", content=result.content, tool_call_id=call.id, name=call.name)


def _not_run(call: ToolCall) -> tuple[Message, ToolResult]:
    result = ToolResult.error("not run: a call before it has ended the episode")
    return _message(call, result), result
