"""Mutants: that a right solution fails each, whatever is drawn, and what each kind of assertion becomes."""

from __future__ import annotations

import random
import unittest

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentrl.tools.graders.mutants import mutant, normal, other_value

PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5) | st.binary(max_size=3)
HASHABLE = st.booleans() | st.integers() | st.text(max_size=3)
VALUES = st.recursive(
    PLAIN | st.sets(HASHABLE, max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.tuples(inner) | st.dictionaries(HASHABLE, inner, max_size=3),
    max_leaves=6,
)


@given(value=VALUES, seed=st.integers(0, 2**32))
@settings(max_examples=50, deadline=None)
def test_another_value_is_never_equal(value, seed):
    assert other_value(value, random.Random(seed)) != value


def body(statement):
    return f"def test_a():\n    {statement}\n"


@pytest.mark.parametrize(
    ("statement", "changed"),
    [
        ("assert f(1) == g(2)", "assert f(1) == (g(2), None)"),
        ("assert f(1) == approx(0.3)", "assert f(1) == (approx(0.3), None)"),
        ("assert f(1) == True", "assert f(1) == False"),
        ("assert f(1) == []", "assert f(1) == [0]"),
        ("assert f(1) != 3", "assert f(1) == 3"),
        ("assert f(1) < 3", "assert f(1) >= 3"),
        ("assert 3 in f(1)", "assert 3 not in f(1)"),
        ("assert f(1) is None", "assert f(1) is not None"),
        ("assert f(1)", "assert not f(1)"),
        ("assert not f(1)", "assert f(1)"),
        ("assert f(1) and f(2)", "assert not (f(1) and f(2))"),
        ("assert 0 < f(1) < 3", "assert not 0 < f(1) < 3"),
        ("with pytest.raises(ValueError): f(1)", "f(1)"),
        ("self.assertEqual(f(1), g(2))", "self.assertEqual(f(1), (g(2), None))"),
        ("self.assertTrue(f(1))", "self.assertFalse(f(1))"),
        ("self.assertAlmostEqual(f(1), 2, delta=9)", "self.assertNotAlmostEqual(f(1), 2, delta=9)"),
        ("f(1)", "f(1)\n    assert 0 == 1"),
    ],
)
def test_what_becomes_of_an_assertion(statement, changed):
    assert mutant(body(statement), "t.py::test_a", random.Random(0)) == body(changed).rstrip()


def test_a_literal_is_changed_on_either_side():
    for statement in ("assert f(1) == 4", "assert 4 == f(1)"):
        changed = mutant(body(statement), "t.py::test_a", random.Random(0))
        assert "f(1)" in changed
        assert "==" in changed
        assert "4" not in changed


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("    if x:\n        return\n    assert f(1)\n", "nothing may run after an early return"),
        ("    yield 1\n    assert f(1)\n", "nor may it be counted on in a generator"),
    ],
)
def test_only_what_is_certain_to_run_is_changed(source, line):
    assert mutant(f"def test_a():\n{source}", "t.py::test_a", random.Random(0)) is None, line


def test_only_the_named_test_is_changed():
    source = normal("class A:\n def test_a(self): assert f(1)\n\nclass B:\n def test_a(self): assert f(1)\n")
    assert mutant(source, "t.py::B::test_a[x]", random.Random(0)) == source.replace("assert f(1)", "assert not f(1)").replace(
        "assert not f(1)", "assert f(1)", 1
    )


@pytest.mark.parametrize("name", ["test_b", "A::test_a", "test_a::test_b"])
def test_what_cannot_be_found_has_no_mutant(name):
    assert mutant(body("assert f(1)"), f"t.py::{name}", random.Random(0)) is None


def test_right_solutions_fail_every_mutant():
    """Run for real, 40 draws each: a test that passes must fail when mutated."""
    sources = [
        body("assert sorted([3, 1]) == [1, 3]\n    assert len('abc') == 3\n    assert 'a' in 'abc'"),
        body("assert {1: 'x'} == dict([(1, 'x')])\n    assert not []\n    assert 10 ** 30 == 1000000 ** 5"),
        body("assert 0.5 == 1 / 2\n    assert 1e300 == 10.0 ** 300\n    assert b'ab' == bytes([97, 98])"),
    ]
    for source in sources:
        run(source)
        for seed in range(40):
            with pytest.raises(AssertionError):
                run(mutant(source, "t.py::test_a", random.Random(seed)))


def run(source):
    names = {"unittest": unittest}
    exec(source, names)
    names["test_a"]()
