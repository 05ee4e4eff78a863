"""Level 1: one expression. Data only; see family.py."""

from __future__ import annotations

from random import Random
from typing import Any

from .family import Args, Family
from .kinds import AFFIXES, LETTERS, MARKS, WORDS

SMALL = range(2, 10)
CONSTANTS = range(2, 100)


def _near(rng: Random, k: int, **_: Any) -> Args:
    return (k + rng.choice((-40, -9, -2, -1, 0, 1, 2, 7, 30)) + rng.randint(-1, 1),)


def _multiples(rng: Random, k: int, **_: Any) -> Args:
    return (k * rng.randint(-5, 9) + rng.choice((0, 0, 1, -1, rng.randint(1, 40))),)


def _around(rng: Random, low: int, high: int) -> Args:
    return (rng.choice((low, high, rng.randint(low - 30, low), rng.randint(low, high), rng.randint(high, high + 30))),)


def _with_letter(rng: Random, c: str, **_: Any) -> Args:
    having = [word for word in WORDS if c in word]
    return (" ".join(rng.choices((rng.choice(having), rng.choice(WORDS)), k=rng.choice((1, 1, 2)))),)


def _prefixed(rng: Random, affix: str) -> Args:
    word = rng.choice(WORDS)
    return (rng.choice((affix + word, affix + word, word, word + affix, affix)),)


def _suffixed(rng: Random, affix: str) -> Args:
    word = rng.choice(WORDS)
    return (rng.choice((word + affix, word + affix, word, affix + word, affix)),)


def _separated(rng: Random, sep: str) -> Args:
    return (sep.join(rng.choices(WORDS, k=rng.randint(1, 4))),)


