"""The values of simple Python expressions in test data, computed without running the data.

Literals, arithmetic, comparisons, list comprehensions, and a few harmless functions. No attributes, so nothing can be
reached from a value; no names but the given ones.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

Names = Mapping[str, Any]

ALLOWED = (
    *(ast.Constant, ast.List, ast.Tuple, ast.Dict, ast.Set, ast.Name, ast.expr_context),
    *(ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.operator, ast.unaryop, ast.boolop, ast.cmpop),
    *(ast.Call, ast.ListComp, ast.comprehension),
)
FUNCTIONS = {f.__name__: f for f in (abs, list, range, str, sum, tuple)}


def evaluate(node: ast.expr, names: Names | None = None) -> Any:
    """The value of an expression. Raises ValueError for anything that is not allowed.

    >>> evaluate(ast.parse("sum([i**2 for i in xs if i > 1])", mode="eval").body, {"xs": [1, 2, 3]})
    13
    """
    for part in ast.walk(node):
        if not isinstance(part, ALLOWED):
            raise ValueError(f"{type(part).__name__} is not allowed in {ast.unparse(node)}")
        if isinstance(part, ast.Call) and not (isinstance(part.func, ast.Name) and part.func.id in FUNCTIONS):
            raise ValueError(f"this function must not be called: {ast.unparse(part)}")
    code = compile(ast.fix_missing_locations(ast.Expression(body=node)), "<expression>", "eval")
    try:
        return eval(code, {"__builtins__": {}, **FUNCTIONS, **(names or {})})
    except NameError as error:
        raise ValueError(f"{error} in {ast.unparse(node)}") from None
