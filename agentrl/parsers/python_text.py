"""Calls written as Python expressions, values literal. Nothing is evaluated."""

from __future__ import annotations

import ast
import keyword
from collections.abc import Mapping, Sequence
from typing import Any

from agentrl.parsers.family import Call, Written
from agentrl.parsers.json_text import Unreadable
from agentrl.parsers.typed import schema_of
from agentrl.tool import ToolSpec

_CLOSERS = {"(": ")", "[": "]", "{": "}"}
_JSON_WORDS = {"true": True, "false": False, "null": None}
_FORM = "a call has the form name(argument=value)"


def calls_of(source: str, tools: Sequence[ToolSpec]) -> list[Call]:
    """Calls of statements that are calls, or lists of them. Raises Unreadable, or what `ast.parse` raises.

    >>> calls_of("[add(a=1), add(a=2)]", [])
    [('add', {'a': 1}, ''), ('add', {'a': 2}, '')]
    """
    nodes: list[ast.expr] = []
    for statement in ast.parse(source.strip()).body:
        if not isinstance(statement, ast.Expr):
            raise Unreadable("only calls may stand here")
        nodes += statement.value.elts if isinstance(statement.value, ast.List) else [statement.value]
    if not nodes:
        raise Unreadable(_FORM)
    return [_call(node, tools) for node in nodes]


def end_of(text: str, place: int) -> int | None:
    """Where the bracket that opens at `place` is closed (one past it), strings left out; None when it never is.

    >>> end_of("[f(a=']')] and more", 0)
    10
    """
    waiting: list[str] = []
    quote, at = "", place
    while at < len(text):
        letter = text[at]
        if quote:
            if letter == "\\":
                at += 1
            elif text.startswith(quote, at):
                at += len(quote) - 1
                quote = ""
        elif letter in "\"'":
            quote = letter * 3 if text.startswith(letter * 3, at) else letter
            at += len(quote) - 1
        elif letter in _CLOSERS:
            waiting.append(_CLOSERS[letter])
        elif letter in ")]}":
            if letter != waiting.pop():
                return None
            if not waiting:
                return at + 1
        at += 1
    return None


def write(calls: Sequence[Written]) -> list[str]:
    """Each call as Python. Keys that are no names go in as `**{...}`."""
    return [f"{call['name']}({', '.join(_keywords(call['arguments']))})" for call in calls]


def _keywords(arguments: Mapping[str, Any]) -> list[str]:
    named = [f"{key}={value!r}" for key, value in arguments.items() if _is_name(key)]
    others = {key: value for key, value in arguments.items() if not _is_name(key)}
    return [*named, *([f"**{others!r}"] if others else [])]


def _is_name(key: str) -> bool:
    """A name that Python reads back as it is: not a keyword, not one that its normal form would change."""
    return key.isascii() and key.isidentifier() and not keyword.iskeyword(key)


def _call(node: ast.expr, tools: Sequence[ToolSpec]) -> Call:
    """`f(a=1)` or `print(f(a=1))`; positional values are named by the tool's schema."""
    if (
        isinstance(node, ast.Call)
        and _spelt(node.func) == "print"
        and len(node.args) == 1
        and isinstance(node.args[0], ast.Call)
    ):
        node = node.args[0]
    name, call = _name_and_call(node)
    names = list(schema_of(name, tools).get("properties", {}))
    if len(call.args) > len(names):
        raise Unreadable("name each argument, as in name(argument=value)")
    arguments = {key: _literal(value) for key, value in zip(names, call.args, strict=False)}
    for item in call.keywords:
        value = _literal(item.value)
        if item.arg is None and not isinstance(value, dict):
            raise Unreadable("name each argument, as in name(argument=value)")
        arguments |= value if item.arg is None else {item.arg: value}
    return (name, arguments, "")


def _name_and_call(node: ast.expr) -> tuple[str, ast.Call]:
    """Of get-weather(...) too, which Python takes for a subtraction."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub):
        name, call = _name_and_call(node.right)
        return f"{_spelt(node.left)}-{name}", call
    if not isinstance(node, ast.Call):
        raise Unreadable(_FORM)
    return _spelt(node.func), node


def _spelt(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{_spelt(node.value)}.{node.attr}"
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub):
        return f"{_spelt(node.left)}-{_spelt(node.right)}"
    raise Unreadable(_FORM)


def _literal(node: ast.expr) -> Any:
    """The value of a literal; JSON's true, false and null count as such."""
    return ast.literal_eval(_WithJsonWords().visit(node))


class _WithJsonWords(ast.NodeTransformer):
    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Constant(_JSON_WORDS[node.id]) if node.id in _JSON_WORDS else node
