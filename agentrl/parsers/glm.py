"""The function's name, then a pair of tags for each argument, values bare: GLM-4.5, GLM-4.6, GLM-4.7.

<tool_call>get_weather
<arg_key>city</arg_key>
<arg_value>Köln</arg_value>
</tool_call>
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from agentrl.parsers import hermes
from agentrl.parsers.family import Call, Family, Found, Written, reading
from agentrl.parsers.json_text import Unreadable, skip
from agentrl.parsers.typed import bare, closing, typed
from agentrl.tool import ToolSpec

_NAME = re.compile(r"[^\s<]*")
_FORM = "each argument is an <arg_key> followed by an <arg_value>, and after the last comes </tool_call>"


def find(text: str, place: int, tools: Sequence[ToolSpec]) -> Found | None:
    start = text.find(hermes.OPENING, place)
    if start < 0:
        return None
    return reading(start, hermes.region_end(text, start), lambda: _read(text, start + len(hermes.OPENING), tools))


def _read(text: str, place: int, tools: Sequence[ToolSpec]) -> tuple[list[Call], int]:
    place = skip(text, place)
    if text.startswith("{", place):
        return hermes.read_json(text, place)
    end = _NAME.match(text, place).end()  # type: ignore[union-attr]  # it matches the empty text too
    name, pairs = text[place:end], []
    place = skip(text, end)
    while text.startswith("<arg_key>", place):
        key, place = _tagged(text, place, "arg_key", ("<arg_value>",))
        if not text.startswith("<arg_value>", place):
            raise Unreadable(_FORM)
        value, place = _tagged(text, place, "arg_value", ("<arg_key>", hermes.CLOSING))
        pairs.append((key.strip(), value))
    if place < len(text) and not text.startswith(hermes.CLOSING, place):
        raise Unreadable(_FORM)
    return [(name, typed(name, pairs, tools), "")], hermes.after_closing(text, place)


def _tagged(text: str, place: int, tag: str, followed_by: Sequence[str]) -> tuple[str, int]:
    """(what stands in the tag that opens at `place`, where the next one opens)."""
    place += len(f"<{tag}>")
    try:
        end = closing(text, place, f"</{tag}>", followed_by)
    except Unreadable:
        raise Unreadable(_FORM) from None
    return text[place:end], skip(text, end + len(f"</{tag}>"))


def write(calls: Sequence[Written]) -> str:
    return "\n".join(f"{hermes.OPENING}{_write(call)}\n{hermes.CLOSING}" for call in calls)


def _write(call: Written) -> str:
    pairs = call["arguments"].items()
    return "\n".join(
        [call["name"], *(f"<arg_key>{key}</arg_key>\n<arg_value>{bare(value)}</arg_value>" for key, value in pairs)]
    )


FAMILY = Family(
    models="GLM-4.5, GLM-4.6, GLM-4.7",
    find=find,
    write=write,
    marks=(hermes.OPENING, "<arg_key>", "<arg_value>"),
)
