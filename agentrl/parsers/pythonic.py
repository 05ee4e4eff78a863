"""A list of Python calls: Llama 3.2 and 3.3 where they are told to, Llama 4, ToolACE.

[get_weather(city='Köln'), get_time()]
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from agentrl.parsers.family import Call, Family, Found, Written, reading
from agentrl.parsers.json_text import Unreadable, skip
from agentrl.parsers.loose import find_python, read_python
from agentrl.parsers.python_text import write as write_python
from agentrl.tool import ToolSpec

STARTS, END = ("<|python_start|>", "<|python_tag|>"), "<|python_end|>"


def find(text: str, place: int, tools: Sequence[ToolSpec]) -> Found | None:
    found = [item for item in [find_python(text, place, tools)] if item]
    for mark in STARTS:
        start = text.find(mark, place)
        if start >= 0 and not (found and found[0].start < start):
            found.insert(0, _marked(text, start, mark, tools))
    return min(found, key=lambda item: item.start, default=None)


def _marked(text: str, start: int, mark: str, tools: Sequence[ToolSpec]) -> Found:
    def read() -> tuple[Iterable[Call], int]:
        place = skip(text, start + len(mark))
        if not text.startswith("[", place):
            raise Unreadable(f"after {mark} a list of calls is expected")
        calls, stop = read_python(text, place, tools)
        after = skip(text, stop)
        return calls, after + len(END) if text.startswith(END, after) else stop

    end = text.find(END, start)
    return reading(start, len(text) if end < 0 else end + len(END), read)


def write(calls: Sequence[Written]) -> str:
    return f"[{', '.join(write_python(calls))}]" if calls else ""


FAMILY = Family(models="Llama 4; Llama 3.2 and 3.3 as Meta prompts them; ToolACE", find=find, write=write, marks=STARTS)
