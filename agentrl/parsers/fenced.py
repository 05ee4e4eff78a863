"""A fenced code block in the language of a tool is a call of it: any model that is told to, and many that are not.

    ```python
    print(1 + 1)
    ```

The block is the tool's only argument, or a JSON object of arguments. Blocks in other languages are text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial

from agentrl.answers import canonical
from agentrl.parsers.family import Call, Family, Found, Written, reading
from agentrl.parsers.json_text import Unreadable, dumps
from agentrl.parsers.typed import arguments_in
from agentrl.tool import ToolSpec

_OPENING = re.compile(r"^([ \t]*+)(`{3,}+|~{3,}+)[ \t]*+([\w+#.-]*+)[^\n`]*+(?:\n|\Z)", re.MULTILINE)
_PYTHON = ("python", "ipython", "code_interpreter")
"""Names of tools that run Python."""
_CODE = (*_PYTHON, "bash", "shell", "sql", "javascript")
"""Tools whose only argument is code, written as it is; others get a JSON object."""


def find(text: str, place: int, tools: Sequence[ToolSpec]) -> Found | None:
    while opening := _OPENING.search(text, place):
        closing = _closing(text, opening)
        name = tool_of_language(opening[3], tools)
        if name is not None:
            stop = closing.end() if closing else len(text)
            return reading(opening.start(), stop, partial(_read, text, opening, closing, name, tools))
        if not closing:
            return None
        place = closing.end()
    return None


def tool_of_language(language: str, tools: Sequence[ToolSpec]) -> str | None:
    """The tool that takes code of a language: the one of that name, or one that runs Python. Without tools: python.

    >>> tool_of_language("py", [])
    'python'
    """
    wanted = canonical(language)
    if not tools:
        return "python" if wanted == "python" else None
    names = [spec.name for spec in tools if language and (spec.name == language or canonical(spec.name) == wanted)]
    runners = [spec.name for spec in tools if wanted == "python" and spec.name in _PYTHON]
    return next(iter([*names, *runners]), None)


def _closing(text: str, opening: re.Match[str]) -> re.Match[str] | None:
    fence = opening[2]
    return re.compile(rf"^[ \t]*{re.escape(fence[0])}{{{len(fence)},}}[ \t]*$", re.MULTILINE).search(text, opening.end())


def _read(
    text: str, opening: re.Match[str], closing: re.Match[str] | None, name: str, tools: Sequence[ToolSpec]
) -> tuple[list[Call], int]:
    if not closing:
        raise Unreadable(f"the block that starts with {opening[2]}{opening[3]} is not closed with {opening[2]}")
    lines = text[opening.end() : closing.start()].removesuffix("\n").split("\n")
    indent = len(opening[1])
    body = "\n".join(line[min(indent, len(line) - len(line.lstrip())) :] for line in lines)
    arguments = arguments_in(body, name, tools) if tools else {"code": body}
    return [(name, arguments, "")], closing.end()


def write(calls: Sequence[Written]) -> str:
    return "\n".join(_block(call["name"], _body(call["name"], call["arguments"])) for call in calls)


def _body(name: str, arguments: Mapping[str, object]) -> str:
    """Code as it is, unless it could be taken for a JSON object or a quoted text."""
    only = next(iter(arguments.values())) if len(arguments) == 1 and name in _CODE else None
    return only if isinstance(only, str) and not only.lstrip().startswith(("{", '"')) else dumps(arguments)


def _block(label: str, body: str) -> str:
    """A block whose fence is longer than any inside it."""
    longest = max(map(len, re.findall("`+", body)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{label}\n{body}\n{fence}"


def result(content: str) -> str:
    return _block("output", content)


FAMILY = Family(
    models="any model that is told to",
    find=find,
    write=write,
    example={"name": "python", "arguments": {"code": "print(1 + 1)"}},
    result=result,
    prompted=True,
)
