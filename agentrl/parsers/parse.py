"""A turn taken apart, whatever its family: reasoning first, then the calls, then what only looks like one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from agentrl.messages import ToolCall
from agentrl.parsers import harmony
from agentrl.parsers.families import FAMILIES, ToolFormat
from agentrl.parsers.family import Call, Family, Found
from agentrl.parsers.loose import find_json, find_python
from agentrl.parsers.prompts import example
from agentrl.parsers.reasoning import next_thought, split
from agentrl.tool import ToolSpec

MAX_PROBLEMS = 3
"""A turn of noise may hold thousands; a model learns from the first few."""
MAX_PLACES = 64
"""Calls, or what is meant for one, that are looked at in a turn. A model that repeats itself without end writes thousands: they
would keep the event loop for seconds, and nobody wants them run."""
_TOO_MANY = f"a turn holds at most {MAX_PLACES} calls; the rest was not run"
_MARKS = re.compile("|".join(re.escape(mark) for family in FAMILIES.values() for mark in family.marks))
_ARGUMENTS = re.compile(r"\b(?:arguments|parameters)\b")
_FENCE = re.compile(r"\A```\w*[ \t]*\n(.*?)\n?```\Z", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed:
    """`text` without the calls that could be read.

    >>> parse_calls("hermes", 'Wait.\\n<tool_call>\\n{"name": "add", "arguments": {"a": 1}}\\n</tool_call>').calls[0].name
    'add'
    """

    text: str
    calls: tuple[ToolCall, ...] = ()
    error: str = ""
    """What could not be read, and how to write it; empty when all could."""


def split_reasoning(
    text: str, opened: bool = False, form: ToolFormat = "hermes", tools: Sequence[ToolSpec] = ()
) -> tuple[str, str]:
    """(reasoning, the rest). `opened`: the generation prompt already wrote <think>. Cut reasoning leaves no rest.

    The end of reasoning may stand without its beginning. What an argument of a call spells is no end of reasoning.

    >>> split_reasoning("<think>\\n1 + 1\\n</think>\\n\\nTwo.")
    ('1 + 1', 'Two.')
    >>> split_reasoning("1 + 1 is", opened=True)
    ('1 + 1 is', '')
    """
    family = FAMILIES[form]
    return harmony.split(text) if family.messages else split(family.thought, text, opened, _closing(family, text, tools))


def _closing(family: Family, text: str, tools: Sequence[ToolSpec]) -> int:
    """Where reasoning is closed, outside of calls; -1 for nowhere."""
    at, place = text.find(family.thought.closing), 0
    for _ in range(MAX_PLACES):
        found = family.find(text, place, tools) if at >= 0 else None
        if found is None or found.start > at:
            break
        if found.calls and at < found.stop:
            at = text.find(family.thought.closing, found.stop)
        place = found.stop
    return at


def parse_turn(
    form: ToolFormat, raw: str, tools: Sequence[ToolSpec] | None = None, *, opened: bool = False
) -> tuple[str, Parsed]:
    """(reasoning, the rest of the turn). A call in reasoning that is never closed is not run, and is told of.

    `tools`: what the model was told of. With none at all nothing is read as a call; None: not known.
    """
    family = FAMILIES[form]
    reasoning, text = split_reasoning(raw, opened, form, tools or ())
    if tools is not None and not tools:
        return reasoning, Parsed(text=harmony.plain(text) if family.messages else text)
    if text or not reasoning or family.messages or not family.find(reasoning, 0, tools or ()):
        return reasoning, parse_calls(form, text, tools or ())
    return reasoning, Parsed(text=text, error=_advice(form, [_open_thought(family)]))


def parse_calls(form: ToolFormat, text: str, tools: Sequence[ToolSpec] = ()) -> Parsed:
    """Tool calls of `text`, reasoning stripped. `tools` helps where a format writes no types (GLM), where it does not mark
    calls (Llama 3, Gemma), and to tell a call in another form from other text."""
    family = FAMILIES[form]
    calls: list[Call] = []
    problems: list[str] = []
    kept: list[str] = []
    last = 0
    for found in _places(family, text, tools):
        if found.error:
            problems.append(found.error)
            continue
        kept.append(text[last : found.start])
        last = found.stop
        calls += found.calls
    kept.append(text[last:])
    if len(calls) > MAX_PLACES:
        problems.append(_TOO_MANY)
    problems = problems or _strays(family, kept, tools)
    rest = _join(kept) if calls else text
    return Parsed(
        text=harmony.plain(rest) if family.messages else rest,
        calls=tuple(ToolCall(id=g or f"call_{i}", name=n, arguments=a) for i, (n, a, g) in enumerate(calls[:MAX_PLACES])),
        error=_advice(form, problems) if problems else "",
    )


def _places(family: Family, text: str, tools: Sequence[ToolSpec]) -> Iterator[Found]:
    """The calls of a text, in order, those in reasoning between them left out."""
    place = 0
    for _ in range(MAX_PLACES):
        if (found := family.find(text, place, tools)) is None:
            return
        thought = None if family.messages else next_thought(family.thought, text, place)
        while thought and thought.stop <= found.start:
            thought = next_thought(family.thought, text, thought.stop)
        if not thought or thought.start >= found.start:
            yield found
            place = found.stop
        elif thought.closed:
            place = thought.stop
        else:
            yield Found(start=thought.start, stop=len(text), error=_open_thought(family))
            return
    if family.find(text, place, tools):
        yield Found(start=place, stop=len(text), error=_TOO_MANY)


def _open_thought(family: Family) -> str:
    return f"it stands in reasoning that {family.thought.closing} does not close, so it was not run"


def _strays(family: Family, pieces: Iterable[str], tools: Sequence[ToolSpec]) -> list[str]:
    """What is wrong with text in which no call was found, though it looks like one. Reasoning may say what it likes."""
    for piece in pieces:
        text = piece if family.messages else _without_thoughts(family, piece)
        if mark := _MARKS.search(text):
            return [f"{mark[0]!r} begins a call, but not in the form that is read here"]
        if tools and _is_loose_call(text.strip(), tools):
            return ["it is not in the form that is read here"]
    return []


def _is_loose_call(text: str, tools: Sequence[ToolSpec]) -> bool:
    """JSON that calls one of the tools, anywhere, well-formed or not; Python that does and is all there is."""
    names = {spec.name for spec in tools}
    spelt = "|".join(re.escape(name) for name in names)
    if re.search(rf"[{{,]\s*[\"']?name[\"']?\s*:?\s*[\"']?(?:{spelt})\b", text) and _ARGUMENTS.search(text):
        return True
    place = 0
    while found := find_json(text, place):
        if found.error or any(name in names for name, _, _ in found.calls):
            return True
        place = found.stop
    fence = _FENCE.match(text)
    body = fence[1].strip() if fence else text
    python = find_python(body, 0, tools)
    return python is not None and any(name in names for name, _, _ in python.calls) and python.stop == len(body)


def _without_thoughts(family: Family, text: str) -> str:
    out, place = [], 0
    while thought := next_thought(family.thought, text, place):
        out.append(text[place : thought.start])
        place = thought.stop
    return "".join([*out, text[place:]])


def _advice(form: ToolFormat, problems: Sequence[str]) -> str:
    told = list(dict.fromkeys(problems))
    more = f"; and {len(told) - MAX_PROBLEMS} more" if len(told) > MAX_PROBLEMS else ""
    return f"Your tool call could not be read: {'; '.join(told[:MAX_PROBLEMS])}{more}. Write it as:\n{example(form)}"


def _join(pieces: Sequence[str]) -> str:
    """The text around calls: one newline before a call belongs to the call, as do blanks between and after calls."""
    head, *rest = pieces
    tail = "".join(piece.strip() for piece in rest)
    return head.removesuffix("\n") + (f"\n{tail}" if head.strip() and tail else tail)
