"""JSON as models write it: values one after the other inside other text, newlines inside strings."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

_DECODER = json.JSONDecoder(strict=False)  # a newline inside a string is let pass: models write code that way
_BLANKS = re.compile(r"\s*")
_BETWEEN = re.compile(r"[\s;,]*")


class Unreadable(ValueError):
    """A call that has not the asked form; the text says what is wrong to the model that wrote it."""


def skip(text: str, place: int) -> int:
    """The first place at or after `place` that is no white space."""
    return _BLANKS.match(text, place).end()  # type: ignore[union-attr]  # it matches the empty text too


def decode(text: str, place: int) -> tuple[Any, int]:
    """(the JSON value that starts at `place`, where it ends); white space before it is skipped. Raises Unreadable.

    >>> decode('see {"a": 1} there', 4)
    ({'a': 1}, 12)
    """
    place = skip(text, place)
    try:
        return _DECODER.raw_decode(text, place)
    except json.JSONDecodeError as error:
        raise Unreadable(f"invalid JSON at character {error.pos - place + 1}: {error.msg}") from None


def decode_all(text: str, place: int, closing: str = "") -> tuple[list[Any], int]:
    """(JSON values up to `closing` or the end of the text, where that is), with blanks, commas or semicolons between.

    >>> decode_all('{"a": 1}; [2]</end>', 0, "</end>")
    ([{'a': 1}, [2]], 13)
    """
    first = skip(text, place)
    values: list[Any] = []
    while True:
        place = _BETWEEN.match(text, place).end()  # type: ignore[union-attr]
        if place >= len(text) or (closing and text.startswith(closing, place)):
            break
        if values and text[place] not in "[{":
            raise Unreadable(f"invalid JSON at character {place - first + 1}: Extra data")
        value, place = decode(text, place)
        values.append(value)
    if not values:
        raise Unreadable("invalid JSON at character 1: Expecting value")
    return values, place


def dumps(value: Any) -> str:
    """JSON with letters of all scripts as they are."""
    return json.dumps(value, ensure_ascii=False)


def calls_in(data: Any) -> list[tuple[Any, Any, str]]:
    """(name, arguments, id) of each call in a JSON object, or in a list of them. Raises Unreadable.

    >>> calls_in({"name": "add", "parameters": {"a": 1}})
    [('add', {'a': 1}, '')]
    """
    items: Sequence[Any] = data if isinstance(data, list) else [data]
    out = []
    for item in items:
        if isinstance(item, Mapping) and isinstance(item.get("function"), Mapping):
            item = {"id": item.get("id"), **item["function"]}  # as OpenAI's endpoints write them
        if not isinstance(item, Mapping) or "name" not in item:
            raise Unreadable('a call is a JSON object with "name" and "arguments"')
        arguments = item.get("arguments", item.get("parameters", {}))
        given = item.get("id")
        out.append((item["name"], {} if arguments is None else arguments, given if isinstance(given, str) else ""))
    return out
