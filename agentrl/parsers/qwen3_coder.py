"""A tag for each function and parameter, values bare: Qwen3-Coder, Qwen3.5, Nemotron 3.

<tool_call>
<function=get_weather>
<parameter=city>
Köln
</parameter>
</function>
</tool_call>
"""

from __future__ import annotations

from collections.abc import Sequence

from agentrl.parsers import hermes
from agentrl.parsers.family import Call, Family, Found, Written, reading
from agentrl.parsers.json_text import Unreadable, skip
from agentrl.parsers.typed import bare, closing, typed
from agentrl.tool import ToolSpec

FUNCTION, PARAMETER = "<function=", "<parameter="


def find(text: str, place: int, tools: Sequence[ToolSpec]) -> Found | None:
    starts = [at for mark in (hermes.OPENING, FUNCTION) if (at := text.find(mark, place)) >= 0]
    if not starts:
        return None
    start = min(starts)
    return reading(start, _unread(text, start), lambda: _read(text, start, tools))


def _unread(text: str, start: int) -> int:
    if text.startswith(hermes.OPENING, start):
        return hermes.region_end(text, start)
    end = text.find("</function>", start)
    return len(text) if end < 0 else end + len("</function>")


def _read(text: str, start: int, tools: Sequence[ToolSpec]) -> tuple[list[Call], int]:
    tagged = text.startswith(hermes.OPENING, start)
    place = skip(text, start + len(hermes.OPENING)) if tagged else start
    if tagged and text.startswith("{", place):
        return hermes.read_json(text, place)
    calls = []
    while text.startswith(FUNCTION, place):
        call, end = _function(text, place + len(FUNCTION), tools)
        calls.append(call)
        place = skip(text, end)
        if not tagged:
            return calls, end
    if not calls:
        raise Unreadable("a call is a <function=name> that holds a <parameter=name> for each argument")
    if place < len(text) and not text.startswith((hermes.CLOSING, hermes.OPENING), place):
        raise Unreadable("after </function> comes </tool_call>")
    return calls, hermes.after_closing(text, place) if text.startswith(hermes.CLOSING, place) else end


def _function(text: str, place: int, tools: Sequence[ToolSpec]) -> tuple[Call, int]:
    name, place = _tag(text, place)
    pairs = []
    place = skip(text, place)
    while text.startswith(PARAMETER, place):
        key, place = _tag(text, place + len(PARAMETER))
        end = closing(text, place, "</parameter>", (PARAMETER, "</function>"))
        pairs.append((key, _value(text[place:end])))
        place = skip(text, end + len("</parameter>"))
    if not text.startswith("</function>", place):
        raise Unreadable("a call is a <function=name> that holds a <parameter=name> for each argument, and then </function>")
    return (name, typed(name, pairs, tools), ""), place + len("</function>")


def _tag(text: str, place: int) -> tuple[str, int]:
    """(what stands up to ">", the place after it)."""
    end = text.find(">", place)
    name = text[place:end].strip() if end >= 0 else ""
    if not name or "\n" in name or "<" in name:
        raise Unreadable("a tag has the form <function=name> or <parameter=name>")
    return name, end + 1


def _value(text: str) -> str:
    """Without the one newline that the format puts on either side."""
    return text.removeprefix("\n").removesuffix("\n")


def write(calls: Sequence[Written]) -> str:
    return "\n".join(f"{hermes.OPENING}\n{_write(call)}\n{hermes.CLOSING}" for call in calls)


def _write(call: Written) -> str:
    parameters = [f"{PARAMETER}{key}>\n{bare(value)}\n</parameter>" for key, value in call["arguments"].items()]
    return "\n".join([f"{FUNCTION}{call['name']}>", *parameters, "</function>"])


FAMILY = Family(
    models="Qwen3-Coder, Qwen3.5, Nemotron 3",
    find=find,
    write=write,
    marks=(hermes.OPENING, FUNCTION, PARAMETER),
)
