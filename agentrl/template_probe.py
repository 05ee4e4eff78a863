"""What a chat template renders by itself, found out by what it shows of short conversations. Text only."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from agentrl.errors import UsageError

Dicts = list[dict[str, Any]]
CallIds = Literal["any", "nine", "named"]
"""Ids a template takes for calls. nine: nine letters or digits (Mistral); named: functions.<name>:<number>, which is all that
it shows of a call's function (Kimi)."""
REASONING = ("reasoning_content", "thinking")
"""What templates call a message's reasoning; gpt-oss's the second. Not every version of transformers fills in the other."""


class TemplateRefusal(UsageError):
    """The chat template raised for a conversation: roles in an order it does not know, for one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What a chat template renders by itself."""

    system: bool
    tools: bool
    tool_role: bool
    calls: Literal["object", "string", "none"]
    """How it takes a call's arguments; "none": it does not render calls."""
    parallel: bool
    """Several calls in one message."""
    ids: CallIds
    reasoning: bool
    """It takes reasoning by one of its names, or strips it from the content on purpose."""
    words: bool
    """It takes words beside reasoning and a call (gpt-oss's refuses them)."""
    alternate: bool
    """Two user messages in a row are refused."""


Apply = Callable[[Dicts, Dicts, bool], str]

_TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "probename",
        "description": "probedescription",
        "parameters": {"type": "object", "properties": {"probekey": {"type": "string"}}, "required": ["probekey"]},
    },
}
PROBE_CALL: tuple[str, dict[str, Any]] = ("probename", {"probekey": "probevalue0"})
_THOUGHT = dict.fromkeys(REASONING, "probethought")
USER = {"role": "user", "content": "probeuser"}


def probe(apply: Apply) -> Shape:
    """Finds a template's shape by what it shows of short conversations."""
    apply([USER], [], True)  # a template that cannot do this is of no use: its error goes to the user
    system = "probesystem" in attempt(apply, [{"role": "system", "content": "probesystem"}, USER])
    calls, ids = _probe_calls(apply)
    said: dict[str, Any] = {"role": "assistant", "content": "probeanswer"}
    if calls != "none":
        said |= {"content": "", "tool_calls": [_call(0, calls, ids)]}
    two = said | {"tool_calls": [_call(0, calls, ids), _call(1, calls, ids)]}
    results = [_result(0, ids), _result(1, ids)]
    return Shape(
        system=system,
        tools="probedescription" in attempt(apply, [USER], [_TOOL]),
        tool_role=shows_result_of_text(apply)
        if calls == "none"
        else "proberesult0" in attempt(apply, [USER, said, results[0]]),
        calls=calls,
        ids=ids,
        parallel=calls != "none" and "probevalue1" in attempt(apply, [USER, two, *results]),
        reasoning=_probe_reasoning(apply),
        words=any(attempt(apply, [USER, said | {"content": "probeanswer"} | _THOUGHT, *tail]) for tail in ([], results[:1])),
        alternate="probelast" not in attempt(apply, [USER, {"role": "user", "content": "probelast"}]),
    )


def attempt(apply: Apply, messages: Dicts, tools: Sequence[dict[str, Any]] = ()) -> str:
    """What the template shows of a conversation; "" where it refuses it."""
    try:
        return apply(messages, list(tools), False)
    except TemplateRefusal:
        return ""


_IDS: dict[CallIds, str] = {"any": "call_{}", "nine": "00000000{}", "named": "functions.probename:{}"}


def _call(index: int, form: str, ids: CallIds) -> dict[str, Any]:
    arguments: Any = {"probekey": f"probevalue{index}"}
    if form == "string":
        arguments = json.dumps(arguments)
    return {"id": _IDS[ids].format(index), "type": "function", "function": {"name": "probename", "arguments": arguments}}


def _result(index: int, ids: CallIds, name: str = "probename") -> dict[str, Any]:
    return {"role": "tool", "content": f"proberesult{index}", "tool_call_id": _IDS[ids].format(index), "name": name}


def _probe_calls(apply: Apply) -> tuple[Literal["object", "string", "none"], CallIds]:
    """(form of arguments, ids) of the first way in which a call is shown in full."""
    forms: tuple[Literal["object", "string"], ...] = ("object", "string")
    for ids in _IDS:
        for form in forms:
            said = {"role": "assistant", "content": "", "tool_calls": [_call(0, form, ids)]}
            tails: tuple[Dicts, ...] = ([], [_result(0, ids, "probeother")])  # the result must not be what shows the name
            if any(_shows_call(attempt(apply, [USER, said, *tail])) for tail in tails):
                return (form, ids) if _shows_each_alike(apply, said, _result(0, ids)) else ("none", "any")
    return "none", "any"


def _shows_each_alike(apply: Apply, said: dict[str, Any], result: dict[str, Any]) -> bool:
    """Are a call and its result shown in the same way, however many came before? (DeepSeek R1's template opens a row of calls,
    and one of results, only once in a conversation: what follows a turn could not be appended.)"""
    asked = attempt(apply, [USER, said, result] * 3).split(USER["content"])[1:]
    inside = attempt(apply, [USER, *[said, result] * 3]).split("probevalue0")[1:]
    return asked[:1] == asked[1:2] and inside[:1] == inside[1:2]


def shown_call(apply: Apply, shape: Shape) -> str:
    """How the template writes a call of `PROBE_CALL`, with all that follows it; "" when it writes none."""
    if shape.calls == "none":
        return ""
    said = {"role": "assistant", "content": "", "tool_calls": [_call(0, shape.calls, shape.ids)]}
    shown = (attempt(apply, [USER, said, *tail]) for tail in ([], [_result(0, shape.ids)]))
    return next(filter(None, shown), "").partition(USER["content"])[2]


def shows_result_of_text(apply: Apply) -> bool:
    """Is a tool's result shown after an assistant's message without calls, and a second one in the same way?

    (DeepSeek R1's template opens only the first of a conversation.)
    """
    said, result = {"role": "assistant", "content": "probeanswer"}, _result(0, "any")
    shown = attempt(apply, [USER, said, result, said, result, said, USER]).split("probeanswer")
    return len(shown) == 4 and "proberesult0" in shown[1] and shown[1] == shown[2]


def _shows_call(text: str) -> bool:
    """In full, and as JSON or bare rather than as a Python dict or as JSON inside a JSON string."""
    whole = all(word in text for word in ("probename", "probekey", "probevalue0"))
    return whole and "'probekey'" not in text and '\\"probekey' not in text


def _probe_reasoning(apply: Apply) -> bool:
    if "probethought" in attempt(apply, [USER, {"role": "assistant", "content": "probeanswer"} | _THOUGHT]):
        return True
    inline = {"role": "assistant", "content": "<think>\nprobethought\n</think>\n\nprobeanswer"}
    return "probethought" not in attempt(apply, [USER, inline])
