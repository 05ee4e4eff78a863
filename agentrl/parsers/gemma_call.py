"""A call in braces, between tokens of its own, each text between two tokens that quote it: FunctionGemma and Gemma 4.

<start_function_call>call:get_weather{city:<escape>Köln<escape>,days:3}<end_function_call>
<|tool_call>call:get_weather{city:<|"|>Köln<|"|>,days:3}<tool_call|>
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentrl.parsers.family import Call, Family, Found, Written, reading
from agentrl.parsers.json_text import Unreadable, decode, dumps, skip
from agentrl.parsers.reasoning import THINK, Thought
from agentrl.tool import ToolSpec

_HEAD = re.compile(r"\s*call:\s*([^\s{}:,]+)\s*(?=\{)")
_WORD = re.compile(r"[^,{}\[\]:]*")
_PLAIN_KEY = re.compile(r"[\w.-]+")
_NAMES = {"True": True, "False": False, "None": None}  # a Jinja template writes None so


@dataclass(frozen=True, slots=True)
class Braces:
    """The format, with its tokens."""

    opening: str
    closing: str
    quote: str

    def find(self, text: str, place: int, tools: Sequence[ToolSpec]) -> Found | None:
        start = text.find(self.opening, place)
        if start < 0:
            return None
        end = text.find(self.closing, start)
        unread = len(text) if end < 0 else end + len(self.closing)
        return reading(start, unread, lambda: self._read(text, start + len(self.opening)))

    def _read(self, text: str, place: int) -> tuple[list[Call], int]:
        head = _HEAD.match(text, place)
        if not head:
            raise Unreadable("a call has the form call:name{argument:value}")
        arguments, end = self._object(text, head.end())
        end = skip(text, end)
        if text.startswith(self.closing, end):
            end += len(self.closing)
        elif end < len(text) and not text.startswith(self.opening, end):
            raise Unreadable(f"{self.closing} is missing after the arguments")
        return [(head[1], arguments, "")], end

    def _object(self, text: str, place: int) -> tuple[dict[str, Any], int]:
        out: dict[str, Any] = {}
        place = skip(text, place + 1)
        while not text.startswith("}", place):
            key, place = self._key(text, place)
            if not text.startswith(":", place):
                raise Unreadable(f"after {key!r} a ':' is missing")
            out[key], place = self._value(text, skip(text, place + 1))
            place = self._next(text, place, "}")
        return out, place + 1

    def _list(self, text: str, place: int) -> tuple[list[Any], int]:
        out = []
        place = skip(text, place + 1)
        while not text.startswith("]", place):
            value, place = self._value(text, place)
            out.append(value)
            place = self._next(text, place, "]")
        return out, place + 1

    def _next(self, text: str, place: int, end: str) -> int:
        place = skip(text, place)
        if text.startswith(",", place):
            return skip(text, place + 1)
        if not text.startswith(end, place):
            raise Unreadable(f"after a value ',' or {end!r} is missing")
        return place

    def _key(self, text: str, place: int) -> tuple[str, int]:
        if text.startswith((self.quote, '"'), place):
            key, place = self._value(text, place)
            return str(key), skip(text, place)
        end = _WORD.match(text, place).end()  # type: ignore[union-attr]  # it matches the empty text too
        return text[place:end].strip(), end

    def _value(self, text: str, place: int) -> tuple[Any, int]:
        if text.startswith(self.quote, place):
            inside = place + len(self.quote)
            end = text.find(self.quote, inside)
            if end < 0:
                raise Unreadable(f"a text is not closed with {self.quote}")
            return text[inside:end], end + len(self.quote)
        if text.startswith("{", place):
            return self._object(text, place)
        if text.startswith("[", place):
            return self._list(text, place)
        if text.startswith('"', place):
            return decode(text, place)
        end = _WORD.match(text, place).end()  # type: ignore[union-attr]
        return self._bare(text[place:end].strip()), end

    def _bare(self, word: str) -> Any:
        if word in _NAMES:
            return _NAMES[word]
        try:
            return json.loads(word)
        except json.JSONDecodeError:
            raise Unreadable(f"{word[:80]!r} is no value: a text stands between two {self.quote}") from None

    def write(self, calls: Sequence[Written]) -> str:
        return "".join(f"{self.opening}call:{c['name']}{self._shown(c['arguments'])}{self.closing}" for c in calls)

    def _shown(self, value: Any) -> str:
        if isinstance(value, str):
            return f"{self.quote}{value}{self.quote}"
        if isinstance(value, Mapping):
            return "{" + ",".join(f"{self._shown_key(key)}:{self._shown(item)}" for key, item in value.items()) + "}"
        if isinstance(value, (list, tuple)):
            return "[" + ",".join(map(self._shown, value)) + "]"
        return dumps(value)

    def _shown_key(self, key: str) -> str:
        return key if _PLAIN_KEY.fullmatch(key) else f"{self.quote}{key}{self.quote}"


def _family(models: str, braces: Braces, thought: Thought) -> Family:
    return Family(models=models, find=braces.find, write=braces.write, marks=(braces.opening,), thought=thought)


FUNCTION_GEMMA = _family("FunctionGemma", Braces("<start_function_call>", "<end_function_call>", "<escape>"), THINK)
GEMMA4 = _family("Gemma 4", Braces("<|tool_call>", "<tool_call|>", '<|"|>'), Thought("<|channel>thought\n", "<channel|>"))
