"""What a family of tool-call formats is made of. Each family has a file of its own; `families` is their table."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentrl.parsers.json_text import Unreadable, decode
from agentrl.parsers.reasoning import THINK, Thought
from agentrl.tool import ToolSpec

Call = tuple[Any, Any, str]
"""(name, arguments as an object or as JSON text, the id the model gave it or "")"""
Written = Mapping[str, Any]
"""{"name": ..., "arguments": {...}}"""

_FAULTS = (ValueError, TypeError, SyntaxError, RecursionError, MemoryError)
"""What reading text as JSON or Python may raise, for text that is neither or is nested without end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A place in a text where calls stand, or where one was meant and cannot be read.

    >>> Found(start=0, stop=12, error="invalid JSON at character 1: Expecting value").calls
    ()
    """

    start: int
    stop: int
    calls: tuple[Call, ...] = ()
    """Names and arguments are valid: `reading` has checked them."""
    error: str = ""


Find = Callable[[str, int, Sequence[ToolSpec]], Found | None]
"""(text, place, tools): the first call at or after `place`. Takes time linear in the text, raises nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One way of writing calls, and who was trained on it."""

    models: str
    find: Find
    write: Callable[[Sequence[Written]], str]
    """Calls as text that `find` reads back."""
    marks: tuple[str, ...] = ()
    """What a model only writes to call: found where no call could be read, a call was meant."""
    example: Written = field(default_factory=lambda: {"name": "function_name", "arguments": {"argument": "value"}})
    """The call that a model is shown when it is told how to write one."""
    result: Callable[[str], str] | None = None
    """A tool's answer inside a user message; None: the chat template's own tool role, or <tool_response>."""
    thought: Thought = THINK
    messages: bool = False
    """The turn is a row of messages with headers, as of gpt-oss; reasoning and text are messages too."""
    prompted: bool = False
    """No chat template writes these calls: the model is told how to in the system text."""
    one_call: bool = False
    """A call ends the turn, so a turn holds one."""


def reading(start: int, unread: int, read: Callable[[], tuple[Iterable[Call], int]]) -> Found:
    """What `read` finds, (calls, where they end); what is wrong with text[start:unread] where it raises."""
    try:
        calls, stop = read()
        return Found(
            start=start, stop=stop, calls=tuple((_name(name), _arguments(value), given) for name, value, given in calls)
        )
    except _FAULTS as error:
        return Found(start=start, stop=max(unread, start + 1), error=str(error) or type(error).__name__)


def _name(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise Unreadable('"name" must be the name of a function')
    _as_utf8(value)
    return value.strip()


def _arguments(value: Any) -> dict[str, Any]:
    if isinstance(value, str):
        value, end, text = *decode(value, 0), value
        if text[end:].strip():
            raise Unreadable("the arguments must be one JSON object")
    if not isinstance(value, dict):
        raise Unreadable("the arguments must be a JSON object")
    try:
        _as_utf8(json.dumps(value, ensure_ascii=False, allow_nan=False))  # no lone surrogate, no set, no nan gets past here
    except (TypeError, ValueError) as error:
        raise Unreadable(f"the arguments must be JSON values: {error}") from None
    return value


def _as_utf8(text: str) -> None:
    """Raises UnicodeEncodeError, a ValueError, for half a surrogate pair."""
    text.encode()
