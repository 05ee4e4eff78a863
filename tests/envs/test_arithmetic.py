"""Exact arithmetic on text, against Python's own, and against texts that would take for ever or break."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrl.envs.arithmetic import Malformed, evaluate, plain, shown


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1 + 2 * 3", 7),
        ("(1 + 2) * 3", 9),
        ("0.1 + 0.2", Fraction(3, 10)),
        ("7 / 2", Fraction(7, 2)),
        ("1,200 × 3", 3600),
        ("12 ÷ 4 − 1", 2),
        ("3 x 4", 12),
        ("$5 + $2.50", Fraction(15, 2)),
        ("[2 + {3}] * 2", 10),
        (r"3 \times \left(2 + 1\right)", 9),
        ("007 + 1", 8),
        ("+5", 5),
    ],
)
def test_values_worked_out_by_hand(text, value):
    assert evaluate(text) == value


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("1 / 0", "division by zero"),
        ("1e400", "too large"),
        ("9" * 299, "too large"),
        ("1" + "+1" * 150, "may have 300 characters"),
        ("", "no expression"),
        ("twelve", "no expression"),
        ("x + 1", "no expression"),
        ("__import__('os')", "no expression"),
        ("[1, 2]", "no expression"),
        ("1 < 2", "no expression"),
        ("9 ** 9", "no expression"),
        ("9 // 2", "no expression"),
        ("15%", "no expression"),
        ("99999999999999999999999 * 99999999999999999999999", "too large"),
        ("1; 2", "no expression"),
        ("1 +", "no expression"),
        ("'a' * 3", "no number"),
        ("True + 1", "no number"),
        ("2j", "no number"),
        ("\x00", "no expression"),
    ],
)
def test_what_cannot_be_worked_out_says_why(text, why):
    with pytest.raises(Malformed, match=why):
        evaluate(text)


NUMBERS = st.integers(0, 999)
SUMS = st.recursive(
    NUMBERS.map(str),
    lambda inner: st.tuples(inner, st.sampled_from(["+", "-", "*", "/"]), inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
    max_leaves=8,
)


@given(SUMS)
def test_agrees_with_python_on_fractions(text):
    import re

    exact = re.sub(r"\d+", lambda match: f"Fraction({match[0]})", text)
    try:
        expected = eval(exact, {"Fraction": Fraction})
    except ZeroDivisionError:
        with pytest.raises(Malformed, match="division by zero"):
            evaluate(text)
        return
    assert evaluate(text) == expected


@given(st.text(max_size=80))
def test_any_text_is_a_value_or_malformed(text):
    try:
        value = evaluate(text)
    except Malformed:
        return
    assert isinstance(value, Fraction)


@given(st.integers(-(10**9), 10**9), st.sampled_from([1, 2, 4, 5, 8, 10, 100, 10**6]))
def test_what_is_shown_can_be_read_back(numerator, denominator):
    value = Fraction(numerator, denominator)
    assert Fraction(shown(value)) == value


def test_what_has_no_end_is_shown_as_a_fraction_too():
    assert shown(Fraction(2, 3)) == "0.666667 (2/3)"
    assert shown(Fraction(-1, 3)) == "-0.333333 (-1/3)"


def test_signs_are_those_of_python():
    assert plain(" 1,234,567 ÷ 3 ") == "1234567 / 3"
    assert plain("1,23") == "1,23"  # groups no thousands
