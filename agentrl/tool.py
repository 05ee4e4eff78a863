"""Tools: plain Python functions that a model may call.

The schema comes from type hints and docstring; arguments are validated by pydantic; an invalid call is answered with a
text the model can learn from. Parameters named `sandbox` or `env` are filled in by the framework and hidden from the
model. A tool that raises `ToolError` answers with its text; any other exception aborts the episode as TOOL_CRASH.
"""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol, TypeVar, overload

from agentrl.errors import nearest
from agentrl.messages import Message, Part, Text, ToolCall, as_messages
from agentrl.sandbox import Exec, cut
from agentrl.threads import invoke

INJECTED = ("self", "sandbox", "env")
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
    """How often a call that ended in ToolError or a timeout is tried again. For idempotent tools only."""
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
        description, _ = _docstring(self.function)
        schema = self._model.model_json_schema()
        schema.pop("title", None)
        for prop in schema.get("properties", {}).values():
            prop.pop("title", None)
        return ToolSpec(
            name=self.limits.name or self.function.__name__,
            description=description,
            parameters=schema,
            timeout=self.limits.timeout,
            max_output=self.limits.max_output,
            retries=self.limits.retries,
            parallel=self.limits.parallel,
        )

    @cached_property
    def _model(self) -> Any:
        import pydantic  # not at import of agentrl: it costs a fifth of a second

        _, arguments = _docstring(self.function)
        hints = inspect.get_annotations(self.function, eval_str=True)
        fields: dict[str, Any] = {}
        for name, parameter in inspect.signature(self.function).parameters.items():
            if name in INJECTED:
                continue
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                raise TypeError(f"tool {self.function.__name__}: *{name} cannot be described to a model; name each parameter")
            default = ... if parameter.default is parameter.empty else parameter.default
            fields[name] = (hints.get(name, str), pydantic.Field(default, description=arguments.get(name)))
        config = pydantic.ConfigDict(extra="forbid")
        return pydantic.create_model(self.function.__name__, __config__=config, **fields)

    async def __call__(self, arguments: Mapping[str, Any], context: Mapping[str, Any]) -> ToolResult:
        import pydantic

        try:
            valid = self._model.model_validate(dict(arguments))
        except pydantic.ValidationError as error:
            problems = "; ".join(f"{'.'.join(map(str, e['loc'])) or 'arguments'}: {e['msg']}" for e in error.errors())
            return ToolResult.error(f"invalid arguments for {self.spec.name}: {problems}")
        given = {name: getattr(valid, name) for name in type(valid).model_fields}
        wanted = inspect.signature(self.function).parameters
        given |= {name: context[name] for name in ("sandbox", "env") if name in wanted}
        attempts = 1 + self.spec.retries
        for attempt in range(attempts):
            result = await self._once(given)
            if not result.is_error or attempt == attempts - 1:
                return result
        raise AssertionError("unreachable")

    async def _once(self, given: Mapping[str, Any]) -> ToolResult:
        try:
            async with asyncio.timeout(self.spec.timeout):
                value = await invoke(self.function, **given)
        except ToolError as error:
            return ToolResult.error(str(error))
        except TimeoutError:
            return ToolResult.error(f"{self.spec.name} took longer than {self.spec.timeout:g} s and was stopped")
        return as_result(value, self.spec.max_output)


def as_result(value: Any, max_output: int) -> ToolResult:
    """What a tool returned, as a result: text, an Exec, an image, a list of these, or anything with a str()."""
    if isinstance(value, ToolResult):
        return value
    if isinstance(value, Exec):
        return ToolResult(content=(Text(text=value.render(max_output)),), is_error=not value.ok)
    if value is None or isinstance(value, (int, float, bool, dict)):
        value = str(value)
    parts = [part for message in as_messages(value) for part in message.content]
    shortened = tuple(Text(text=cut(p.text, max_output)) if isinstance(p, Text) else p for p in parts)
    return ToolResult(content=shortened or (Text(text="[no output]"),))


class ToolBox:
    """The tools of one episode.

    >>> box = ToolBox([FunctionTool(len)])        # doctest: +SKIP
    """

    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        self._tools: dict[str, Tool] = {}
        for item in tools:
            if item.spec.name in self._tools:
                raise ValueError(f"two tools are called {item.spec.name!r}")
            self._tools[item.spec.name] = item

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        return tuple(item.spec for item in self._tools.values())

    def __len__(self) -> int:
        return len(self._tools)

    async def run(self, calls: Sequence[ToolCall], context: Mapping[str, Any]) -> list[tuple[Message, bool]]:
        """(the tool's message, is it an error) for each call, in order. Neighbouring `parallel` calls run together."""
        out: list[tuple[Message, bool]] = []
        batch: list[ToolCall] = []
        for call in calls:
            known = self._tools.get(call.name)
            if not (known and known.spec.parallel):
                out += await self._together(batch, context)
                batch = []
            batch.append(call)
            if not (known and known.spec.parallel):
                out += await self._together(batch, context)
                batch = []
        return out + await self._together(batch, context)

    async def _together(self, calls: Sequence[ToolCall], context: Mapping[str, Any]) -> list[tuple[Message, bool]]:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._one(call, context)) for call in calls]
        return [task.result() for task in tasks]

    async def _one(self, call: ToolCall, context: Mapping[str, Any]) -> tuple[Message, bool]:
        known = self._tools.get(call.name)
        if known is None:
            result = ToolResult.error(f"there is no tool {call.name!r}; {nearest(call.name, self._tools)}")
        else:
            result = await known(call.arguments, context)
        return Message(role="tool", content=result.content, tool_call_id=call.id, name=call.name), result.is_error


def _docstring(function: Callable[..., Any]) -> tuple[str, dict[str, str]]:
    """(description, what is said of each argument), from a docstring with an "Args:" part, one line or indented."""
    text = inspect.getdoc(function) or ""
    head, _, tail = text.partition("Args:")
    tail = re.split(r"\n\s*(?:Returns|Raises|Example)s?:", tail)[0]
    found = re.findall(
        r"(?:^|\n|;)\s*(\w+)\s*(?:\([^)]*\))?\s*:\s*(.+?)(?=\n\s*\w+\s*(?:\([^)]*\))?\s*:|;|\Z)", tail, re.DOTALL
    )
    return " ".join(head.split()), {name: " ".join(words.split()) for name, words in found}
