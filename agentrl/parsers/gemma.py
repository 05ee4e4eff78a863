"""A fenced block of Python calls or JSON, or either by itself: Gemma 2 and 3, which have no tokens for it and are told how.

```tool_code
get_weather(city="Köln")
```
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from agentrl.parsers.family import Call, Family, Found, Written, reading
from agentrl.parsers.json_text import Unreadable, calls_in, decode_all, dumps, skip
from agentrl.parsers.loose import find_json, find_python
from agentrl.parsers.python_text import calls_of
from agentrl.tool import ToolSpec

_FENCE = re.compile(r"```(?:tool_code|tool_call)[ \t]*\n?")


def find(text: str, place: int, tools: Sequence[ToolSpec]) -> Found | None:
    fence = _FENCE.search(text, place)
    before = text[: fence.start()] if fence else text
    found = [item for item in (find_json(before, place), find_python(before, place, tools)) if item]
    if fence:
        end = text.find("```", fence.end())
        unread = len(text) if end < 0 else end + 3
        found.append(reading(fence.start(), unread, lambda: _read(text, fence.end(), tools)))
    return min(found, key=lambda item: item.start, default=None)


def _read(text: str, place: int, tools: Sequence[ToolSpec]) -> tuple[list[Call], int]:
    first = skip(text, place)
    if text.startswith(("{", "[{"), first):
        values, end = decode_all(text, first, "```")
        return [call for value in values for call in calls_in(value)], min(len(text), end + 3)
    end = text.find("```", place)
    if end < 0:
        raise Unreadable("the block is not closed with ```")
    return calls_of(text[place:end], tools), end + 3


def write(calls: Sequence[Written]) -> str:
    objects = [dumps({"name": call["name"], "parameters": call["arguments"]}) for call in calls]
    return "\n".join(["```tool_call", *objects, "```"]) if calls else ""


def result(content: str) -> str:
    return f"```tool_output\n{content}\n```"


FAMILY = Family(
    models="Gemma 2 and 3",
    find=find,
    write=write,
    marks=("```tool_code", "```tool_call"),
    result=result,
    prompted=True,
)
