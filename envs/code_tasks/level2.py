"""Level 2: two operations in one expression, on numbers, texts and lists. Data only; see family.py."""

from __future__ import annotations

from random import Random
from typing import Any

from .family import Args, Family
from .kinds import AFFIXES, LETTERS, MARKS, WORDS

SMALL = range(2, 10)
CONSTANTS = range(2, 100)
LIMITS = range(-3, 25)


def _multiples_inside(rng: Random, k: int, **_: Any) -> Args:
    return ([rng.choice((k * rng.randint(-2, 6), rng.randint(-9, 30))) for _ in range(rng.randint(2, 7))],)


def _value_inside(rng: Random, k: int, **_: Any) -> Args:
    return ([rng.choice((k, k, rng.randint(-9, 30), rng.randint(-9, 30))) for _ in range(rng.randint(2, 7))],)


def _initials(rng: Random, c: str, **_: Any) -> Args:
    starting = [word for word in WORDS if word[0] == c]
    return (rng.choices(WORDS, k=rng.randint(1, 3)) + rng.choices(starting or WORDS, k=rng.randint(0, 2)),)


def _with_letter(rng: Random, c: str, **_: Any) -> Args:
    having = [word for word in WORDS if c in word]
    return (" ".join(rng.choices((rng.choice(having), rng.choice(WORDS)), k=rng.choice((1, 1, 2)))),)


def _letters_inside(rng: Random, c: str, **_: Any) -> Args:
    having = [word for word in WORDS if c in word]
    return (rng.choices(WORDS, k=rng.randint(1, 3)) + rng.choices(having, k=rng.randint(0, 2)),)


def _long_list(rng: Random, **_: Any) -> Args:
    return ([rng.randint(-9, 30) for _ in range(rng.randint(3, 10))],)


