"""A calculator: arithmetic of a model's expression, with whole numbers exact and everything bounded.

The expression is parsed as Python and walked by hand: names and calls are those of the tables below, nothing is ever run. Sizes
are checked before a number is made, since 9**9**9 would take the machine.
"""

from __future__ import annotations

import ast
import math
import operator
import statistics
from collections.abc import Callable, Mapping
from typing import Any

from agentrl.errors import nearest
from agentrl.tool import ToolError, tool

LONGEST = 2000
"""Characters of an expression."""

MAX_BITS = 20_000
"""Of a whole number: about 6,000 digits, more than any answer needs, and a microsecond to multiply."""

MAX_DIGITS = 300
"""Of a whole number that is shown in full."""

DEPTH = 100
"""Levels of brackets and operators."""

Number = int | float

CONSTANTS: Mapping[str, float] = {"pi": math.pi, "e": math.e, "tau": math.tau}

_SYMBOLS = str.maketrans({"×": "*", "·": "*", "÷": "/", "−": "-", "–": "-", "^": "**"})


class Unfit(ToolError):
    """An expression that cannot be calculated; the text says why."""


@tool(parallel=True)
def calculator(expression: str) -> str:
    """Calculate an arithmetic expression, for instance (17 * 23 - 4) / 3 or sqrt(2) * 10**3.

    Args:
        expression: numbers, + - * / // % ** and brackets, pi, e, sqrt, log, exp, sin, factorial, comb, gcd, round and the like
    """
    return show(evaluate(expression))


def evaluate(expression: str) -> Number:
    """The value of an expression. Raises Unfit.

    >>> evaluate("2^10 - 24"), evaluate("7 / 2"), evaluate("comb(5, 2)")
    (1000, 3.5, 10)
    """
    if len(expression) > LONGEST:
        raise Unfit(f"the expression has {len(expression)} characters; {LONGEST} at most")
    try:
        tree = ast.parse(expression.strip().rstrip("=").translate(_SYMBOLS), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise Unfit(f"this is no arithmetic expression: {getattr(error, 'msg', None) or 'it cannot be read'}") from error
    value = _value(tree.body, DEPTH)
    if isinstance(value, bool):
        return int(value)
    if not isinstance(value, (int, float)):
        raise Unfit("the expression gives a list; put it into sum, min, max or mean. A number has no commas: 1000, not 1,000")
    return value


def show(value: Number) -> str:
    """A number as a person writes it: 12 significant digits, whole ones in full up to 300 digits.

    >>> show(0.1 + 0.2), show(4.0), show(2**70), show(1e100)
    ('0.3', '4', '1180591620717411303424', '1e+100')
    """
    if isinstance(value, float):
        return f"{value:.12g}"
    if value.bit_length() > MAX_DIGITS * 3.32:
        return f"{_leading(value)} (a whole number, not shown in full)"
    return str(value)


def _leading(value: int) -> str:
    """In scientific notation, also beyond what a float holds.

    >>> _leading(10**400)
    '1e+400'
    """
    exponent = math.floor(_log(abs(value), 10))
    return f"{'-' if value < 0 else ''}{10 ** (_log(abs(value), 10) - exponent):.10g}e+{exponent}"


def _value(node: ast.expr, depth: int) -> Any:
    if not depth:
        raise Unfit("the expression is nested too deeply")
    match node:
        case ast.Constant(value=int() | float() as number):  # True and False are ints, and may be compared
            return _sized(number)
        case ast.UnaryOp(op=op, operand=operand) if type(op) in UNARY:
            return UNARY[type(op)](_number(operand, depth - 1))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in BINARY:
            return _binary(op, _number(left, depth - 1), _number(right, depth - 1))
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in COMPARE:
            return COMPARE[type(op)](_number(left, depth - 1), _number(right, depth - 1))
        case ast.Tuple(elts=items) | ast.List(elts=items):
            return [_number(item, depth - 1) for item in items]
        case ast.Name(id=name):
            if name not in CONSTANTS:
                raise Unfit(f"there is no {name!r}; {nearest(name, [*CONSTANTS, *FUNCTIONS])}")
            return CONSTANTS[name]
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]):
            return _call(name, [_value(argument, depth - 1) for argument in arguments])
    raise Unfit(f"{_text(node)} cannot be calculated; use numbers, + - * / // % ** and functions such as sqrt(2)")


def _number(node: ast.expr, depth: int) -> Number:
    value = _value(node, depth)
    if isinstance(value, list):
        raise Unfit(f"{_text(node)} is a list, not a number; a number has no commas: 1000, not 1,000")
    number: Number = value
    return number


def _text(node: ast.expr) -> str:
    try:
        return repr(ast.unparse(node)[:60])
    except RecursionError:
        return "this"


