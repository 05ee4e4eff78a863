"""When is a candidate's value, or text, what was expected. Pure functions of plain data (see sandboxes/zygote/values.py)."""

from __future__ import annotations

import cmath
import math
from typing import Any

REL_TOL, ABS_TOL = 1e-6, 1e-9


def equal(got: Any, want: Any, *, strict_types: bool = False, rel_tol: float = REL_TOL, abs_tol: float = ABS_TOL) -> bool:
    """As Python's ==, for values of exact builtin types, but floats within a tolerance and nan equal to nan.

    With `strict_types`, True is not 1 and 1 is not 1.0.

    >>> equal([1, (0.1 + 0.2, {"a"})], [1.0, (0.3, {"a"})]), equal([1], (1,)), equal(True, 1, strict_types=True)
    (True, False, False)
    """
    rest: dict[str, Any] = {"strict_types": strict_types, "rel_tol": rel_tol, "abs_tol": abs_tol}
    if strict_types and type(got) is not type(want):
        return False
    if isinstance(want, (list, tuple)):
        if type(got) is not type(want) or len(got) != len(want):
            return False
        return all(equal(a, b, **rest) for a, b in zip(got, want, strict=True))
    if isinstance(want, dict):
        if type(got) is not dict or got.keys() != want.keys():
            return False
        return all(equal(got[key], value, **rest) for key, value in want.items())
    if isinstance(want, (float, complex)) or isinstance(got, (float, complex)):
        return _close(got, want, rel_tol, abs_tol)
    return bool(got == want)


def _close(got: Any, want: Any, rel_tol: float, abs_tol: float) -> bool:
    """At least one is a float or complex; the other may be anything."""
    if isinstance(got, (str, bytes)) or isinstance(want, (str, bytes)):
        return False
    try:
        a, b = complex(got), complex(want)
    except (TypeError, ValueError, OverflowError):
        return False
    if cmath.isnan(b) or cmath.isnan(a):
        return cmath.isnan(a) and cmath.isnan(b)
    return cmath.isclose(a, b, rel_tol=rel_tol, abs_tol=abs_tol)


def same_tokens(got: str, want: str, rel_tol: float = REL_TOL) -> bool:
    """
    >>> same_tokens("1 2.5000001\\n", " 1\\n2.5"), same_tokens("1", "1.5"), same_tokens("10", "10 0")
    (True, False, False)
    """
    ours, theirs = got.split(), want.split()
    return len(ours) == len(theirs) and all(a == b or _close_numbers(a, b, rel_tol) for a, b in zip(ours, theirs, strict=True))


def _close_numbers(got: str, want: str, rel_tol: float) -> bool:
    if "." not in want:  # whole numbers and words are exact
        return False
    try:
        return math.isclose(float(got), float(want), rel_tol=rel_tol, abs_tol=ABS_TOL)
    except ValueError:
        return False
