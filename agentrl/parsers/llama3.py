"""A JSON object by itself, or Meta's other ways of writing calls: Llama 3.1, 3.2, 3.3.

{"name": "get_weather", "parameters": {"city": "Köln"}}; {"name": "get_time", "parameters": {}}
<|python_tag|>{"type": "function", "name": "get_weather", "parameters": {"city": "Köln"}}
<|python_tag|>brave_search.call(query="weather in Köln")
<|python_tag|>print(1 + 1)
<function=get_weather>{"city": "Köln"}</function>
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from agentrl.parsers.family import Call, Family, Found, Written, reading
from agentrl.parsers.fenced import tool_of_language
from agentrl.parsers.json_text import Unreadable, calls_in, decode, decode_all, dumps, skip
from agentrl.parsers.loose import find_json
from agentrl.parsers.python_text import calls_of, end_of
from agentrl.parsers.typed import only_argument
from agentrl.tool import ToolSpec

TAG, FUNCTION, FUNCTION_END = "<|python_tag|>", "<function=", "</function>"
_BUILT_IN = re.compile(r"([A-Za-z_]\w*)\.call\(")
_NAMED = re.compile(r"<function=([^>\s<]+)>")


def find(text: str, place: int, tools: Sequence[ToolSpec]) -> Found | None:
    tag, function = text.find(TAG, place), text.find(FUNCTION, place)
    found = [item for item in [find_json(text, place)] if item]
    if tag >= 0:
        found.append(reading(tag, len(text), lambda: _read_tag(text, tag + len(TAG), tools)))
    if function >= 0:
        end = text.find(FUNCTION_END, function)
        unread = len(text) if end < 0 else end + len(FUNCTION_END)
        found.append(reading(function, unread, lambda: _read_function(text, function)))
    return min(found, key=lambda item: item.start, default=None)


def _read_tag(text: str, place: int, tools: Sequence[ToolSpec]) -> tuple[list[Call], int]:
    place = skip(text, place)
    if text.startswith(("{", "[{"), place):
        values, end = decode_all(text, place)
        return [call for value in values for call in calls_in(value)], end
    if built_in := _BUILT_IN.match(text, place):
        end = end_of(text, built_in.end() - 1) or 0
        if not end:
            raise Unreadable("the call's ')' is missing")
        return [(built_in[1], calls_of(f"x{text[built_in.end() - 1 : end]}", tools)[0][1], "")], end
    name = tool_of_language("python", tools)
    if name is None or not text[place:].strip():
        raise Unreadable("after <|python_tag|> a JSON object is expected")
    return [(name, {only_argument(name, tools): text[place:].rstrip()}, "")], len(text)


def _read_function(text: str, start: int) -> tuple[list[Call], int]:
    named = _NAMED.match(text, start)
    if not named:
        raise Unreadable("a tag has the form <function=name>")
    arguments, end = decode(text, named.end())
    end = skip(text, end)
    if end < len(text) and not text.startswith(FUNCTION_END, end):
        raise Unreadable(f"{FUNCTION_END} is missing after the arguments")
    return [(named[1], arguments, "")], min(len(text), end + len(FUNCTION_END))


def write(calls: Sequence[Written]) -> str:
    return "; ".join(dumps({"name": call["name"], "parameters": call["arguments"]}) for call in calls)


FAMILY = Family(models="Llama 3.1, 3.2, 3.3", find=find, write=write, marks=(TAG,))
