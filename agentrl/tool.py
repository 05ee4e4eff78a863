"""Tools: plain Python functions that a model may call.

The schema comes from type hints and docstring; arguments are validated by pydantic; an invalid call is answered with a
text the model can learn from. Parameters named `sandbox` or `env` are filled in by the framework and hidden from the
model. A tool that raises `ToolError` answers with its text; any other exception aborts the episode as TOOL_CRASH.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from typing import Any, Protocol, TypeVar, overload

from agentrl.blame import blaming
from agentrl.errors import UsageError, nearest
from agentrl.messages import Image, Message, Part, Text, ToolCall, as_messages
from agentrl.sandbox import Exec, SandboxError, cut
from agentrl.threads import invoke
from agentrl.tool_schema import INJECTED, arguments_model, docstring, json_schema, name_of

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


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """The answer to one call."""

    content: tuple[Part, ...]
    is_error: bool = False

    @classmethod
    def error(cls, text: str) -> ToolResult:
        return cls(content=(Text(text=f"Error: {text}"),), is_error=True)


class Tool(Protocol):
    """Anything with a spec that can be called. `FunctionTool` is the usual one."""

    @property
    def spec(self) -> ToolSpec: ...

    async def __call__(self, arguments: Mapping[str, Any], context: Mapping[str, Any]) -> ToolResult:
        """`context` holds what a tool may ask for: env, sandbox. Raises ToolCrash."""
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

    async def __call__(self, arguments: Mapping[str, Any], context: Mapping[str, Any]) -> ToolResult:
        """Raises ToolCrash for whatever the function should not have raised; a lost sandbox passes as SandboxError."""
        import pydantic

        try:
            valid = self._model.model_validate(dict(arguments))
        except pydantic.ValidationError as error:
            problems = "; ".join(f"{'.'.join(map(str, e['loc'])) or 'arguments'}: {e['msg']}" for e in error.errors())
            return ToolResult.error(f"invalid arguments for {self.spec.name}: {problems}")
        given = {info.alias: getattr(valid, field) for field, info in type(valid).model_fields.items()}
        given |= self._injected(context)
        result, again = await self._once(given)
        for _ in range(self.spec.retries):
            if not again:
                break
            result, again = await self._once(given)
        return result

    def _injected(self, context: Mapping[str, Any]) -> dict[str, Any]:
        parameters = inspect.signature(self.function).parameters
        wanted = [name for name in INJECTED if name in parameters and name != "self"]
        for name in wanted:
            if context.get(name) is None:
                what = "declares no SandboxSpec" if name == "sandbox" else "is not there"
                raise UsageError(f"tool {self.spec.name} asks for {name!r}, but the environment {what}")
        return {name: context[name] for name in wanted}

    async def _once(self, given: Mapping[str, Any]) -> tuple[ToolResult, bool]:
        """(the result, may it be tried again)."""
        try:
            async with asyncio.timeout(self.spec.timeout) as limit:
                value = await invoke(self.function, **given)
            with blaming(self.function):
                return as_result(value, self.spec.max_output), False
        except ToolError as error:
            return ToolResult.error(cut(str(error), self.spec.max_output)), True
        except (ToolCrash, SandboxError, UsageError):
            raise
        except TimeoutError as error:
            if not limit.expired():  # its own, of a socket for one
                raise ToolCrash(f"tool {self.spec.name} raised TimeoutError: {error}") from error
            stopped = inspect.iscoroutinefunction(self.function)
            end = "stopped" if stopped else "given up"  # a thread goes on
            return ToolResult.error(f"{self.spec.name} took longer than {self.spec.timeout:g} s and was {end}"), stopped
        except Exception as error:
            raise ToolCrash(f"tool {self.spec.name} raised {type(error).__name__}: {error}") from error


def as_result(value: Any, max_output: int) -> ToolResult:
    """What a tool returned, as a result of at most about `max_output` characters of text.

    Text, an Exec, an image, or a list with images or parts in it; anything else as JSON.

    >>> as_result({"a": [1, None]}, 100).content[0].text
    '{"a": [1, null]}'
    """
    if isinstance(value, Exec):
        return ToolResult(content=(Text(text=value.render(max_output)),), is_error=not value.ok)
    is_error = isinstance(value, ToolResult) and value.is_error
    left, parts = max_output, []
    for part in value.content if isinstance(value, ToolResult) else _parts(value):
        if isinstance(part, Text):
            part = Text(text=cut(part.text, max(left, 0)))
            left -= len(part.text)
        parts.append(part)
    empty = not any(isinstance(part, Image) or part.text for part in parts)
    return ToolResult(content=(Text(text="[no output]"),) if empty else tuple(parts), is_error=is_error)


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


class ToolBox:
    """The tools of one episode.

    >>> box = ToolBox([FunctionTool(len)])        # doctest: +SKIP
    """

    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        self._tools: dict[str, Tool] = {}
        for item in tools:
            if item.spec.name in self._tools:
                raise UsageError(f"two tools are called {item.spec.name!r}")
            self._tools[item.spec.name] = item

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        return tuple(item.spec for item in self._tools.values())

    def __len__(self) -> int:
        return len(self._tools)

    async def run(self, calls: Sequence[ToolCall], context: Mapping[str, Any]) -> list[tuple[Message, bool]]:
        """(the tool's message, is it an error) for each call, in order. Neighboring `parallel` calls run together.

        Raises ToolCrash, SandboxError or UsageError, whichever call raised it first; the calls beside it are cancelled.
        """
        out: list[tuple[Message, bool]] = []
        for together, batch in groupby(calls, key=self._is_parallel):
            if together:
                out += await self._together(list(batch), context)
            else:
                out += [await self._one(call, context) for call in batch]
        return out

    def _is_parallel(self, call: ToolCall) -> bool:
        known = self._tools.get(call.name)
        return known is not None and known.spec.parallel

    async def _together(self, calls: Sequence[ToolCall], context: Mapping[str, Any]) -> list[tuple[Message, bool]]:
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._one(call, context)) for call in calls]
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from failures
        return [task.result() for task in tasks]

    async def _one(self, call: ToolCall, context: Mapping[str, Any]) -> tuple[Message, bool]:
        known = self._tools.get(call.name)
        if known is None:
            result = ToolResult.error(f"there is no tool {call.name!r}; {nearest(call.name, self._tools)}")
        else:
            result = await known(call.arguments, context)
        return Message(role="tool", content=result.content, tool_call_id=call.id, name=call.name), result.is_error
