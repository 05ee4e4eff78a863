"""The calculator: right results, bounded work, and texts that say what to do instead."""

from __future__ import annotations

import asyncio
import contextlib
import random
from fractions import Fraction

import pytest

from agentrl.registry import find
from agentrl.tool import FunctionTool
from agentrl.tools.calculator import FUNCTIONS, Unfit, calculator, evaluate, show


@pytest.mark.parametrize(
    ("expression", "shown"),
    [
        ("2 + 3 * 4", "14"),
        ("2 ^ 10 - 24", "1000"),
        ("7 / 2", "3.5"),
        ("0.1 + 0.2", "0.3"),
        ("-7 // 2", "-4"),
        ("17 % 5", "2"),
        ("3 × 4 ÷ 6 − 1", "1"),
        ("5 * 3 =", "15"),
        ("2**70", "1180591620717411303424"),
        ("10**400", "1e+400 (a whole number, not shown in full)"),
        ("-(3**700)", "-9.657802141e+333 (a whole number, not shown in full)"),
        ("10**-2", "0.01"),
        ("comb(5, 2) + factorial(5)", "130"),
        ("perm(5, 2)", "20"),
        ("gcd(12, 18) + lcm([4, 6])", "18"),
        ("mean([1, 2, 6])", "3"),
        ("median(1, 2, 6)", "2"),
        ("max(3, 9, 4) - min([3, 9, 4])", "6"),
        ("sum([1, 2, 3])", "6"),
        ("round(2.567, 2)", "2.57"),
        ("round(2.5)", "2"),
        ("round(1234, -2)", "1200"),
        ("log(8, 2) + log10(1000) + ln(e)", "7"),
        ("sqrt(2) * sqrt(2)", "2"),
        ("sin(pi / 6)", "0.5"),
        ("3 < 4", "1"),
        ("1e300 * 1e8", "1e+308"),
    ],
)
def test_values(expression: str, shown: str) -> None:
    assert show(evaluate(expression)) == shown


def test_it_agrees_with_exact_fractions() -> None:
    rng = random.Random(0)
    for _ in range(200):
        parts = [str(rng.randint(1, 99))]
        for _ in range(rng.randint(1, 6)):
            parts += [rng.choice("+-*/"), str(rng.randint(1, 99))]
        exact = eval("".join(f"Fraction({part})" if part.isdigit() else part for part in parts), {"Fraction": Fraction})
        assert evaluate("".join(parts)) == pytest.approx(float(exact), rel=1e-12)


@pytest.mark.parametrize(
    "expression",
    [
        "9**9**9",
        "9**(9**8)",
        "2**40000 * 2",
        "factorial(10**9)",
        "comb(10**9, 10**8)",
        "perm(10**9, 10**8)",
        "lcm(10**5000, 7**5000)",
        "10**5000 * 10**5000 * 10**5000",
        "(" * 900 + "1" + ")" * 900,
        "-" * 1900 + "1",
        "a" + ".a" * 900,
        "1 + " * 480 + "1",
        "[" * 180 + "]" * 180,
        "round(1.5, 10**9)",
        "1e308 * 10",
        "10**500 / 3",
    ],
)
def test_what_would_take_the_machine_is_refused_at_once(expression: str) -> None:
    with pytest.raises(Unfit):
        evaluate(expression)


@pytest.mark.parametrize(
    ("expression", "told"),
    [
        ("1,000 * 3", "A number has no commas: 1000, not 1,000"),
        ("[1, 2]", "the expression gives a list"),
        ("[1] * 9", r"'\[1\]' is a list, not a number"),
        ("1 / 0", "1 / 0 divides by zero"),
        ("sqrt(-1)", r"sqrt\(...\): "),
        ("(-8) ** 0.5", "is no real number"),
        ("sqr(4)", "there is no function 'sqr'; did you mean 'sqrt'"),
        ("p + 1", "there is no 'p'"),
        ("12 apples", "this is no arithmetic expression: invalid syntax"),
        ("", "this is no arithmetic expression"),
        ("1" * 2001, "the expression has 2001 characters; 2000 at most"),
        ("'a' * 3", "\"'a'\" cannot be calculated"),
        ("__import__('os')", "cannot be calculated"),
        ("(1).real", "cannot be calculated"),
        ("[x for x in [1]]", "cannot be calculated"),
        ("(lambda: 1)()", "cannot be calculated"),
        ("sum([1], start=2)", "cannot be calculated"),
        ("1 if 2 else 3", "cannot be calculated"),
        ("max()", r"max\(...\): "),
        ("log(0)", r"log\(...\): "),
        ("atan2(1)", r"atan2\(...\): "),
        ("sqrt([4])", r"sqrt\(...\): "),
        ("factorial(2.5)", r"factorial\(...\): "),
        ("2**0.5**-9999999", "is too large"),
    ],
)
def test_what_cannot_be_calculated_is_explained(expression: str, told: str) -> None:
    with pytest.raises(Unfit, match=told):
        evaluate(expression)


def test_every_function_survives_every_kind_of_argument() -> None:
    for name in FUNCTIONS:
        for given in ("", "2", "-1", "0.5", "10**300", "[1, 2]", "2, 3", "-2, 5", "10**4000, 10**4000", "[]", "1, 2, 3"):
            with contextlib.suppress(Unfit):
                assert show(evaluate(f"{name}({given})"))


def test_as_a_tool() -> None:
    tool = FunctionTool(find("tool", "calculator"))
    assert tool.function is calculator
    assert tool.spec.parallel
    result = asyncio.run(tool({"expression": "6 * 7"}, {}))
    assert (result.text, result.is_error) == ("42", False)
    assert asyncio.run(tool({"expression": "1 / 0"}, {})).text == "Error: 1 / 0 divides by zero"
