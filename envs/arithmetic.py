"""Exact arithmetic on text: numbers, + - * / and brackets. What countdown checks and math_calc makes its answers by.

Works on fractions, so that nothing is lost to rounding, and bounds every result, so that no text takes long.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any

LONGEST = 300
"""Characters of an expression."""
LARGEST = 10**40
"""Of numerators and denominators; larger ones have no place in a word problem."""

_SIGNS = str.maketrans({"×": "*", "·": "*", "⋅": "*", "÷": "/", "−": "-", "–": "-", "[": "(", "]": ")", "{": "(", "}": ")"})
_LATEX = {r"\times": "*", r"\cdot": "*", r"\div": "/", r"\left": "", r"\right": ""}


class Malformed(ValueError):
    """A text is no expression, or one that goes too far; says why in a few words."""


def evaluate(text: str) -> Fraction:
    """The value of an expression. Raises Malformed.

    >>> print(evaluate("(1,200 - 3 × 50) / 4"))
    525/2
    """
    return value_of(parsed(text))


def parsed(text: str) -> ast.expr:
    """The expression as a tree of numbers and operators alone. Raises Malformed."""
    if len(text) > LONGEST:
        raise Malformed(f"an expression may have {LONGEST} characters, this one has {len(text)}")
    try:
        tree = ast.parse(plain(text), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        tree = None
    if tree is None or not all(isinstance(node, _ALLOWED) for node in ast.walk(tree)):
        raise Malformed(f"{text.strip()!r} is no expression of numbers, + - * / and brackets")
    return tree


def plain(text: str) -> str:
    """In Python's signs: 1,000 × 3 as it is usually written.

    >>> plain(" 1,000 × 2 ")
    '1000 * 2'
    """
    text = re.sub(r"(?<=\d),(?=\d{3}(?!\d))", "", text.translate(_SIGNS))
    for written, meant in _LATEX.items():
        text = text.replace(written, meant)
    text = re.sub(r"(?<=[\d)\s])[xX](?=[\d(\s])", "*", text.replace("$", ""))
    return re.sub(r"(?<![\w.])0+(?=\d)", "", text).strip()  # Python takes no leading zeros


def value_of(node: ast.AST) -> Fraction:
    """The value of a tree that `parsed` gave. Raises Malformed."""
    if isinstance(node, ast.Constant):
        return _bounded(_number(node.value))
    if isinstance(node, ast.UnaryOp):
        value = value_of(node.operand)
        return -value if isinstance(node.op, ast.USub) else value
    if not isinstance(node, ast.BinOp):
        raise Malformed("only numbers and operators can be worked out")
    left, right = value_of(node.left), value_of(node.right)
    if isinstance(node.op, ast.Div) and right == 0:
        raise Malformed("division by zero")
    return _bounded(_OPERATORS[type(node.op)](left, right))


def shown(value: Fraction) -> str:
    """As a calculator shows it.

    >>> shown(Fraction(7)), shown(Fraction(5, 4)), shown(Fraction(10, 3))
    ('7', '1.25', '3.333333 (10/3)')
    """
    if value.denominator == 1:
        return str(value.numerator)
    millionths = value * 10**6
    if millionths.denominator > 1:
        return f"{float(value):.6f} ({value})"
    whole, rest = divmod(abs(millionths.numerator), 10**6)
    return f"{'-' if value < 0 else ''}{whole}.{rest:06d}".rstrip("0")


def _number(value: Any) -> Fraction:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise Malformed(f"{value!r} is no number")
    try:
        return Fraction(str(value))  # of what was written: 0.1 is a tenth
    except ValueError:  # inf
        raise Malformed("a number is too large") from None


def _bounded(value: Fraction) -> Fraction:
    if max(abs(value.numerator), value.denominator) > LARGEST:
        raise Malformed("a result is too large")
    return value


_OPERATORS: dict[type, Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: a / b,
}
_ALLOWED = (ast.Constant, ast.UnaryOp, ast.UAdd, ast.USub, ast.BinOp, *_OPERATORS)