FAMILIES = (
    Family(
        name="linear",
        level=2,
        functions=("linear", "transform", "total_cost"),
        signature="x: int",
        params={"a": SMALL, "b": range(1, 60)},
        prompts=("Return {a} times x plus {b}.", "Multiply x by {a}, then add {b}.", "Return {b} more than {a} times x."),
        body="return {a} * x + {b}",
    ),
    Family(
        name="add_then_multiply",
        level=2,
        functions=("add_then_multiply", "combine", "compute"),
        signature="x: int",
        params={"a": SMALL, "b": range(1, 30)},
        prompts=(
            "Add {b} to x, then multiply by {a}.",
            "Return (x plus {b}) times {a}.",
            "Return {a} times the sum of x and {b}.",
        ),
        body="return (x + {b}) * {a}",
    ),
    Family(
        name="square_plus",
        level=2,
        functions=("square_plus", "square_and_add", "quadratic"),
        signature="x: int",
        params={"k": CONSTANTS},
        prompts=("Return the square of x plus {k}.", "Square x, then add {k}.", "Return x squared plus {k}."),
        body="return x * x + {k}",
    ),
    Family(
        name="sum_of_two_plus",
        level=2,
        functions=("add_both", "sum_plus", "add_numbers"),
        signature="a: int, b: int",
        params={"k": CONSTANTS},
        prompts=("Return the sum of a and b plus {k}.", "Add a, b and {k}.", "Return a plus b plus {k}."),
        body="return a + b + {k}",
    ),
    Family(
        name="product_of_two_plus",
        level=2,
        functions=("multiply_both", "product_plus", "multiply_and_add"),
        signature="a: int, b: int",
        params={"k": CONSTANTS},
        prompts=("Return the product of a and b plus {k}.", "Multiply a by b, then add {k}.", "Return a times b plus {k}."),
        body="return a * b + {k}",
    ),
    Family(
        name="difference_times",
        level=2,
        functions=("difference", "scaled_difference", "gap"),
        signature="a: int, b: int",
        params={"k": CONSTANTS},
        prompts=(
            "Return a minus b, times {k}.",
            "Subtract b from a, then multiply by {k}.",
            "Return {k} times the difference a - b.",
        ),
        body="return (a - b) * {k}",
    ),
    Family(
        name="repeat_text",
        level=2,
        functions=("repeat", "repeat_text", "copies"),
        signature="s: str",
        params={"k": range(2, 5), "end": MARKS},
        prompts=("Return s repeated {k} times, followed by {end!r}.", "Repeat s {k} times, then append {end!r}."),
        body="return s * {k} + {end!r}",
    ),
    Family(
        name="wrap_text",
        level=2,
        functions=("wrap", "surround", "decorate"),
        signature="s: str",
        params={"start": MARKS, "end": MARKS},
        prompts=("Return {start!r}, then s, then {end!r}, as one string.", "Put {start!r} before s and {end!r} after it."),
        body="return {start!r} + s + {end!r}",
    ),
    Family(
        name="first_characters",
        level=2,
        functions=("first_characters", "start_of", "head"),
        signature="s: str",
        params={"k": range(2, 9), "end": MARKS},
        prompts=("Return the first {k} characters of s followed by {end!r}.", "Cut s to {k} characters, then append {end!r}."),
        body="return s[:{k}] + {end!r}",
    ),
    Family(
        name="last_characters",
        level=2,
        functions=("last_characters", "end_of", "tail"),
        signature="s: str",
        params={"k": range(2, 9), "start": MARKS},
        prompts=(
            "Return {start!r} followed by the last {k} characters of s.",
            "Take the last {k} characters of s and put {start!r} in front.",
        ),
        body="return {start!r} + s[-{k}:]",
    ),
    Family(
        name="reverse_text",
        level=2,
        functions=("reverse", "backwards", "flip"),
        signature="s: str",
        params={"end": (*MARKS, *AFFIXES)},
        prompts=("Return s reversed, followed by {end!r}.", "Reverse s, then append {end!r}."),
        body="return s[::-1] + {end!r}",
    ),
    Family(
        name="upper_text",
        level=2,
        functions=("shout", "upper", "to_capitals"),
        signature="s: str",
        params={"end": (*MARKS, *AFFIXES)},
        prompts=("Return s in upper case, followed by {end!r}.", "Make s upper case, then append {end!r}."),
        body="return s.upper() + {end!r}",
    ),
    Family(
        name="count_letter",
        level=2,
        functions=("count_letter", "how_many", "occurrences"),
        signature="s: str",
        params={"c": LETTERS, "k": range(1, 6)},
        prompts=("Return the number of times {c!r} occurs in s, plus {k}.", "Count the letter {c!r} in s and add {k}."),
        body="return s.count({c!r}) + {k}",
        inputs=_with_letter,
    ),
    Family(
        name="length_times",
        level=2,
        functions=("length_times", "scaled_length", "size_of"),
        signature="s: str",
        params={"k": CONSTANTS},
        prompts=("Return the length of s times {k}.", "Multiply the number of characters in s by {k}."),
        body="return len(s) * {k}",
    ),
    Family(
        name="sum_list_plus",
        level=2,
        functions=("sum_plus", "total", "add_all"),
        signature="xs: list[int]",
        params={"k": CONSTANTS},
        prompts=("Return the sum of the list xs plus {k}.", "Add all numbers in xs, then add {k}."),
        body="return sum(xs) + {k}",
    ),
    Family(
        name="keep_greater",
        level=2,
        functions=("keep_greater", "above", "filter_large"),
        signature="xs: list[int]",
        params={"k": LIMITS},
        prompts=("Return the list of numbers in xs that are greater than {k}.", "Keep only the numbers above {k}."),
        body="return [x for x in xs if x > {k}]",
    ),
    Family(
        name="keep_multiples",
        level=2,
        functions=("keep_multiples", "multiples_only", "filter_multiples"),
        signature="xs: list[int]",
        params={"k": range(2, 13)},
        prompts=("Return the numbers in xs that are divisible by {k}, as a list.", "Keep only the multiples of {k}."),
        body="return [x for x in xs if x % {k} == 0]",
        inputs=_multiples_inside,
    ),
    Family(
        name="scale_all",
        level=2,
        functions=("scale_all", "multiply_all", "times_each"),
        signature="xs: list[int]",
        params={"a": SMALL, "b": range(1, 20)},
        prompts=(
            "Return a list with each number in xs times {a}, plus {b}.",
            "Multiply every number by {a} and add {b}; return the new list.",
        ),
        body="return [{a} * x + {b} for x in xs]",
    ),
    Family(
        name="count_greater",
        level=2,
        functions=("count_greater", "how_many_above", "count_large"),
        signature="xs: list[int]",
        params={"k": LIMITS},
        prompts=("Return how many numbers in xs are greater than {k}.", "Count the numbers above {k}."),
        body="return len([x for x in xs if x > {k}])",
    ),
    Family(
        name="sum_of_multiples",
        level=2,
        functions=("sum_multiples", "total_multiples", "add_multiples"),
        signature="xs: list[int]",
        params={"k": range(2, 13)},
        prompts=("Return the sum of the numbers in xs that are divisible by {k}.", "Add up only the multiples of {k}."),
        body="return sum(x for x in xs if x % {k} == 0)",
        inputs=_multiples_inside,
    ),
    Family(
        name="sum_of_squares_plus",
        level=2,
        functions=("sum_squares", "square_sum", "squares_total"),
        signature="xs: list[int]",
        params={"k": range(1, 60)},
        prompts=("Return the sum of the squares of xs, plus {k}.", "Square every number, add them all up, then add {k}."),
        body="return sum(x * x for x in xs) + {k}",
    ),
    Family(
        name="first_items",
        level=2,
        functions=("first_sorted", "smallest", "lowest"),
        signature="xs: list[int]",
        params={"k": range(1, 7)},
        prompts=("Return the {k} smallest numbers in rising order.", "Sort xs and return the first {k} numbers."),
        body="return sorted(xs)[:{k}]",
        inputs=_long_list,
    ),
    Family(
        name="top_items",
        level=2,
        functions=("top", "largest", "highest"),
        signature="xs: list[int]",
        params={"k": range(1, 7)},
        prompts=("Return the {k} largest numbers, largest first.", "Sort xs from high to low and return the first {k}."),
        body="return sorted(xs, reverse=True)[:{k}]",
        inputs=_long_list,
    ),
    Family(
        name="rotate_left",
        level=2,
        functions=("rotate", "rotate_left", "shift"),
        signature="xs: list[int]",
        params={"k": range(1, 6), "b": range(4)},
        prompts=(
            "Move the first {k} items to the end and add {b} to every item.",
            "Rotate xs left by {k}, then add {b} to each number.",
        ),
        body="return [x + {b} for x in xs[{k}:] + xs[:{k}]]",
        inputs=lambda rng, k, b: ([rng.randint(-9, 30) for _ in range(k + rng.randint(0, 4))],),
        edges=(([],), ([1],), ([4, 4],)),
    ),
    Family(
        name="every_nth",
        level=2,
        functions=("every_nth", "skip", "thin_out"),
        signature="xs: list[int]",
        params={"k": range(2, 6), "start": range(4)},
        prompts=(
            "Return every item whose index is {start}, {start}+{k}, {start}+2*{k}, and so on.",
            "Starting at index {start}, take every {k}th item of xs.",
        ),
        body="return xs[{start}::{k}]",
        inputs=_long_list,
    ),
    Family(
        name="remove_value",
        level=2,
        functions=("remove_value", "without", "drop_value"),
        signature="xs: list[int]",
        params={"k": range(25)},
        prompts=("Return xs without any {k}.", "Remove every {k} from the list and return it."),
        body="return [x for x in xs if x != {k}]",
        inputs=_value_inside,
    ),
    Family(
        name="positions",
        level=2,
        functions=("positions", "find_all", "indices"),
        signature="xs: list[int]",
        params={"k": range(25)},
        prompts=("Return the list of indexes at which xs holds {k}.", "Return all positions of {k} in xs, from 0."),
        body="return [i for i, x in enumerate(xs) if x == {k}]",
        inputs=_value_inside,
    ),
    Family(
        name="long_words",
        level=2,
        functions=("long_words", "filter_long", "longer_words"),
        signature="words: list[str]",
        params={"k": range(2, 10)},
        prompts=("Return the words with more than {k} letters.", "Keep only words longer than {k} characters."),
        body="return [word for word in words if len(word) > {k}]",
    ),
    Family(
        name="words_starting",
        level=2,
        functions=("count_starting", "words_with_initial", "initial_count"),
        signature="words: list[str]",
        params={"c": tuple(LETTERS), "k": range(1, 6)},
        prompts=(
            "Return {k} times the number of words that start with {c!r}.",
            "Count words starting with {c!r} and multiply by {k}.",
        ),
        body="return {k} * sum(word.startswith({c!r}) for word in words)",
        inputs=_initials,
    ),
    Family(
        name="words_without",
        level=2,
        functions=("words_without", "drop_words", "avoid_letter"),
        signature="words: list[str]",
        params={"c": tuple(LETTERS)},
        prompts=("Return the words that do not contain {c!r}.", "Remove every word that has the letter {c!r}."),
        body="return [word for word in words if {c!r} not in word]",
        inputs=_letters_inside,
    ),
    Family(
        name="mark_words",
        level=2,
        functions=("mark_words", "tag_all", "add_to_each"),
        signature="words: list[str]",
        params={"start": MARKS, "end": AFFIXES},
        prompts=(
            "Put {start!r} before and {end!r} after each word; return the list.",
            "Return the list of {start!r} + word + {end!r}.",
        ),
        body="return [{start!r} + word + {end!r} for word in words]",
    ),
    Family(
        name="lengths",
        level=2,
        functions=("lengths", "word_lengths", "sizes"),
        signature="words: list[str]",
        params={"k": range(1, 40)},
        prompts=(
            "Return the list of the lengths of the words, each plus {k}.",
            "For each word give its length plus {k}, as a list.",
        ),
        body="return [len(word) + {k} for word in words]",
    ),
    Family(
        name="capitalize_join",
        level=2,
        functions=("title_join", "capitalize_all", "headline"),
        signature="words: list[str]",
        params={"sep": MARKS},
        prompts=(
            "Capitalize each word and join them with {sep!r}.",
            "Return the words, first letters upper case, joined by {sep!r}.",
        ),
        body="return {sep!r}.join(word.capitalize() for word in words)",
    ),
    Family(
        name="reverse_words",
        level=2,
        functions=("reverse_words", "word_order", "turn_around"),
        signature="s: str",
        params={"sep": MARKS},
        prompts=(
            "Return the words of s in reverse order, joined by {sep!r}.",
            "Split s into words, reverse them, join with {sep!r}.",
        ),
        body="return {sep!r}.join(reversed(s.split()))",
    ),
    Family(
        name="spread",
        level=2,
        functions=("spread", "value_range", "max_minus_min"),
        signature="xs: list[int]",
        params={"k": range(2, 60)},
        prompts=(
            "Return the largest minus the smallest number, times {k}. An empty list gives 0.",
            "Multiply the difference of maximum and minimum by {k}; 0 if xs is empty.",
        ),
        body="return (max(xs) - min(xs)) * {k} if xs else 0",
    ),
    Family(
        name="unique_sorted",
        level=2,
        functions=("unique_sorted", "distinct", "dedupe"),
        signature="xs: list[int]",
        params={"k": range(26)},
        prompts=("Return the sorted distinct numbers of xs that are not {k}.", "Remove duplicates and every {k}, then sort."),
        body="return sorted(set(xs) - {{{k}}})",
        inputs=_value_inside,
    ),
)
