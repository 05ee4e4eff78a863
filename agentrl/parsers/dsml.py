"""Tags with attributes, marked by DeepSeek's own token ｜DSML｜: DeepSeek V3.2; V4 calls the row tool_calls.

<｜DSML｜function_calls>
<｜DSML｜invoke name="get_weather">
<｜DSML｜parameter name="city" string="true">Köln</｜DSML｜parameter>
</｜DSML｜invoke>
</｜DSML｜function_calls>
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from agentrl.parsers.family import Call, Family, Found, Written, reading
from agentrl.parsers.json_text import Unreadable, decode, skip
from agentrl.parsers.typed import bare, closing
from agentrl.tool import ToolSpec

ROWS, ROW_ENDS = ("<｜DSML｜function_calls>", "<｜DSML｜tool_calls>"), ("</｜DSML｜function_calls>", "</｜DSML｜tool_calls>")
INVOKE, INVOKE_END = "<｜DSML｜invoke", "</｜DSML｜invoke>"
PARAMETER, PARAMETER_END = "<｜DSML｜parameter", "</｜DSML｜parameter>"
_NAMED = re.compile(r'<｜DSML｜invoke\s+name="([^"]+)"\s*>')
_ARGUMENT = re.compile(r'<｜DSML｜parameter\s+name="([^"]+)"\s+string="(true|false)"\s*>')


def find(text: str, place: int, tools: Sequence[ToolSpec]) -> Found | None:
    """One call; the first takes the tag that opens the row with it, the last the one that closes it."""
    starts = [at for mark in (*ROWS, INVOKE) if (at := text.find(mark, place)) >= 0]
    if not starts:
        return None
    start = min(starts)
    return reading(start, _unread(text, start), lambda: _read(text, start))


def _unread(text: str, start: int) -> int:
    end = text.find(INVOKE_END, start)
    return len(text) if end < 0 else _after_row(text, end + len(INVOKE_END))


def _after_row(text: str, place: int) -> int:
    after = skip(text, place)
    return next((after + len(mark) for mark in ROW_ENDS if text.startswith(mark, after)), place)


def _read(text: str, start: int) -> tuple[list[Call], int]:
    opened = next((mark for mark in ROWS if text.startswith(mark, start)), "")
    place = skip(text, start + len(opened))
    named = _NAMED.match(text, place)
    if not named:
        raise Unreadable(
            f'a call is an {INVOKE} name="..."> with a {PARAMETER} name="..." string="true|false"> for each argument'
        )
    arguments, place = {}, skip(text, named.end())
    while argument := _ARGUMENT.match(text, place):
        end = closing(text, argument.end(), PARAMETER_END, (PARAMETER, INVOKE_END))
        value = text[argument.end() : end]
        arguments[argument[1]] = value if argument[2] == "true" else _json(value)
        place = skip(text, end + len(PARAMETER_END))
    if not text.startswith(INVOKE_END, place):
        raise Unreadable(f'an argument is a {PARAMETER} name="..." string="true|false">, and after the last comes {INVOKE_END}')
    return [(named[1], arguments, "")], _after_row(text, place + len(INVOKE_END))


def _json(text: str) -> object:
    value, end = decode(text, 0)
    if text[end:].strip():
        raise Unreadable(f"{text.strip()[:80]!r} is not one JSON value")
    return value


def write(calls: Sequence[Written]) -> str:
    return "\n".join([ROWS[0], *(_write(call) for call in calls), ROW_ENDS[0]]) if calls else ""


def _write(call: Written) -> str:
    lines = [
        f'{PARAMETER} name="{key}" string="{"true" if isinstance(value, str) else "false"}">{bare(value)}{PARAMETER_END}'
        for key, value in call["arguments"].items()
    ]
    return "\n".join([f'{INVOKE} name="{call["name"]}">', *lines, INVOKE_END])


FAMILY = Family(models="DeepSeek V3.2, V4", find=find, write=write, marks=(*ROWS, INVOKE, PARAMETER))
