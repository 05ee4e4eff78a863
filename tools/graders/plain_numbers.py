"""Plain numbers as people write answers: 1,234.5, -3/4, \\frac{1}{2}, 50%, $12. Exact; nothing is evaluated."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from fractions import Fraction

LONGEST = 60  # characters: 10**60 is beyond any answer, and what is longer is left to others
REL_TOL = 1e-6
NUMBER = r"(?:\d{1,3}(?:(?:,|\{,\})\d{3})+|\d+)(?:\.\d+)?|\.\d+"
PLAIN = re.compile(rf"([+-]?)\s*(?:\\?\$)?\s*({NUMBER})(?:\s*/\s*({NUMBER}))?\s*(\\?%)?")
FRACTION = re.compile(rf"([+-]?)\s*\\[dt]?frac\s*\{{\s*([+-]?(?:{NUMBER}))\s*\}}\s*\{{\s*([+-]?(?:{NUMBER}))\s*\}}\s*(\\?%)?")
WRAPPING = (("$", "$"), (r"\(", r"\)"), (r"\[", r"\]"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """A number and how it was written.

    >>> parse("50%")
    Number(value=Fraction(1, 2), is_decimal=False, is_percent=True)
    """

    value: Fraction
    is_decimal: bool = False
    is_percent: bool = False


def parse(text: str) -> Number | None:
    """None for what is no plain number.

    >>> parse(r"$-\\frac{1}{2}$").value, parse("1,234.50").value, parse("12,34"), parse("1/0")
    (Fraction(-1, 2), Fraction(2469, 2), None, None)
    """
    text = unwrapped(text).removesuffix(".").replace("−", "-")
    match = PLAIN.fullmatch(text) or FRACTION.fullmatch(text) if len(text) <= LONGEST and text.isascii() else None
    if match is None:
        return None
    sign, above, below, percent = match.groups()
    value, divisor = _fraction(above), _fraction(below or "1")
    if divisor == 0:
        return None
    value = (-value if sign == "-" else value) / divisor / (100 if percent else 1)
    return Number(value=value, is_decimal="." in text, is_percent=bool(percent))


def unwrapped(text: str) -> str:
    """Without white space and the marks of mathematics around it."""
    text = text.strip()
    for opening, closing in WRAPPING:
        if text.startswith(opening) and text.endswith(closing) and len(text) >= len(opening) + len(closing):
            inner = text[len(opening) : -len(closing)]
            if opening not in inner and inner.strip():
                return inner.strip()
    return text


def _fraction(text: str) -> Fraction:
    return Fraction(text.replace("{,}", "").replace(",", ""))


def same(got: Number, want: Number) -> bool:
    """Exactly; within 1e-6 of the expected where one is written as a decimal. The sign of percent may be left out.

    >>> same(parse("0.333333333"), parse("1/3")), same(parse("0.33"), parse("1/3")), same(parse("50"), parse("50%"))
    (True, False, True)
    """
    value = got.value / 100 if want.is_percent and not got.is_percent and got.value != want.value else got.value
    if value == want.value:
        return True
    near = got.is_decimal or want.is_decimal
    return near and math.isclose(value, want.value, rel_tol=REL_TOL, abs_tol=0.0)
