"""Lines of plain text, as any model can be told to write them: ReAct.

    Thought: I need the weather.
    Action: get_weather
    Action Input: {"city": "Köln"}

The input of a tool that takes one argument may be bare. `Action: search[Köln]`, the form of the paper, is read as well.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from agentrl.parsers.family import Call, Family, Found, Written, reading
from agentrl.parsers.json_text import Unreadable, decode, dumps, skip
from agentrl.parsers.typed import arguments_in, only_argument
from agentrl.tool import ToolSpec

_LABEL = r"^[ \t]*(?:\*\*)?{}(?:[ \t]+\d+)?(?:\*\*)?[ \t]*:(?:\*\*)?[ \t]*"
_ACTION = re.compile(_LABEL.format("Action") + r"([^\n]*)", re.MULTILINE)
_INPUT = re.compile(r"\s*" + _LABEL.format("Action Input")[1:])
_FINAL = re.compile(_LABEL.format("Final Answer"), re.MULTILINE)
_OBSERVATION = re.compile(_LABEL.format("Observation"), re.MULTILINE)
_NEXT = re.compile(_LABEL.format("(?:Observation|Thought|Action|Final Answer)"), re.MULTILINE)
_BRACKETED = re.compile(r"([^\s\[\]]+)[ \t]*\[(.*)\]")


def find(text: str, place: int, tools: Sequence[ToolSpec]) -> Found | None:
    """The next action before the final answer. An observation that the model wrote itself ends them all."""
    final = _FINAL.search(text, place)
    end = final.start() if final else len(text)
    action, seen = _ACTION.search(text, place, end), _OBSERVATION.search(text, place, end)
    if seen and not (action and action.start() < seen.start()):
        return Found(
            start=seen.start(), stop=len(text), error="you wrote an Observation: that is what the tool answers; stop before it"
        )
    return reading(action.start(), _unread(text, action.end()), lambda: _read(text, action, tools)) if action else None


def _unread(text: str, place: int) -> int:
    """After the input, if there is one."""
    given = _INPUT.match(text, place)
    following = _NEXT.search(text, given.end() if given else place)
    return following.start() if following else len(text)


def _read(text: str, action: re.Match[str], tools: Sequence[ToolSpec]) -> tuple[list[Call], int]:
    given = _INPUT.match(text, action.end())
    if given:
        name = action[1].strip().strip("`*\"'")
        arguments, stop = _input(text, given.end(), name, tools)
        return [(name, arguments, "")], stop
    bracketed = _BRACKETED.fullmatch(action[1].strip())
    if not bracketed:
        raise Unreadable("after the line 'Action: name' comes the line 'Action Input: ' with a JSON object")
    return [(bracketed[1], arguments_in(bracketed[2], bracketed[1], tools), "")], action.end()


def _input(text: str, place: int, name: str, tools: Sequence[ToolSpec]) -> tuple[object, int]:
    """(arguments, where they end). A JSON object says so itself; a bare value ends before the next label."""
    if text.startswith("{", skip(text, place)):
        try:
            value, end = decode(text, place)
            if not text[end:].partition("\n")[0].strip():
                return value, end
        except Unreadable:
            if only_argument(name, tools) is None:
                raise
    following = _NEXT.search(text, place)
    stop = following.start() if following else len(text)
    body = text[place:stop].strip()
    if body.startswith("```") and body.endswith("```") and "\n" in body:
        body = body.partition("\n")[2].removesuffix("```").strip()
    return arguments_in(body, name, tools), stop


def write(calls: Sequence[Written]) -> str:
    return "\n".join(f"Action: {call['name']}\nAction Input: {dumps(call['arguments'])}" for call in calls)


def result(content: str) -> str:
    return f"Observation: {content}"


FAMILY = Family(
    models="any model that is told to",
    find=find,
    write=write,
    marks=("Action Input:",),
    result=result,
    prompted=True,
)
