"""Turns a test into one that a right solution must fail: what it expects is changed, or what it asserts is denied.

Whoever passes both the test and its mutant does not solve the task, it forces the verdict. Only statements that are
certain to run are changed, so that nothing but a forced verdict passes a mutant when the test itself passes.
"""

from __future__ import annotations

import ast
import copy
import random
from collections.abc import Iterator
from typing import Any

OPPOSITE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.NotEq: ast.Eq, ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
PAIRS = (
    ("assertTrue", "assertFalse"), ("assertIn", "assertNotIn"), ("assertIs", "assertIsNot"),
    ("assertIsNone", "assertIsNotNone"), ("assertGreater", "assertLessEqual"), ("assertLess", "assertGreaterEqual"),
    ("assertAlmostEqual", "assertNotAlmostEqual"), ("assertIsInstance", "assertNotIsInstance"),
)  # fmt: skip
OPPOSITE_METHOD = {**dict(PAIRS), **{b: a for a, b in PAIRS}, "assertNotEqual": "assertEqual"}
EQUAL_METHODS = (
    "assertEqual", "assertListEqual", "assertTupleEqual", "assertDictEqual", "assertSetEqual", "assertSequenceEqual",
    "assertMultiLineEqual",
)  # fmt: skip
Function = ast.FunctionDef


def normal(source: str) -> str:
    """The source as it is written anew from its syntax tree, as a mutant is: so that the two cannot be told by their looks.

    Raises ValueError where that would change its meaning, SyntaxError for no Python.
    """
    tree = ast.parse(source)
    text = ast.unparse(tree)
    if ast.dump(ast.parse(text)) != ast.dump(tree):
        raise ValueError("the source cannot be written anew without changing it")
    return text


def mutant(source: str, test: str, rng: random.Random) -> str | None:
    """`source` with the test `path::name` or `path::Class::name[...]` mutated. None for a test that cannot be."""
    tree = ast.parse(source)
    names = test.split("[")[0].split("::")[1:]
    function = _find(tree, names)
    if function is None:
        return None
    options = list(_options(function.body, rng))
    if not options:
        return None
    index, replacement = rng.choice(options)
    function.body[index : index + 1] = replacement
    return ast.unparse(ast.fix_missing_locations(tree))


def _find(tree: ast.Module, names: list[str]) -> Function | None:
    body: list[ast.stmt] = tree.body
    for i, name in enumerate(names):
        kind = Function if i == len(names) - 1 else ast.ClassDef
        found = [node for node in body if isinstance(node, kind) and node.name == name]
        if not found:
            return None
        node = found[-1]  # a later definition replaces an earlier one
        if isinstance(node, Function):
            return node
        body = node.body
    return None


def _options(body: list[ast.stmt], rng: random.Random) -> Iterator[tuple[int, list[ast.stmt]]]:
    """(index, what may stand there instead), for the statements that run whatever happened before."""
    found = False
    for index, node in enumerate(body):
        replacement = _changed_statement(copy.deepcopy(node), rng)
        if replacement is not None:
            found = True
            yield index, replacement
        if any(isinstance(inner, (ast.Return, ast.Yield, ast.YieldFrom)) for inner in ast.walk(node)):
            return
    if not found:
        yield len(body) - 1, [body[-1], *ast.parse("assert 0 == 1").body]


def _changed_statement(node: ast.stmt, rng: random.Random) -> list[ast.stmt] | None:
    match node:
        case ast.Assert(test=test):
            node.test, node.msg = _denied(test, rng), None
            return [node]
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id="self"), attr=name) as method, args=args)):
            if name in OPPOSITE_METHOD:
                method.attr = OPPOSITE_METHOD[name]
                return [node]
            if name in EQUAL_METHODS and len(args) >= 2:
                args[1] = _other(args[1], rng)
                return [node]
        case ast.With(items=[ast.withitem(context_expr=ast.Call(func=ast.Attribute(attr=name)))], body=body):
            return body if name in ("raises", "assertRaises", "assertRaisesRegex") else None
    return None


def _denied(test: ast.expr, rng: random.Random) -> ast.expr:
    match test:
        case ast.Compare(left=left, ops=[ast.Eq()], comparators=[right]):
            if _is_literal(left) and not _is_literal(right):
                return ast.Compare(left=_other(left, rng), ops=[ast.Eq()], comparators=[right])
            return ast.Compare(left=left, ops=[ast.Eq()], comparators=[_other(right, rng)])
        case ast.Compare(left=left, ops=[operator], comparators=[right]):
            return ast.Compare(left=left, ops=[OPPOSITE[type(operator)]()], comparators=[right])
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return operand
    return ast.UnaryOp(op=ast.Not(), operand=test)


def _is_literal(node: ast.expr) -> bool:
    try:
        ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError):
        return False
    return True


def _other(node: ast.expr, rng: random.Random) -> ast.expr:
    """An expression of another value: a literal near it, or a pair that holds it (nothing equals a pair of itself)."""
    if not _is_literal(node):
        return ast.Tuple(elts=[node, ast.Constant(value=None)], ctx=ast.Load())
    return ast.parse(repr(other_value(ast.literal_eval(node), rng)), mode="eval").body


def other_value(value: Any, rng: random.Random) -> Any:
    """A value of the same kind that is not equal to it.

    >>> other_value([True], random.Random(0)), other_value({}, random.Random(0)), other_value(None, random.Random(0))
    ([False], {0: 0}, 0)
    """
    if value is None:
        return 0
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float, complex)):
        return _other_number(value, rng)
    if isinstance(value, str):
        return _other_text(value, rng)
    if isinstance(value, bytes):
        return _other_text(value.decode("latin-1"), rng).encode("latin-1")
    return _other_container(value, rng)


def _other_number(value: complex, rng: random.Random) -> complex:
    step = rng.choice([-2, -1, 1, 2])
    return value + step if value + step != value else 0.0  # far beyond 2**53 a step does nothing


def _other_text(value: str, rng: random.Random) -> str:
    if not value:
        return rng.choice("abcxyz")
    at = rng.randrange(len(value))
    alphabet = "0123456789" if value[at].isdigit() else "abcdefghijklmnopqrstuvwxyz"
    return value[:at] + rng.choice([c for c in alphabet if c != value[at]]) + value[at + 1 :]


def _other_container(value: Any, rng: random.Random) -> Any:
    if isinstance(value, (set, frozenset)):
        return set(sorted(value, key=repr)[1:]) if value else {0}
    if isinstance(value, dict):
        if not value:
            return {0: 0}
        key = rng.choice(sorted(value, key=repr))
        return {**value, key: other_value(value[key], rng)}
    items = list(value)
    if items:
        at = rng.randrange(len(items))
        items[at] = other_value(items[at], rng)
    else:
        items = [0]
    return type(value)(items)
