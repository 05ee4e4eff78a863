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


def split(thought: Thought, text: str, opened: bool) -> tuple[str, str]:
    """(reasoning, the rest) of a text that starts with it. `opened`: the prompt already wrote the opening."""
    opening, closing, cut_by = thought
    body = text.lstrip()
    if body.startswith(opening):
        body, opened = body.removeprefix(opening), True
    cut = body.find(cut_by) if cut_by and opened else -1
    end = body.find(closing)
    if cut >= 0 and not 0 <= end < cut:
        return body[:cut].strip("\n"), body[cut:]
    if end >= 0 and (opened or opening not in body[:end]):
        return body[:end].strip("\n"), body[end + len(closing) :].lstrip("\n")
    return (body.strip("\n"), "") if opened else ("", text)


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
