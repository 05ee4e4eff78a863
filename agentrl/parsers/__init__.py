"""What a model wrote, taken apart: reasoning, text, tool calls, in the format its family was trained on.

Pure functions of text; nothing here raises for what a model may write. A call that cannot be read stays in the text, and
`Parsed.error` says what is wrong in words the model can learn from. So does one in a form that is not the asked one:
nothing that looks like a call passes in silence.
"""

from __future__ import annotations

from agentrl.parsers.families import FAMILIES, FORMATS, ToolFormat, named, tool_format
from agentrl.parsers.parse import Parsed, parse_calls, parse_turn, split_reasoning
from agentrl.parsers.prompts import write_calls, write_result, write_tools

__all__ = [
    "FAMILIES",
    "FORMATS",
    "Parsed",
    "ToolFormat",
    "named",
    "parse_calls",
    "parse_turn",
    "split_reasoning",
    "tool_format",
    "write_calls",
    "write_result",
    "write_tools",
]
