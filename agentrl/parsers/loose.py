"""Calls that no token marks: JSON objects and Python calls in the midst of text (Llama 3, Gemma)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from agentrl.parsers.family import Call, Found, reading
from agentrl.parsers.json_text import Unreadable, calls_in, decode, skip
from agentrl.parsers.python_text import calls_of, end_of
from agentrl.tool import ToolSpec

MAX_BROKEN = 32
"""Objects that cannot be decoded before the search is given up: a row of beginnings nested in each other is noise."""
_OBJECT = re.compile(r'(?:\[\s*)?\{\s*"(?:name|type|function|parameters|arguments|id)"\s*:')
_CLEARLY = re.compile(
    r'(?:\[\s*)?\{\s*(?:"(?:type|id)"\s*:\s*"[^"]*"\s*,\s*)?"name"\s*:\s*"[^"]*"\s*,\s*"(?:parameters|arguments)"\s*:'
)
_BETWEEN = re.compile(r"[\s;,]*")
_LIST = re.compile(r"^[ \t]*(\[)\s*([A-Za-z_][\w.-]*)\(", re.MULTILINE)
_ALONE = re.compile(r"\s*([A-Za-z_][\w.-]*)\(")
_FENCE_BEFORE = re.compile(r"```[\w ]*\s*\Z")


def find_json(text: str, place: int) -> Found | None:
    """The next JSON objects (or a list of them) with a name and arguments; a fence around them goes with them."""
    last = max(text.rfind(f'"{word}"') for word in ("parameters", "arguments"))
    broken = 0
    while (match := _OBJECT.search(text, place)) and match.start() < last and broken < MAX_BROKEN:
        start = match.start()
        try:
            value, place = decode(text, start)
        except (Unreadable, RecursionError):
            if _CLEARLY.match(text, start):
                return reading(start, _unread(text, match.end()), partial(_read_objects, text, start))
            place, broken = match.end(), broken + 1
            continue
        if is_call(value):
            return _with_fence(text, reading(start, place, partial(_read_objects, text, start)))
    return None


def is_call(value: Any) -> bool:
    """Has a JSON value, or all in a list, a name and arguments?"""
    items = value if isinstance(value, list) else [value]
    return bool(items) and all(isinstance(item, Mapping) and _is_one(item) for item in items)


def _is_one(item: Mapping[str, Any]) -> bool:
    inner = item.get("function")
    inner = inner if isinstance(inner, Mapping) else item
    return "name" in inner and ("parameters" in inner or "arguments" in inner)


def _unread(text: str, place: int) -> int:
    following = _OBJECT.search(text, place)
    return following.start() if following else len(text)


def _read_objects(text: str, start: int) -> tuple[list[Call], int]:
    """Calls of the object at `start` and of those that follow, with blanks, commas or semicolons between."""
    value, end = decode(text, start)
    calls = calls_in(value)
    while text.startswith(("{", "["), at := _BETWEEN.match(text, end).end()):  # type: ignore[union-attr]
        try:
            value, after = decode(text, at)
        except (Unreadable, RecursionError):
            break
        if not is_call(value):
            break
        calls, end = [*calls, *calls_in(value)], after
    return calls, end


def _with_fence(text: str, found: Found) -> Found:
    before = _FENCE_BEFORE.search(text[max(0, found.start - 40) : found.start])
    after = skip(text, found.stop)
    if not before or not text.startswith("```", after):
        return found
    return Found(start=found.start - len(before[0]), stop=after + 3, calls=found.calls, error=found.error)


def find_python(text: str, place: int, tools: Sequence[ToolSpec]) -> Found | None:
    """The next line that starts with a list of calls of known tools, [f(a=1), g()]; or one of any that is all there is.

    f(a=1) alone counts when it is all there is and the tool is known.
    """
    names = {spec.name for spec in tools}
    for match in _LIST.finditer(text, place):
        if not names or match[2] in names or _is_all(text, match.start(1)):
            return reading(match.start(1), len(text), partial(read_python, text, match.start(1), tools))
    alone = _ALONE.match(text) if place == 0 else None
    if alone and alone[1] in names and _is_all(text, alone.start(1)):
        return reading(alone.start(1), len(text), partial(read_python, text, alone.start(1), tools))
    return None


def read_python(text: str, start: int, tools: Sequence[ToolSpec]) -> tuple[Iterable[Call], int]:
    opening = _opening(text, start)
    end = end_of(text, opening)
    if end is None:
        raise Unreadable(f"the {text[opening]!r} at character {opening - start + 1} of the call is never closed")
    return calls_of(text[start:end], tools), end


def _is_all(text: str, start: int) -> bool:
    """Does nothing stand around the call at `start`, closed or not?"""
    if text[:start].strip():
        return False
    end = end_of(text, _opening(text, start))
    return end is None or not text[end:].strip()


def _opening(text: str, start: int) -> int:
    return start if text.startswith("[", start) else text.find("(", start)
