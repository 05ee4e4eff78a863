"""Values across the border: types kept, subclasses stripped, hostile texts refused."""

from __future__ import annotations

import enum
import json
import math
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentrl.tools.sandboxes.zygote import values

SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.complex_numbers()
    | st.fractions() | st.decimals()
)  # fmt: skip
HASHABLE = st.none() | st.booleans() | st.integers() | st.text() | st.binary() | st.tuples(st.integers(), st.text())
PLAIN = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(HASHABLE, inner, max_size=4)
        | st.sets(HASHABLE, max_size=4)
        | st.frozensets(HASHABLE, max_size=4)
    ),
    max_leaves=12,
)


ANY_JSON = st.recursive(
    st.none() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
)


@settings(max_examples=50, deadline=None)
@given(PLAIN)
def test_plain_data_comes_back_the_same(value: Any) -> None:
    assert _same(values.loads(values.dumps(value)), value)


def _same(a: Any, b: Any) -> bool:
    """Type for type; nan is itself. Sets have no order, so repr will not do."""
    if type(a) is not type(b):
        return False
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(_same, a, b))
    if isinstance(a, dict):
        return list(map(repr, a)) == list(map(repr, b)) and all(_same(a[x], b[y]) for x, y in zip(a, b, strict=True))
    if isinstance(a, (set, frozenset)):
        return sorted(map(repr, a)) == sorted(map(repr, b))
    return repr(a) == repr(b)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ((1, [2.5, "x"]), '{"t":[1,[2.5,"x"]]}'),
        ({1: {None}}, '{"d":[[1,{"s":[null]}]]}'),
        (2**53, '{"i":"20000000000000"}'),
        (-(2**70), '{"i":"-400000000000000000"}'),
        (math.nan, '{"f":"nan"}'),
        (-math.inf, '{"f":"-inf"}'),
        (frozenset([True]), '{"z":[true]}'),
        (b"\x00\xff", '{"b":"00ff"}'),
        (1 - 2j, '{"c":[1.0,-2.0]}'),
        (Decimal("1.50"), '{"n":"1.50"}'),
        (Fraction(1, 3), '{"q":[1,3]}'),
    ],
)
def test_the_form_is_fixed(value: Any, text: str) -> None:
    assert values.dumps(value) == text
    assert repr(values.loads(text)) == repr(value)


def test_an_int_of_any_size() -> None:
    big = 7**20_000  # more digits than Python turns into text
    assert values.loads(values.dumps(big)) == big


class Sly(int):
    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = int.__hash__

    def __int__(self) -> int:
        return 42

    def __format__(self, spec: str) -> str:
        return "2a"


class SlyList(list):  # type: ignore[type-arg]
    def __iter__(self) -> Any:
        return iter([42])

    def __len__(self) -> int:
        return 1


class SlyText(str):
    def __str__(self) -> str:
        return "42"


class SlyFloat(float):
    def __float__(self) -> float:
        return 42.0

    def __repr__(self) -> str:
        return "42"


class SlyDict(dict):  # type: ignore[type-arg]
    def items(self) -> Any:
        return [(42, 42)]


class Number(enum.IntEnum):
    ONE = 1


Point = namedtuple("Point", "x y")


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (Sly(7), 7),
        (Sly(2**60), 2**60),
        (SlyList([1, 2]), [1, 2]),
        (SlyText("a"), "a"),
        (SlyFloat(1.5), 1.5),
        (SlyFloat(math.inf), math.inf),
        (SlyDict({1: 2}), {1: 2}),
        (Number.ONE, 1),
        (Point(1, 2), (1, 2)),
        (Counter("aab"), {"a": 2, "b": 1}),
        (defaultdict(list, {1: []}), {1: []}),
        (OrderedDict([(2, 1), (1, 2)]), {2: 1, 1: 2}),
    ],
)
def test_a_subclass_becomes_what_it_is_made_of(value: Any, plain: Any) -> None:
    back = values.loads(values.dumps(value))
    assert type(back) is type(plain)
    assert repr(back) == repr(plain)


def test_numpy_scalars_are_numbers_and_arrays_are_refused() -> None:
    numpy = pytest.importorskip("numpy")
    assert values.loads(values.dumps([numpy.int64(3), numpy.float32(0.5), numpy.bool_(True)])) == [3, 0.5, True]
    with pytest.raises(TypeError, match="ndarray"):
        values.dumps(numpy.zeros(2))


@pytest.mark.parametrize("value", [object(), print, (x for x in ()), deque([1]), range(3), {}.keys(), type, ...])
def test_what_is_no_data_is_refused(value: Any) -> None:
    with pytest.raises(TypeError, match="no plain data"):
        values.dumps([value])


def test_a_value_in_itself_and_one_too_deep() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(ValueError, match="nested deeper"):
        values.dumps(loop)
    deep: Any = 1
    for _ in range(values.MAX_DEPTH):
        deep = (deep,)
    assert values.loads(values.dumps(deep)) == deep
    with pytest.raises(ValueError, match="nested deeper"):
        values.dumps((deep,))


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "nul", '{"t":1}', '{"t":[1],"s":[2]}', "{}", '{"x":[1]}', '{"":[1]}', '{"ts":[1]}', '{"s":[[1]]}',
        '{"d":[[1]]}',
        '{"d":[[[1],1]]}', '{"i":"zz"}', '{"i":3}', '{"f":"x"}', '{"q":[1,0]}', '{"q":[1]}', '{"n":"x"}',
        '{"b":"x"}', '{"c":["a",1]}',
        "[" * 5000, '{"t":[' * 2000, "1" * 5000, b"\xff\xfe\x00",
        '{"s":[' + ",".join(map(str, range(6000))) + "]}",
        '[{"s":[' + ",".join(map(str, range(3000))) + ']},{"d":[' + ",".join(f"[{i},1]" for i in range(3000)) + "]}]",
    ],
)  # fmt: skip
def test_forged_texts_are_refused_without_harm(text: str | bytes) -> None:
    with pytest.raises(ValueError):
        values.loads(text)


@settings(max_examples=50, deadline=None)
@given(ANY_JSON)
def test_any_json_gives_a_value_or_a_value_error(data: Any) -> None:
    try:
        values.dumps(values.loads(json.dumps(data)))
    except ValueError:
        return