FAMILIES = (
    Family(
        name="add_constant",
        level=1,
        functions=("add_number", "increase", "add_to"),
        signature="x: int",
        params={"k": CONSTANTS},
        prompts=("Return x plus {k}.", "Add {k} to x and return the sum.", "Return the number that is {k} more than x."),
        body="return x + {k}",
    ),
    Family(
        name="subtract_constant",
        level=1,
        functions=("subtract_number", "decrease", "take_away"),
        signature="x: int",
        params={"k": CONSTANTS},
        prompts=(
            "Return x minus {k}.",
            "Subtract {k} from x and return the result.",
            "Return the number that is {k} less than x.",
        ),
        body="return x - {k}",
    ),
    Family(
        name="subtract_from",
        level=1,
        functions=("subtract_from", "remaining", "left_over"),
        signature="x: int",
        params={"k": CONSTANTS},
        prompts=(
            "Return {k} minus x.",
            "Subtract x from {k} and return the result.",
            "Return what is left of {k} after x is taken away.",
        ),
        body="return {k} - x",
    ),
    Family(
        name="multiply_constant",
        level=1,
        functions=("multiply_number", "scale", "times"),
        signature="x: int",
        params={"k": CONSTANTS},
        prompts=("Return x times {k}.", "Multiply x by {k} and return the product.", "Return {k} times the number x."),
        body="return x * {k}",
    ),
    Family(
        name="remainder",
        level=1,
        functions=("remainder", "modulo", "left_after_division"),
        signature="x: int",
        params={"k": range(2, 60)},
        prompts=(
            "Return the remainder of x divided by {k}.",
            "Return x modulo {k}.",
            "Divide x by {k} and return the remainder.",
        ),
        body="return x % {k}",
    ),
    Family(
        name="floor_divide",
        level=1,
        functions=("divide", "whole_parts", "floor_divide"),
        signature="x: int",
        params={"k": range(2, 60)},
        prompts=(
            "Return x divided by {k}, rounded down.",
            "Return how many whole times {k} fits in x, using floor division.",
            "Divide x by {k} with integer division.",
        ),
        body="return x // {k}",
        inputs=lambda rng, k: (rng.randint(-2, 9) * k + rng.randint(0, k - 1),),
    ),
    Family(
        name="at_least",
        level=1,
        functions=("is_at_least", "reaches", "is_enough"),
        signature="x: int",
        params={"k": CONSTANTS},
        prompts=(
            "Return True if x is at least {k}, else False.",
            "Return whether x is greater than or equal to {k}.",
            "Return True when x is {k} or more, otherwise False.",
        ),
        body="return x >= {k}",
        inputs=_near,
    ),
    Family(
        name="less_than",
        level=1,
        functions=("is_less", "is_below", "is_smaller"),
        signature="x: int",
        params={"k": CONSTANTS},
        prompts=(
            "Return True if x is less than {k}, else False.",
            "Return whether x is below {k}.",
            "Return True when x is smaller than {k}, otherwise False.",
        ),
        body="return x < {k}",
        inputs=_near,
    ),
    Family(
        name="divisible",
        level=1,
        functions=("is_divisible", "is_multiple", "divides_evenly"),
        signature="x: int",
        params={"k": range(2, 60)},
        prompts=(
            "Return True if x is divisible by {k}, else False.",
            "Return whether x is a multiple of {k}.",
            "Return True when {k} divides x evenly, otherwise False.",
        ),
        body="return x % {k} == 0",
        inputs=_multiples,
    ),
    Family(
        name="between",
        level=1,
        functions=("is_between", "in_range", "is_inside"),
        signature="x: int",
        params={"low": range(-20, 20), "high": range(25, 90)},
        prompts=(
            "Return True if x is between {low} and {high}, both included, else False.",
            "Return whether x is at least {low} and at most {high}.",
        ),
        body="return {low} <= x <= {high}",
        inputs=_around,
    ),
    Family(
        name="larger_of",
        level=1,
        functions=("larger", "maximum", "at_minimum"),
        signature="x: int",
        params={"k": CONSTANTS},
        prompts=("Return the larger of x and {k}.", "Return the maximum of x and {k}.", "Return x, but never less than {k}."),
        body="return max(x, {k})",
        inputs=_near,
    ),
    Family(
        name="smaller_of",
        level=1,
        functions=("smaller", "minimum", "at_maximum"),
        signature="x: int",
        params={"k": CONSTANTS},
        prompts=("Return the smaller of x and {k}.", "Return the minimum of x and {k}.", "Return x, but never more than {k}."),
        body="return min(x, {k})",
        inputs=_near,
    ),
    Family(
        name="distance",
        level=1,
        functions=("distance", "how_far", "gap_to"),
        signature="x: int",
        params={"k": CONSTANTS},
        prompts=(
            "Return the absolute difference of x and {k}.",
            "Return how far x is from {k}, never negative.",
            "Return the distance between x and {k}.",
        ),
        body="return abs(x - {k})",
        inputs=_near,
    ),
    Family(
        name="append_text",
        level=1,
        functions=("append_text", "add_ending", "add_suffix"),
        signature="s: str",
        params={"end": (*AFFIXES, *MARKS)},
        prompts=("Return s followed by {end!r}.", "Append {end!r} to s.", "Add {end!r} to the end of s."),
        body="return s + {end!r}",
    ),
    Family(
        name="prepend_text",
        level=1,
        functions=("prepend_text", "add_start", "add_prefix"),
        signature="s: str",
        params={"start": (*AFFIXES, *MARKS)},
        prompts=("Return {start!r} followed by s.", "Put {start!r} in front of s.", "Add {start!r} to the start of s."),
        body="return {start!r} + s",
    ),
    Family(
        name="join_two",
        level=1,
        functions=("join_two", "combine", "link"),
        signature="a: str, b: str",
        params={"sep": (*MARKS, *AFFIXES)},
        prompts=("Return a and b joined by {sep!r}.", "Return a, then {sep!r}, then b, as one string."),
        body="return a + {sep!r} + b",
    ),
    Family(
        name="replace_letter",
        level=1,
        functions=("replace_letter", "swap_letter", "substitute"),
        signature="s: str",
        params={"c": LETTERS, "d": MARKS},
        prompts=("Replace every {c!r} in s with {d!r}.", "Return s with each {c!r} changed to {d!r}."),
        body="return s.replace({c!r}, {d!r})",
        inputs=_with_letter,
    ),
    Family(
        name="contains",
        level=1,
        functions=("contains", "has_letter", "includes"),
        signature="s: str",
        params={"c": tuple(LETTERS)},
        prompts=("Return True if s contains {c!r}, else False.", "Return whether {c!r} occurs in s."),
        body="return {c!r} in s",
        inputs=_with_letter,
    ),
    Family(
        name="starts_with",
        level=1,
        functions=("starts_with", "has_prefix", "begins"),
        signature="s: str",
        params={"affix": AFFIXES},
        prompts=("Return True if s starts with {affix!r}, else False.", "Return whether s begins with {affix!r}."),
        body="return s.startswith({affix!r})",
        inputs=_prefixed,
    ),
    Family(
        name="ends_with",
        level=1,
        functions=("ends_with", "has_suffix", "finishes"),
        signature="s: str",
        params={"affix": AFFIXES},
        prompts=("Return True if s ends with {affix!r}, else False.", "Return whether the end of s is {affix!r}."),
        body="return s.endswith({affix!r})",
        inputs=_suffixed,
    ),
    Family(
        name="longer_than",
        level=1,
        functions=("is_longer", "is_long", "exceeds"),
        signature="s: str",
        params={"k": range(2, 14)},
        prompts=(
            "Return True if s has more than {k} characters, else False.",
            "Return whether the length of s is greater than {k}.",
        ),
        body="return len(s) > {k}",
        inputs=lambda rng, k: (" ".join(rng.choices(WORDS, k=4))[: rng.randint(1, 2 * k)],),
    ),
    Family(
        name="join_words",
        level=1,
        functions=("join_words", "join_all", "connect"),
        signature="words: list[str]",
        params={"sep": (*MARKS, *AFFIXES)},
        prompts=("Join the words with {sep!r} between them.", "Return all words as one string, separated by {sep!r}."),
        body="return {sep!r}.join(words)",
    ),
    Family(
        name="split_text",
        level=1,
        functions=("split_text", "parts", "pieces"),
        signature="s: str",
        params={"sep": (*MARKS, ",")},
        prompts=("Split s at {sep!r} and return the list of parts.", "Return the list of parts of s separated by {sep!r}."),
        body="return s.split({sep!r})",
        inputs=_separated,
    ),
    Family(
        name="repeat",
        level=1,
        functions=("repeat", "repeat_text", "copies"),
        signature="s: str",
        params={"k": range(2, 12)},
        prompts=("Return s repeated {k} times.", "Repeat s {k} times."),
        body="return s * {k}",
        inputs=lambda rng, k: (rng.choice(WORDS),),
    ),
    Family(
        name="first_letters",
        level=1,
        functions=("first_letters", "start_of", "head"),
        signature="s: str",
        params={"k": range(2, 12)},
        prompts=("Return the first {k} characters of s.", "Cut s to its first {k} characters."),
        body="return s[:{k}]",
    ),
    Family(
        name="last_letters",
        level=1,
        functions=("last_letters", "end_of", "tail"),
        signature="s: str",
        params={"k": range(2, 12)},
        prompts=("Return the last {k} characters of s.", "Cut s to its last {k} characters."),
        body="return s[-{k}:]",
    ),
    Family(
        name="drop_letters",
        level=1,
        functions=("drop_letters", "skip_start", "without_start"),
        signature="s: str",
        params={"k": range(2, 12)},
        prompts=("Return s without its first {k} characters.", "Drop the first {k} characters of s."),
        body="return s[{k}:]",
    ),
    Family(
        name="occurrences",
        level=1,
        functions=("count_letter", "how_many", "occurrences"),
        signature="s: str",
        params={"c": tuple(LETTERS)},
        prompts=("Return the number of times {c!r} occurs in s.", "Count the letter {c!r} in s."),
        body="return s.count({c!r})",
        inputs=_with_letter,
    ),
)
