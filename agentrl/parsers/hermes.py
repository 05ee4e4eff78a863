"""<tool_call> with a JSON object in it: Hermes, Qwen2.5, Qwen3, QwQ, and most models trained on OpenAI-like data.

<tool_call>
{"name": "get_weather", "arguments": {"city": "Köln"}}
</tool_call>
"""

from __future__ import annotations

from collections.abc import Sequence

from agentrl.parsers.family import Call, Family, Found, Written, reading
from agentrl.parsers.json_text import Unreadable, calls_in, decode_all, dumps, skip
from agentrl.tool import ToolSpec

OPENING, CLOSING = "<tool_call>", "</tool_call>"


def find(text: str, place: int, tools: Sequence[ToolSpec]) -> Found | None:
    start = text.find(OPENING, place)
    if start < 0:
        return None
    return reading(start, region_end(text, start), lambda: read_json(text, start + len(OPENING)))


def read_json(text: str, place: int) -> tuple[list[Call], int]:
    """The calls between the tags. The JSON says where it ends, so a string in it may spell a tag."""
    if text.startswith(CLOSING, skip(text, place)):
        raise Unreadable("there is nothing between the tags")
    values, end = decode_all(text, place, CLOSING)
    return [call for value in values for call in calls_in(value)], after_closing(text, end)


def after_closing(text: str, end: int) -> int:
    """Where the closing tag ends, if there is one at `end`: a model may leave out the last."""
    return end + len(CLOSING) if text.startswith(CLOSING, end) else end


def region_end(text: str, start: int) -> int:
    """Where a call that cannot be read is over: after its closing tag, or before the next call."""
    inside = start + len(OPENING)
    closed, following = text.find(CLOSING, inside), text.find(OPENING, inside)
    if closed >= 0 and not 0 <= following < closed:
        return closed + len(CLOSING)
    return following if following >= 0 else len(text)


def write(calls: Sequence[Written]) -> str:
    bodies = [dumps({"name": call["name"], "arguments": call["arguments"]}) for call in calls]
    return "\n".join(f"{OPENING}\n{body}\n{CLOSING}" for body in bodies)


FAMILY = Family(
    models="Hermes 2 and 3, Qwen2.5, Qwen3, QwQ; all others whose template shows no calls of its own",
    find=find,
    write=write,
    marks=(OPENING,),
)
