"""How a task is put to the model: short, since every token of a prompt is paid for with each sample."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

Example = dict[str, str]
"""{"args": "(3, 4)", "result": "7"}: Python literals, so that tuples and integer keys outlive JSON."""


def example_of(args: Sequence[Any], result: Any) -> Example:
    """
    >>> example_of((3, 4), 7)
    {'args': '(3, 4)', 'result': '7'}
    """
    return {"args": repr(tuple(args)), "result": repr(result)}


def case_of(example: Example) -> tuple[tuple[Any, ...], Any]:
    """(arguments, result) of an example. Raises ValueError, SyntaxError for anything but literals."""
    return tuple(ast.literal_eval(example["args"])), ast.literal_eval(example["result"])


def call_text(function: str, example: Example) -> str:
    """
    >>> call_text("add", {"args": "(3,)", "result": "4"})
    'add(3)'
    """
    args = ast.literal_eval(example["args"])
    return f"{function}({', '.join(map(repr, args))})"


def example_lines(function: str, examples: Sequence[Example]) -> str:
    """One line for each: "add(3) == 4"."""
    return "\n".join(f"{call_text(function, example)} == {example['result']}" for example in examples)


def function_prompt(function: str, parameters: str, text: str, examples: Sequence[Example]) -> str:
    """The first message of a generated task."""
    return f"Write a function {function}({parameters}). {text}\n{example_lines(function, examples)}"
