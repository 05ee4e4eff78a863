"""Arguments of generated functions: how a value of each kind is drawn, its edge cases, and the fixed probes by which two
functions are told apart. Not here: the functions themselves (level1.py to level4.py).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache
from typing import Any

LETTERS = "abcdefghilmnoprstuw"
AFFIXES = ("pre", "un", "re", "ing", "ed", "er", "ly", "est", "sub", "ion", "al", "out", "in", "ab", "ba", "th", "st", "ch")
MARKS = ("!", "?", ".", "-", "_", "*", "#", "~", "+", "/", "=", "@", ":", ";", "|", "&", "%", "^")
_DICTIONARY = """
    apple banana river stone cloud green light house train water paper table music bread storm tiger lemon ocean pencil
    garden window silver summer winter bridge candle forest market pocket rabbit letter button dragon engine island kitten
    level noon radar moss pepper coffee balloon address success hello world data code test python sun moon sky fox cat dog
    presubtest unending reading outstanding subaltern churches thesis stating inches action rested faster abba baobab
"""
WORDS = tuple(_DICTIONARY.split())
"""Lower-case, some with doubled letters, some palindromes, some with the affixes."""

Draw = Callable[[random.Random], Any]


def _integer(rng: random.Random) -> int:
    return rng.randint(-30, 60)


def _text(rng: random.Random) -> str:
    return " ".join(rng.choices(WORDS, k=rng.choice((1, 1, 1, 1, 2, 3))))


def _integers(rng: random.Random) -> list[int]:
    return [rng.randint(-9, 30) for _ in range(rng.randint(2, 7))]


def _words(rng: random.Random) -> list[str]:
    return rng.choices(WORDS, k=rng.randint(2, 5))


def _counts(rng: random.Random) -> dict[str, int]:
    return {word: rng.randint(-9, 30) for word in rng.sample(WORDS, rng.randint(2, 5))}


def _grid(rng: random.Random) -> list[list[int]]:
    width = rng.randint(1, 4)
    return [[rng.randint(-5, 20) for _ in range(width)] for _ in range(rng.randint(1, 4))]


DRAW: dict[str, Draw] = {
    "int": _integer,
    "str": _text,
    "list[int]": _integers,
    "list[str]": _words,
    "dict[str, int]": _counts,
    "list[list[int]]": _grid,
}
EDGES: dict[str, tuple[Any, ...]] = {
    "int": (0, 1, -1, 100),
    "str": ("", "a", "  ", "Aa Bb"),
    "list[int]": ([], [0], [5, 5, 5], [-3, -1]),
    "list[str]": ([], [""], ["a", "a"], ["one", "two three"]),
    "dict[str, int]": ({}, {"a": 0}, {"b": 1, "a": 1}),
    "list[list[int]]": ([], [[1]], [[1, 2], [3, 4]]),
}


@cache
def probes(kinds: tuple[str, ...]) -> tuple[tuple[Any, ...], ...]:
    """A few hundred fixed argument lists of these kinds. They hold every constant that a family's parameters may name."""
    if kinds == ("int",):
        return tuple((n,) for n in range(-25, 106))
    if kinds == ("str",):
        return tuple((text,) for text in _probe_texts())
    rng = random.Random(0)
    if kinds in (("list[int]",), ("list[str]",)):
        longer = ([*range(-10, 31)], [*range(31, 100)]) if kinds == ("list[int]",) else (["x" * n for n in range(20)],)
        return (*((value,) for value in longer), *((DRAW[kinds[0]](rng),) for _ in range(120)))
    edges = [tuple(EDGES[kind][i % len(EDGES[kind])] for kind in kinds) for i in range(4)]
    return (*edges, *(tuple(DRAW[kind](rng) for kind in kinds) for _ in range(120)))


def _probe_texts() -> list[str]:
    rng = random.Random(0)
    affixed = [text for affix in AFFIXES for text in (affix + "x", "x" + affix, affix)]
    lengths = ["x" * n for n in range(1, 31)]
    marked = [f"a{mark}b{mark}{mark}c" for mark in (*MARKS, ",", " ")]
    nested = [text for n in range(1, 7) for text in ("(" * n + ")" * n, "[(" * n + ")]" * n, "()" * n + "]")]
    return [*EDGES["str"], *nested, *WORDS, *affixed, *lengths, *marked, *(_text(rng) for _ in range(40))]
