"""Between tokens of their own, the id functions.<name>:<number> and the arguments: Kimi K2.

<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>{"city": "Köln"}
<|tool_call_end|><|tool_calls_section_end|>
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from agentrl.parsers.family import Call, Family, Found, Written, reading
from agentrl.parsers.json_text import decode, dumps
from agentrl.parsers.reasoning import Thought
from agentrl.parsers.rows import Row
from agentrl.tool import ToolSpec

ROW = Row(
    opening="<|tool_calls_section_begin|>",
    closing="<|tool_calls_section_end|>",
    call="<|tool_call_begin|>",
    call_end="<|tool_call_end|>",
    between="<|tool_call_argument_begin|>",
)
_ID = re.compile(r"(?:functions\.)?(.+?)(?::\d+)?", re.DOTALL)


def find(text: str, place: int, tools: Sequence[ToolSpec]) -> Found | None:
    start = ROW.next(text, place)
    return reading(start, ROW.unread(text, start), lambda: _read(text, start)) if start >= 0 else None


def _read(text: str, start: int) -> tuple[list[Call], int]:
    head, place = ROW.head(text, start)
    given = head.strip()
    arguments, end = decode(text, place)
    return [(name_of(given), arguments, given)], ROW.after(text, end)


def name_of(call_id: str) -> str:
    """The function that an id names.

    >>> name_of("functions.get_weather:0")
    'get_weather'
    """
    match = _ID.fullmatch(call_id)
    return match[1] if match else call_id


def write(calls: Sequence[Written]) -> str:
    return ROW.write([f"functions.{c['name']}:{i}{ROW.between}{dumps(c['arguments'])}" for i, c in enumerate(calls)])


FAMILY = Family(
    models="Kimi K2, K2 Thinking, K2.5",
    find=find,
    write=write,
    marks=(ROW.opening, ROW.call, ROW.between),
    thought=Thought("<think>", "</think>", cut_by=ROW.opening),  # K2 Thinking calls without closing its reasoning
)
