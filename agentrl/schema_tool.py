"""Tools whose arguments are described by a JSON schema instead of type hints: imported ones, and a benchmark's.

The schema is checked when the tool is made, each call's arguments against it by `jsonschema`; what does not fit is answered
as for any other tool.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from agentrl.errors import MissingExtra, UsageError
from agentrl.tool import ToolResult, ToolSpec, call_within, problem
from agentrl.tool_schema import invalid_arguments, unknown_argument, untitled

_OPEN = ("additionalProperties", "unevaluatedProperties", "patternProperties", "anyOf", "oneOf", "allOf", "$ref", "if")
"""Where one of these stands at the top of a schema, it says itself which arguments there may be."""

_WHOLE = re.compile(r"[+-]?\d{1,300}")


def schema_tool(schema: Mapping[str, Any], function: Callable[..., Any], **limits: Any) -> SchemaTool:
    """A function as a tool, with a schema in the form of OpenAI's API: {"name", "description", "parameters"}, or that below
    "function". The function gets the arguments by name. `limits`: timeout, max_output, retries, parallel, as of `rl.tool`.

    Raises UsageError for what is no such schema.

    >>> add = schema_tool({"name": "add", "parameters": {"type": "object"}}, lambda a, b: a + b)      # doctest: +SKIP
    """
    inner = schema.get("function", schema)
    if not isinstance(inner, Mapping) or not isinstance(inner.get("name"), str):
        raise UsageError(f"a tool's schema needs a name: {{'name': ..., 'parameters': {{...}}}}, not {schema!r:.80}")
    spec = ToolSpec(
        name=inner["name"],
        description=str(inner.get("description") or ""),
        parameters=inner.get("parameters") or {"type": "object", "properties": {}},
    )
    return SchemaTool(Checked(replace(spec, **limits)), function)


class Checked:
    """A spec whose schema is sound, and the check of what a model gives. Raises UsageError for a schema that is none, or a name
    that no model could call."""

    def __init__(self, spec: ToolSpec) -> None:
        if wrong := problem(spec):
            raise UsageError(f"tool {spec.name!r}: {wrong}")
        self.spec = replace(spec, parameters=strict(spec.name, spec.parameters))
        self._validator = _jsonschema().Draft202012Validator(self.spec.parameters)

    def given(self, arguments: Mapping[str, Any]) -> dict[str, Any] | ToolResult:
        """The arguments as the schema has them, or what is wrong with them as an answer."""
        fitting = fitted(arguments, self.spec.parameters)
        problems = list(dict.fromkeys(_problems(self._validator.iter_errors(fitting))))  # one error for each that is missing
        if problems:
            return ToolResult.error(invalid_arguments(self.spec.name, self.spec.parameters, problems))
        return fitting


@dataclass(frozen=True)
class SchemaTool:
    """A function that gets its arguments by name, and what a model is told of it."""

    checked: Checked
    function: Callable[..., Any]

    @property
    def spec(self) -> ToolSpec:
        return self.checked.spec

    async def __call__(self, arguments: Mapping[str, Any], context: Mapping[str, Any]) -> ToolResult:
        """Raises ToolCrash for whatever the function should not have raised."""
        given = self.checked.given(arguments)
        return given if isinstance(given, ToolResult) else await call_within(self.spec, self.function, given)


def strict(name: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The schema without titles and, unless it says something else, without room for arguments that are not in it."""
    jsonschema = _jsonschema()
    schema: dict[str, Any] = untitled(parameters)
    try:
        jsonschema.Draft202012Validator.check_schema(schema)
    except jsonschema.SchemaError as error:
        raise UsageError(f"tool {name}: its parameters are no JSON schema: {error.json_path}: {error.message}") from error
    if schema.setdefault("type", "object") != "object":
        raise UsageError(f"tool {name}: its parameters must be an object, not {schema['type']!r}")
    schema.setdefault("properties", {})
    return schema if any(key in schema for key in _OPEN) else {**schema, "additionalProperties": False}


def fitted(arguments: Mapping[str, Any], parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Numbers and their texts stand for each other, as with tools that are functions: some models' formats know texts only.

    >>> fitted({"a": "3", "b": 4}, {"properties": {"a": {"type": "integer"}, "b": {"type": "string"}}})
    {'a': 3, 'b': '4'}
    """
    properties = parameters.get("properties", {})
    return {name: _fit(value, properties.get(name)) for name, value in arguments.items()}


def _fit(value: Any, schema: Any) -> Any:
    kind = schema.get("type") if isinstance(schema, Mapping) else None
    if kind == "string" and isinstance(value, (int, float)) and not isinstance(value, bool):
        return str(value)
    if kind in ("integer", "number") and isinstance(value, str) and _WHOLE.fullmatch(value.strip()):
        return int(value)
    if kind == "number" and isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return value
    if kind == "boolean" and value in ("true", "True", "false", "False"):
        return value in ("true", "True")
    return value


def _problems(errors: Iterable[Any]) -> Iterable[str]:
    for error in errors:
        where = ".".join(map(str, error.absolute_path))
        if error.validator == "additionalProperties" and error.validator_value is False:
            extra = [name for name in error.instance if name not in error.schema.get("properties", {})]
            yield from (unknown_argument(name, error.schema) for name in extra)
        elif error.validator == "required":
            yield from (f"{name!r} is missing" for name in error.validator_value if name not in error.instance)
        else:
            yield f"{where or 'arguments'}: {error.message[:200]}"


def _jsonschema() -> Any:
    try:
        import jsonschema  # not at import of agentrl
    except ModuleNotFoundError:
        raise MissingExtra("jsonschema", extra="mcp") from None
    return jsonschema
