"""A turn of several messages, each with a header that names its channel and whom it is for: gpt-oss (OpenAI's harmony).

    <|channel|>analysis<|message|>I need the weather.<|end|>
    <|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"city": "Köln"}<|call|>

Analysis is reasoning, final and commentary are text, and what is `to` someone is a call of it, whatever the channel.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

from agentrl.parsers.family import Call, Family, Found, Written, reading
from agentrl.parsers.json_text import Unreadable, decode, dumps, skip
from agentrl.parsers.typed import arguments_in
from agentrl.tool import ToolSpec

START, CHANNEL, MESSAGE = "<|start|>", "<|channel|>", "<|message|>"
ENDS = ("<|end|>", "<|call|>", "<|return|>")
_END = re.compile("|".join(map(re.escape, (*ENDS, START))))
_MARKS = re.compile("|".join(map(re.escape, (*ENDS, START, CHANNEL, MESSAGE, "<|constrain|>"))))
_TO = re.compile(r"(?:^|[\s>])to=([^\s<]+)")
_CHANNEL = re.compile(r"<\|channel\|>\s*(\w+)")
_JSON = re.compile(r"(?:<\|constrain\|>|\s)json\s*\Z")


class Piece(NamedTuple):
    """One message: text[start:stop], of which text[inside:end] is its content."""

    start: int
    header: str
    inside: int
    end: int
    stop: int

    @property
    def recipient(self) -> str:
        """Whom the message is for; "" for nobody, or for the assistant itself."""
        found = _TO.search(self.header)
        return found[1] if found and found[1] not in ("assistant", "user", "all") else ""

    @property
    def is_thought(self) -> bool:
        channel = _CHANNEL.search(self.header)
        return channel is not None and channel[1] == "analysis" and not self.recipient


def pieces(text: str, place: int = 0) -> Iterator[Piece]:
    """The messages from `place` on. The first may lack what the prompt already wrote of its header."""
    while (at := text.find(MESSAGE, place)) >= 0:
        start = _header(text, place, at)
        inside = at + len(MESSAGE)
        end = _END.search(text, inside)
        stop = len(text) if not end else end.start() if end[0] == START else end.end()
        yield Piece(start, text[start:at], inside, end.start() if end else len(text), stop)
        place = stop


def _header(text: str, place: int, at: int) -> int:
    """Where the header of the message whose content follows `at` starts; what stands before it is nobody's."""
    started = text.rfind(START, place, at)
    if started >= 0:
        return started
    channel = text.find(CHANNEL, place, at)
    named = text[place:at].lstrip().startswith(("to=", "assistant"))
    return place if named or channel < 0 else channel


def find(text: str, place: int, tools: Sequence[ToolSpec]) -> Found | None:
    last = place
    for piece in pieces(text, place):
        if piece.recipient:
            return reading(piece.start, piece.stop, partial(_read, text, piece, tools))
        last = piece.stop
    unfinished = _TO.search(text, last) if CHANNEL in text[last:] or START in text[last:] else None
    if not unfinished:
        return None
    start = _header(text, last, len(text))
    return Found(start=start, stop=len(text), error=f"{MESSAGE} is missing after the header")


def _read(text: str, piece: Piece, tools: Sequence[ToolSpec]) -> tuple[list[Call], int]:
    name = piece.recipient.removeprefix("functions.")
    if not _JSON.search(piece.header):
        return [(name, arguments_in(text[piece.inside : piece.end], name, tools), "")], piece.stop
    arguments, end = decode(text, piece.inside)  # the JSON says where it ends: a string in it may spell a token
    end = skip(text, end)
    closed = next((mark for mark in ENDS if text.startswith(mark, end)), "")
    if not closed and end < len(text) and not text.startswith(START, end):
        raise Unreadable("after the JSON object comes <|call|>")
    return [(name, arguments, "")], end + len(closed)


def split(text: str) -> tuple[str, str]:
    """(reasoning, the rest with its headers)."""
    thoughts, rest, last = [], [], 0
    for piece in pieces(text):
        if piece.is_thought:
            thoughts.append(text[piece.inside : piece.end].strip("\n"))
            rest.append(text[last : piece.start])
            last = piece.stop
    return "\n".join(thoughts), "".join([*rest, text[last:]])


def plain(text: str) -> str:
    """What the messages say, without headers. One that is for a tool (it could not be read) is left as it was written."""
    if not _MARKS.search(text):
        return text
    said, last = [], 0
    for piece in pieces(text):
        said.append(text[last : piece.start])
        said.append(text[piece.start : piece.stop] if piece.recipient else text[piece.inside : piece.end])
        last = piece.stop
    rest = text[last:]
    said.append(rest if _TO.search(rest) else _MARKS.sub("", _header_less(rest)))
    return "\n".join(stripped for item in said if (stripped := item.strip()))


def _header_less(text: str) -> str:
    """Without a header that no message follows."""
    cut = [at for mark in (START, CHANNEL) if (at := text.find(mark)) >= 0]
    return text[: min(cut)] if cut else text


def write(calls: Sequence[Written]) -> str:
    """After a prompt that ends in <|start|>assistant."""
    bodies = [f"{CHANNEL}commentary to=functions.{c['name']} <|constrain|>json{MESSAGE}{dumps(c['arguments'])}" for c in calls]
    return "".join(f"{body}<|call|>" if i == 0 else f"{START}assistant{body}<|call|>" for i, body in enumerate(bodies))


FAMILY = Family(
    models="gpt-oss",
    find=find,
    write=write,
    marks=("to=functions.", "<|constrain|>"),
    messages=True,
    one_call=True,
)