def _binary(op: ast.operator, left: Number, right: Number) -> Number:
    if isinstance(op, ast.Pow):
        return power(left, right)
    what = f"{left:.6g} {SIGNS[type(op)]} {right:.6g}" if abs(left) < 1e15 and abs(right) < 1e15 else "the result"
    return _guarded(what, BINARY[type(op)], left, right)


def power(base: Number, exponent: Number) -> Number:
    """Raises Unfit before a number that is too large is made.

    >>> power(2, 10), power(4, 0.5)
    (1024, 2.0)
    """
    if isinstance(base, int) and isinstance(exponent, int) and exponent >= 0:
        if abs(base) > 1 and exponent * base.bit_length() > 2 * MAX_BITS:
            raise Unfit("the result has too many digits")
        return _sized(base**exponent)
    return _guarded("the power", operator.pow, base, exponent)


def _call(name: str, arguments: list[Any]) -> Number:
    function = FUNCTIONS.get(name)
    if function is None:
        raise Unfit(f"there is no function {name!r}; {nearest(name, FUNCTIONS)}")
    return _guarded(f"{name}(...)", function, *arguments)


def _guarded(what: str, function: Callable[..., Any], *arguments: Any) -> Number:
    """Calls it; whatever arithmetic can raise becomes a text for the model."""
    try:
        result = function(*arguments)
    except ZeroDivisionError:
        raise Unfit(f"{what} divides by zero") from None
    except OverflowError:
        raise Unfit(f"{what} is too large") from None
    except (ValueError, TypeError, statistics.StatisticsError) as error:
        raise Unfit(f"{what}: {error}") from None
    if isinstance(result, complex):
        raise Unfit(f"{what} is no real number")
    return _sized(result)


def _sized(value: Number) -> Number:
    if isinstance(value, int) and value.bit_length() > MAX_BITS:
        raise Unfit("the result has too many digits")
    if isinstance(value, float) and not math.isfinite(value):
        raise Unfit("the result is too large")
    return value


def _log(x: Number, base: Number = math.e) -> float:
    """Exact for powers of 2 and 10; whole numbers may be larger than a float."""
    if base in (2, 10):
        return math.log2(x) if base == 2 else math.log10(x)
    return math.log(x) if base == math.e else math.log(x, base)


def _factorial(n: int) -> int:
    if isinstance(n, int) and n > 2000:
        raise Unfit("factorial takes at most 2000")
    return math.factorial(n)


def _choose(function: Callable[[int, int], int]) -> Callable[[int, int], int]:
    def bounded(n: int, k: int) -> int:
        if isinstance(n, int) and isinstance(k, int) and min(k, abs(n)) * abs(n).bit_length() > 2 * MAX_BITS:
            raise Unfit("the result has too many digits")
        return function(n, k)

    return bounded


def _round(x: Number, digits: int = 0) -> Number:
    if not isinstance(digits, int) or abs(digits) > 30:
        raise Unfit("round takes a whole number of at most 30 digits")
    return round(x, digits) if digits > 0 else int(round(x, digits))


def _listed(function: Callable[[list[Number]], Any]) -> Callable[..., Any]:
    """Takes several numbers, or one list of them."""

    def applied(*values: Any) -> Any:
        given = values[0] if len(values) == 1 and isinstance(values[0], list) else list(values)
        return function(given)

    return applied


def _spread(function: Callable[..., int]) -> Callable[[list[Number]], int]:
    return lambda values: function(*values)


UNARY: Mapping[type, Callable[[Any], Any]] = {ast.UAdd: operator.pos, ast.USub: operator.neg}
BINARY: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: power,
}
SIGNS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%"}
COMPARE: Mapping[type, Callable[[Any, Any], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    **{name: getattr(math, name) for name in ("sqrt", "exp", "sin", "cos", "tan", "asin", "acos", "atan", "atan2", "hypot")},
    **{name: getattr(math, name) for name in ("sinh", "cosh", "tanh", "degrees", "radians", "floor", "ceil", "isqrt", "cbrt")},
    "abs": abs,
    "round": _round,
    "log": _log,
    "ln": math.log,
    "log2": math.log2,
    "log10": math.log10,
    "pow": power,
    "factorial": _factorial,
    "comb": _choose(math.comb),
    "perm": _choose(math.perm),
    "gcd": _listed(_spread(math.gcd)),
    "lcm": _listed(_spread(math.lcm)),
    "min": _listed(min),
    "max": _listed(max),
    "sum": _listed(sum),
    "mean": _listed(statistics.mean),
    "median": _listed(statistics.median),
    "stdev": _listed(statistics.stdev),
}
