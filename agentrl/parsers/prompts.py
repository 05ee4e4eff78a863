"""Tools, calls and results as text, for chat templates that cannot show them themselves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from agentrl.parsers.families import FAMILIES, ToolFormat
from agentrl.parsers.json_text import dumps


def write_calls(form: ToolFormat, calls: Iterable[Mapping[str, Any]]) -> str:
    """Calls ({"name", "arguments"} each) as text that `parse_calls` reads back.

    >>> write_calls("llama3", [{"name": "add", "arguments": {"a": 1}}])
    '{"name": "add", "parameters": {"a": 1}}'
    """
    return FAMILIES[form].write(list(calls))


def write_tools(form: ToolFormat, tools: Iterable[Mapping[str, Any]]) -> str:
    """A system text that tells a model of its tools and how to call them."""
    lines = "\n".join(dumps(tool.get("function", tool)) for tool in tools)
    return (
        f"# Tools\n\nYou may call these functions, each described by a JSON schema:\n<tools>\n{lines}\n</tools>\n\n"
        f"To call one, write:\n{example(form)}"
    )


def write_result(form: ToolFormat, content: str) -> str:
    """A tool's answer inside a user message."""
    own = FAMILIES[form].result
    return own(content) if own else f"<tool_response>\n{content}\n</tool_response>"


def example(form: ToolFormat) -> str:
    """How a call is written, for a model to copy."""
    family = FAMILIES[form]
    return family.write([family.example])
