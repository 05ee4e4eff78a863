"""Values that a format writes bare: the tool's JSON schema tells a text from a number.

Strings stand as they are, all else as JSON. Without a schema, what parses as JSON is JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from agentrl.parsers.json_text import Unreadable, decode, dumps, skip
from agentrl.tool import ToolSpec

Schema = Mapping[str, Any]
_WORDS = {"true": True, "false": False, "null": None, "none": None}  # Qwen3-Coder's template writes Python's True and None


def typed(name: str, pairs: Iterable[tuple[str, str]], tools: Sequence[ToolSpec]) -> dict[str, Any]:
    """The arguments of a call of `name`, given as (key, text).

    >>> typed("f", [("n", "2"), ("s", "x")], [])
    {'n': 2, 's': 'x'}
    """
    whole = schema_of(name, tools)
    properties = whole.get("properties", {})
    return {key: value_of(text, kinds(properties.get(key), whole)) for key, text in pairs}


def bare(value: Any) -> str:
    """A value as such a format writes it: the inverse of `value_of`, where the schema knows strings from the rest."""
    return value if isinstance(value, str) else dumps(value)


def schema_of(name: str, tools: Sequence[ToolSpec]) -> Schema:
    """The schema of a tool's arguments; empty when there is no such tool."""
    return next((spec.parameters for spec in tools if spec.name == name), {})


def only_argument(name: str, tools: Sequence[ToolSpec]) -> str | None:
    """The argument of a tool that can be called with one alone, as with `code` of a Python tool; None when there is none.

    It is the only one that is required, or the only one there is.
    """
    schema = schema_of(name, tools)
    properties = list(schema.get("properties", {}))
    required = [key for key in properties if key in schema.get("required", ())] or properties
    return required[0] if len(required) == 1 else None


def arguments_in(body: str, name: str, tools: Sequence[ToolSpec]) -> dict[str, Any]:
    """A body that is either a JSON object of arguments or the bare value of the only one. Raises Unreadable."""
    value = _whole_json(body)
    schema = schema_of(name, tools)
    properties = schema.get("properties", {})
    if isinstance(value, dict) and (not properties or value.keys() <= properties.keys()):
        return value
    only = only_argument(name, tools)
    if only is not None:
        allowed = kinds(properties[only], schema)
        return {only: value if isinstance(value, str) and "string" in allowed else value_of(body, allowed)}
    if isinstance(value, dict):
        return value
    raise Unreadable("the arguments must be a JSON object")


def kinds(schema: Any, whole: Schema, seen: tuple[str, ...] = ()) -> frozenset[str]:
    """JSON types that a schema allows; empty when it does not say. `whole` holds the $defs that it may point to."""
    if not isinstance(schema, Mapping):
        return frozenset()
    pointer = schema.get("$ref")
    if isinstance(pointer, str) and pointer not in seen:
        return kinds(_target(pointer, whole), whole, (*seen, pointer))
    named = schema.get("type", ())
    found = {named} if isinstance(named, str) else {kind for kind in named if isinstance(kind, str)}
    if not found:
        allowed = [*schema.get("enum", ()), *([schema["const"]] if "const" in schema else [])]
        found = {_kind(value) for value in allowed}
    for key in ("anyOf", "oneOf", "allOf"):
        for branch in schema.get(key, ()):
            found |= kinds(branch, whole, seen)
    return frozenset(found)


def value_of(text: str, allowed: frozenset[str]) -> Any:
    """The value that a bare text stands for, among JSON types; the text itself where it is of none of them."""
    if allowed == {"string"}:
        return text
    word = text.strip()
    if allowed and word.lower() in _WORDS and _fits(_WORDS[word.lower()], allowed):
        return _WORDS[word.lower()]
    if allowed and not allowed - {"string", "null", "boolean"}:
        return text
    try:
        value = json.loads(word, strict=False, parse_constant=_no_number)
    except (ValueError, RecursionError):
        return text
    return value if not allowed or _fits(value, allowed) or "string" not in allowed else text


def closing(text: str, place: int, mark: str, followed_by: Sequence[str]) -> int:
    """Where the first `mark` stands after which (but for blanks) one of `followed_by` or the end of the text comes.

    So a value may hold the mark itself. Raises Unreadable.
    """
    at = text.find(mark, place)
    while at >= 0:
        after = skip(text, at + len(mark))
        if after >= len(text) or text.startswith(tuple(followed_by), after):
            return at
        at = text.find(mark, at + len(mark))
    raise Unreadable(f"{mark} is missing")


def _whole_json(text: str) -> Any:
    """The JSON value that the text is, or None."""
    try:
        value, end = decode(text, 0)
    except (ValueError, RecursionError):
        return None
    return None if text[end:].strip() else value


def _no_number(word: str) -> Any:
    raise ValueError(f"{word} is no JSON")


def _target(pointer: str, whole: Schema) -> Any:
    node: Any = whole
    for step in pointer.removeprefix("#/").split("/"):
        node = node.get(step) if isinstance(node, Mapping) else None
    return node


def _fits(value: Any, allowed: frozenset[str]) -> bool:
    kind = _kind(value)
    return kind in allowed or (kind == "integer" and "number" in allowed)


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    names = {int: "integer", float: "number", str: "string", list: "array", dict: "object"}
    return names.get(type(value), "")
