"""Calls between tokens of their own, written with ｜ and ▁: DeepSeek.

V2.5, V3, R1 (and V3.1 without the word "function" and the fence):

    <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather
    ```json
    {"city": "Köln"}
    ```<｜tool▁call▁end｜><｜tool▁calls▁end｜>
    <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{"city": "Köln"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from agentrl.parsers.family import Call, Family, Found, Written, reading
from agentrl.parsers.json_text import Unreadable, decode, dumps, skip
from agentrl.parsers.rows import Row
from agentrl.tool import ToolSpec

ROW = Row(
    opening="<｜tool▁calls▁begin｜>",
    closing="<｜tool▁calls▁end｜>",
    call="<｜tool▁call▁begin｜>",
    call_end="<｜tool▁call▁end｜>",
    between="<｜tool▁sep｜>",
)
_FENCE = re.compile(r"\s*```(?:json)?[ \t]*\n?")


def find(text: str, place: int, tools: Sequence[ToolSpec]) -> Found | None:
    start = ROW.next(text, place)
    return reading(start, ROW.unread(text, start), lambda: _read(text, start)) if start >= 0 else None


def _read(text: str, start: int) -> tuple[list[Call], int]:
    name, place = ROW.head(text, start)
    if text.startswith("{", skip(text, place)):
        arguments, end = decode(text, place)
    else:
        name, arguments, end = _fenced(text, place)
    return [(name, arguments, "")], ROW.after(text, end)


def _fenced(text: str, place: int) -> tuple[str, object, int]:
    """(name, arguments, where their fence ends)."""
    newline = text.find("\n", place)
    opening = _FENCE.match(text, newline) if newline >= 0 else None
    if not opening:
        raise Unreadable("the arguments must stand in a ```json block")
    arguments, end = decode(text, opening.end())
    closing = skip(text, end)
    return text[place:newline], arguments, closing + 3 if text.startswith("```", closing) else end


def _write_fenced(calls: Sequence[Written]) -> str:
    return ROW.write([f"function{ROW.between}{c['name']}\n```json\n{dumps(c['arguments'])}\n```" for c in calls], "\n")


def _write_bare(calls: Sequence[Written]) -> str:
    return ROW.write([f"{call['name']}{ROW.between}{dumps(call['arguments'])}" for call in calls])


V3 = Family(
    models="DeepSeek V2.5, V3, R1 and its distillations",
    find=find,
    write=_write_fenced,
    marks=(ROW.opening, ROW.call, ROW.between),
)
V31 = replace(V3, models="DeepSeek V3.1", write=_write_bare)
