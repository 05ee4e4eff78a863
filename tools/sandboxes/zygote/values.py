"""Python values as JSON and back, types kept, for data that crosses the border of a sandbox. Never pickle.

What comes out is built anew of exact builtin types, so an object's own `__eq__`, `__len__` or `__iter__` has no say.
Anything that is not plain data is refused.
"""

from __future__ import annotations

import json
import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

MAX_DEPTH = 64
MAX_HASHED = 5_000  # members of sets and keys of dicts in one value: bounds what colliding hashes can cost the host
SAFE_INT = 2**53


def dumps(value: Any) -> str:
    """Raises TypeError for what is no plain data, ValueError for what is nested too deep (or in itself).

    >>> dumps((1, {2: float("inf")}))
    '{"t":[1,{"d":[[2,{"f":"inf"}]]}]}'
    """
    return json.dumps(_encode(value, 0), separators=(",", ":"), check_circular=False)


def loads(text: str | bytes) -> Any:
    """Raises ValueError for anything that `dumps` would not have written, as far as it matters.

    >>> loads('{"t":[1,{"d":[[2,{"f":"inf"}]]}]}')
    (1, {2: inf})
    """
    try:
        return _decode(json.loads(text), 0, [0])
    except (TypeError, KeyError, IndexError, AttributeError, ArithmeticError, RecursionError, UnicodeDecodeError) as error:
        raise ValueError(f"no valid value: {type(error).__name__}") from None


def _encode(value: Any, depth: int) -> Any:
    if depth > MAX_DEPTH:
        raise ValueError(f"nested deeper than {MAX_DEPTH}, or in itself")
    if value is None or value is True or value is False:
        return value
    if isinstance(value, int):
        exact = int.__int__(value)
        return exact if -SAFE_INT < exact < SAFE_INT else {"i": int.__format__(exact, "x")}
    if isinstance(value, float):
        exact_float = float.__float__(value)
        return exact_float if math.isfinite(exact_float) else {"f": float.__repr__(exact_float)}
    if isinstance(value, str):
        return str.__str__(value)
    return _encode_container(value, depth + 1)


def _encode_container(value: Any, depth: int) -> Any:
    if isinstance(value, list):
        return [_encode(item, depth) for item in list.__iter__(value)]
    if isinstance(value, tuple):
        return {"t": [_encode(item, depth) for item in tuple.__iter__(value)]}
    if isinstance(value, dict):
        return {"d": [[_encode(k, depth), _encode(v, depth)] for k, v in dict.items(value)]}
    if isinstance(value, set):
        return {"s": [_encode(item, depth) for item in set.__iter__(value)]}
    if isinstance(value, frozenset):
        return {"z": [_encode(item, depth) for item in frozenset.__iter__(value)]}
    return _encode_scalar(value)


def _encode_scalar(value: Any) -> Any:
    if isinstance(value, (bytes, bytearray)):
        return {"b": bytes.hex(bytes(memoryview(value)))}
    if isinstance(value, complex):
        return {"c": [_encode(complex.real.__get__(value), 0), _encode(complex.imag.__get__(value), 0)]}
    if type(value) is Decimal:
        return {"n": str(value)}
    if type(value) is Fraction:
        return {"q": [_encode(value.numerator, 0), _encode(value.denominator, 0)]}
    if type(value).__module__ == "numpy" and hasattr(value, "item") and getattr(value, "ndim", 1) == 0:
        return _encode(value.item(), 0)
    raise TypeError(f"a {type(value).__name__} is no plain data")


def _decode(data: Any, depth: int, hashed: list[int]) -> Any:
    if depth > 2 * MAX_DEPTH + 2:  # a level of value is at most two of JSON
        raise ValueError("nested too deep")
    if isinstance(data, list):
        return [_decode(item, depth + 1, hashed) for item in data]
    if not isinstance(data, dict):
        return data
    if len(data) != 1:
        raise ValueError("no valid value")
    ((tag, body),) = data.items()
    if tag in ("t", "s", "z", "d"):
        if not isinstance(body, list):
            raise ValueError("no valid value")
        return _decode_container(tag, body, depth + 1, hashed)
    return _decode_scalar(tag, body, hashed)


def _decode_container(tag: str, body: list[Any], depth: int, hashed: list[int]) -> Any:
    if tag == "t":
        return tuple([_decode(item, depth, hashed) for item in body])
    hashed[0] += len(body)
    if hashed[0] > MAX_HASHED:
        raise ValueError(f"more than {MAX_HASHED} members of sets and keys of dicts")
    if tag == "d":
        return {_decode(key, depth, hashed): _decode(value, depth, hashed) for key, value in body}
    members = [_decode(item, depth, hashed) for item in body]
    return set(members) if tag == "s" else frozenset(members)


def _decode_scalar(tag: str, body: Any, hashed: list[int]) -> Any:
    if tag == "i":
        return int(body, 16)
    if tag == "f":
        return float(body)
    if tag == "b":
        return bytes.fromhex(body)
    if tag == "c":
        return complex(_decode(body[0], 0, hashed), _decode(body[1], 0, hashed))
    if tag == "n":
        return Decimal(body)
    if tag == "q":
        return Fraction(_decode(body[0], 0, hashed), _decode(body[1], 0, hashed))
    raise ValueError(f"no valid value: tag {tag!r}")
