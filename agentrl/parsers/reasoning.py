"""A model's reasoning, told apart from what it says and calls."""

from __future__ import annotations

from typing import NamedTuple


class Thought(NamedTuple):
    """What stands around reasoning. `cut_by`: what ends it as well, unclosed, because only a call starts with it."""

    opening: str
    closing: str
    cut_by: str = ""


THINK = Thought("<think>", "</think>")


class Span(NamedTuple):
    """text[start:stop] is reasoning, tags included. Not `closed`: it goes on to the end of the text."""

    start: int
    stop: int
    closed: bool


def split(thought: Thought, text: str, opened: bool, end: int) -> tuple[str, str]:
    """(reasoning, the rest) of a text that starts with it. `opened`: the prompt already wrote the opening; `end`: where
    the closing stands, -1 for nowhere."""
    opening, closing, cut_by = thought
    start = len(text) - len(text.lstrip())
    if text.startswith(opening, start):
        start, opened = start + len(opening), True
    cut = text.find(cut_by, start) if cut_by and opened else -1
    if cut >= 0 and not 0 <= end < cut:
        return text[start:cut].strip("\n"), text[cut:]
    if end >= 0 and (opened or opening not in text[start:end]):
        return text[start:end].strip("\n"), text[end + len(closing) :].lstrip("\n")
    return (text[start:].strip("\n"), "") if opened else ("", text)


def next_thought(thought: Thought, text: str, place: int) -> Span | None:
    """The next reasoning in the midst of a text, for models that think between calls."""
    start = text.find(thought.opening, place)
    if start < 0:
        return None
    stop = text.find(thought.closing, start)
    cut = text.find(thought.cut_by, start) if thought.cut_by else -1
    if cut >= 0 and not 0 <= stop < cut:
        return Span(start, cut, True)
    return Span(start, stop + len(thought.closing), True) if stop >= 0 else Span(start, len(text), False)
