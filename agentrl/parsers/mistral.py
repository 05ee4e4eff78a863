"""After the token [TOOL_CALLS], a JSON list or, since version 11 of Mistral's tokenizers, each function by itself.

[TOOL_CALLS] [{"name": "get_weather", "arguments": {"city": "Köln"}, "id": "VvvODy9mT"}]
[TOOL_CALLS]get_weather[CALL_ID]VvvODy9mT[ARGS]{"city": "Köln"}
[TOOL_CALLS]get_weather[ARGS]{"city": "Köln"}
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from agentrl.parsers.family import Call, Family, Found, Written, reading
from agentrl.parsers.json_text import Unreadable, calls_in, decode, dumps, skip
from agentrl.parsers.reasoning import Thought
from agentrl.tool import ToolSpec

OPENING, ARGS = "[TOOL_CALLS]", "[ARGS]"
_HEAD = re.compile(r"([^\s\[\]{}]++)\s*+(?:\[CALL_ID\]\s*+([^\s\[\]{}]*+)\s*+)?+(?:\[ARGS\])?+\s*+(?=\{)")


def find(text: str, place: int, tools: Sequence[ToolSpec]) -> Found | None:
    start = text.find(OPENING, place)
    if start < 0:
        return None
    inside = start + len(OPENING)
    following = text.find(OPENING, inside)
    return reading(start, following if following >= 0 else len(text), lambda: _read(text, inside))


def _read(text: str, place: int) -> tuple[list[Call], int]:
    place = skip(text, place)
    if text.startswith(("[", "{"), place) and not text.startswith(ARGS, place):
        value, end = decode(text, place)
        return calls_in(value), end
    head = _HEAD.match(text, place)
    if not head:
        raise Unreadable("after [TOOL_CALLS] a JSON list of calls is expected, or name[ARGS] and a JSON object")
    arguments, end = decode(text, head.end())
    return [(head[1], arguments, head[2] or "")], end


def _write_list(calls: Sequence[Written]) -> str:
    return f"{OPENING} {dumps([{'name': call['name'], 'arguments': call['arguments']} for call in calls])}" if calls else ""


def _write_each(calls: Sequence[Written]) -> str:
    return "".join(f"{OPENING}{call['name']}{ARGS}{dumps(call['arguments'])}" for call in calls)


LIST = Family(
    models="Mistral 7B v0.3, Mixtral, Mistral Nemo, Mistral Small 2409 to 3.0",
    find=find,
    write=_write_list,
    marks=(OPENING,),
    thought=Thought("[THINK]", "[/THINK]"),
)
EACH = replace(
    LIST, models="Mistral Small 3.1 and later, Magistral, Devstral, Ministral 3", write=_write_each, marks=(OPENING, ARGS)
)
