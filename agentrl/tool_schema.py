"""What a model is told of a tool's arguments: a JSON schema from type hints and docstring, and the check of what it gives.

Nothing here calls the tool; `agentrl.tool` does.
"""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from agentrl.blame import stands
from agentrl.errors import UsageError, nearest

INJECTED = ("self", "sandbox", "env")
"""Parameters that the framework fills in and a model never sees."""

_ARGS = re.compile(r"\b(?:Args|Arguments|Parameters):")
_SECTION = re.compile(r"^\s*(?:Args|Arguments|Parameters|Returns?|Yields?|Raises|Examples?|Notes?):", re.MULTILINE)


def arguments_model(function: Callable[..., Any]) -> Any:
    """A pydantic model of what a model may give. Its fields are numbered and known by alias, since a parameter may be called
    `json` or `schema`. Raises UsageError for parameters that cannot be described."""
    import pydantic  # not at import of agentrl: it costs a fifth of a second

    words = docstring(function)[1]
    hints = _hints(function)
    fields: dict[str, Any] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if name in INJECTED:
            continue
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise UsageError(
                f"tool {name_of(function)}: parameter {name!r} cannot be described to a model; "
                f"use plain parameters, without *, ** or / ({stands(function)})"
            )
        if name not in hints:
            raise UsageError(
                f"tool {name_of(function)}: parameter {name!r} has no type hint, from which the model learns what to give; "
                f"write {name}: str, for one ({stands(function)})"
            )
        default = ... if parameter.default is parameter.empty else parameter.default
        described = pydantic.Field(default, alias=name, description=words.get(name))
        fields[f"p{len(fields)}"] = (hints[name], described)
    config = pydantic.ConfigDict(extra="forbid", coerce_numbers_to_str=True)  # "5" for a text is what GLM's format gives as 5
    try:
        return pydantic.create_model(name_of(function), __config__=config, **fields)
    except pydantic.errors.PydanticUserError as error:
        raise UsageError(
            f"tool {name_of(function)}: a type hint has no JSON form: {error.message.splitlines()[0]} ({stands(function)})"
        ) from error


def name_of(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", type(function).__name__)


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    target = function if inspect.isroutine(function) else type(function).__call__
    try:
        return typing.get_type_hints(target, include_extras=True)
    except (NameError, AttributeError) as error:
        raise UsageError(
            f"tool {name_of(function)}: a type hint cannot be read ({error}); what it names must stand at the top of the "
            f"module ({stands(target)})"
        ) from error


def json_schema(model: Any) -> dict[str, Any]:
    """JSON schema of a pydantic model, without the titles that pydantic makes up from names."""
    schema: dict[str, Any] = untitled(model.model_json_schema())
    schema.setdefault("properties", {})
    return schema


def untitled(value: Any, names: bool = False) -> Any:
    """A JSON schema without titles, which repeat the names. `names`: the keys of this object are names of the author's: below
    "properties" and "$defs" a property may be called "title"."""
    if isinstance(value, list):
        return [untitled(item) for item in value]
    if not isinstance(value, Mapping):
        return value
    return {k: untitled(v, k in ("properties", "$defs") and not names) for k, v in value.items() if names or k != "title"}


def explain(name: str, parameters: Mapping[str, Any], error: Any) -> str:
    """What is wrong with a call's arguments (`error`: pydantic's), and what they are to be: a model can mend its call by it.

    "invalid arguments for search: there is no 'q'; did you mean 'query'?; 'query' is missing. search takes query: string"
    """
    problems = []
    for one in error.errors():
        where = ".".join(map(str, one["loc"]))
        if one["type"] == "extra_forbidden":
            problems.append(unknown_argument(where, parameters if len(one["loc"]) == 1 else {}))
        elif one["type"] == "missing":
            problems.append(f"{where!r} is missing")
        else:
            problems.append(f"{where or 'arguments'}: {one['msg']}, not {one['input']!r:.60}")
    return invalid_arguments(name, parameters, problems)


def invalid_arguments(name: str, parameters: Mapping[str, Any], problems: Iterable[str]) -> str:
    return f"invalid arguments for {name}: {'; '.join(problems)}. {name} takes {usage(parameters)}"


def unknown_argument(name: str, parameters: Mapping[str, Any]) -> str:
    """`parameters`: the JSON schema of the object that it was given to."""
    valid = parameters.get("properties", {})
    return f"there is no {name!r}{'; ' + nearest(name, valid) if valid else ''}"


def usage(parameters: Mapping[str, Any]) -> str:
    """The arguments in short, for people and models.

    >>> usage({"properties": {"a": {"type": "integer"}, "b": {"enum": ["x", "y"], "default": "x"}}, "required": ["a"]})
    "a: integer, b: 'x' | 'y' = 'x'"
    """
    required = parameters.get("required", ())
    shown = [
        f"{name}: {_kind(schema)}"
        + ("" if name in required else f" = {schema['default']!r}" if "default" in schema else " (optional)")
        for name, schema in parameters.get("properties", {}).items()
    ]
    return ", ".join(shown) or "no arguments"


def _kind(schema: Any) -> str:
    if not isinstance(schema, Mapping):
        return "any value"
    if "enum" in schema:
        return " | ".join(map(repr, schema["enum"]))
    if "const" in schema:
        return repr(schema["const"])
    several = schema.get("anyOf") or schema.get("oneOf")
    if several:
        return " | ".join(map(_kind, several))
    kind = schema.get("type", "object" if "$ref" in schema else "any value")
    if isinstance(kind, list):
        return " | ".join(kind)
    return f"array of {_kind(schema['items'])}" if kind == "array" and "items" in schema else str(kind)


def docstring(function: Callable[..., Any]) -> tuple[str, dict[str, str]]:
    """(description, what is said of each argument).

    Arguments stand in an "Args:" part, one a line (longer ones go on indented), or in one line, separated by semicolons:
    "Run the tests. Args: code: the whole solution; quick: only the first."
    """
    text = inspect.getdoc(function) or ""
    head, *rest = _ARGS.split(text, maxsplit=1)
    description = _SECTION.split(head)[0]
    names = {name for name in _parameter_names(function) if name not in INJECTED}
    return " ".join(description.split()), _arguments(_SECTION.split(rest[0])[0] if rest else "", names)


def _parameter_names(function: Callable[..., Any]) -> Iterable[str]:
    try:
        return inspect.signature(function).parameters
    except ValueError as error:  # some builtins have none
        raise UsageError(
            f"tool {name_of(function)}: its parameters cannot be read; wrap it in a function with type hints"
        ) from error


def _arguments(text: str, names: Iterable[str]) -> dict[str, str]:
    """What follows each of `names` and a colon, up to the next one. Only real parameter names start an entry."""
    either = "|".join(sorted(map(re.escape, names)))
    if not either:
        return {}
    start = rf"(?:^|\n|;)[ \t]*(?:[-*][ \t]+)?({either})[ \t]*(?:\([^)\n]*\))?[ \t]*:"
    pieces = re.split(start, text)
    pairs = zip(pieces[1::2], pieces[2::2], strict=True)
    return {name: " ".join(words.split()).rstrip(";") for name, words in pairs}
