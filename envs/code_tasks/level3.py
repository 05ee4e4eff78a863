"""Level 3: loops, conditions, dictionaries. Data only; see family.py."""

from __future__ import annotations

from random import Random
from typing import Any

from .family import Args, Family
from .kinds import LETTERS, MARKS, WORDS

SMALL = range(2, 10)


def _positive(rng: Random, **_: Any) -> Args:
    return (rng.choice((rng.randint(1, 12), rng.randint(1, 200))),)


def _count(rng: Random, **_: Any) -> Args:
    return (rng.randint(1, 24),)


def _phrase(rng: Random, **_: Any) -> Args:
    return (" ".join(rng.choices(WORDS, k=rng.randint(1, 3))),)


def _runs(rng: Random, **_: Any) -> Args:
    return ("".join(rng.choice("aabbc") * rng.randint(1, 4) for _ in range(rng.randint(1, 4))),)


def _partners(rng: Random, k: int) -> Args:
    drawn = [rng.randint(-5, 25) for _ in range(rng.randint(1, 4))]
    return (drawn + [k - x for x in rng.sample(drawn, rng.randint(0, len(drawn)))],)


FAMILIES = (
    Family(
        name="fizz",
        level=3,
        functions=("fizz", "label", "say_number"),
        signature="x: int",
        params={"a": (2, 3, 4), "b": (5, 7, 9, 11), "u": WORDS[:12], "v": WORDS[12:24]},
        prompts=(
            "Return {u!r} if x is divisible by {a}, else {v!r} if it is divisible by {b}, else str(x).",
            "For multiples of {a} return {u!r}; for other multiples of {b} return {v!r}; otherwise x as text.",
        ),
        body="if x % {a} == 0:\n    return {u!r}\nif x % {b} == 0:\n    return {v!r}\nreturn str(x)",
    ),
    Family(
        name="grade",
        level=3,
        functions=("grade", "rate", "classify"),
        signature="x: int",
        params={"low": range(-5, 15), "high": range(20, 60), "u": WORDS[:8], "v": WORDS[8:16], "w": WORDS[16:24]},
        prompts=(
            "Return {u!r} if x is below {low}, {v!r} if x is below {high}, else {w!r}.",
            "Below {low} the answer is {u!r}; from {low} to below {high} it is {v!r}; otherwise {w!r}.",
        ),
        body="if x < {low}:\n    return {u!r}\nif x < {high}:\n    return {v!r}\nreturn {w!r}",
    ),
    Family(
        name="letter_counts",
        level=3,
        functions=("letter_counts", "frequent_letters", "histogram"),
        signature="s: str",
        params={"k": (1, 2), "skip": tuple(LETTERS)},
        prompts=(
            "Return a dict of each letter of s that occurs at least {k} times to its count. Leave out spaces and {skip!r}.",
            "Count the characters of s except ' ' and {skip!r}; keep counts of {k} or more, as a dict.",
        ),
        body=(
            "counts = {{}}\nfor c in s:\n    if c not in (' ', {skip!r}):\n        counts[c] = counts.get(c, 0) + 1\n"
            "return {{c: n for c, n in counts.items() if n >= {k}}}"
        ),
    ),
    Family(
        name="digit_sum",
        level=3,
        functions=("digit_sum", "sum_digits", "digits_total"),
        signature="n: int",
        params={"k": range(1, 60)},
        prompts=(
            "Return the sum of the decimal digits of abs(n), plus {k}.",
            "Add the digits of n, without its sign, and {k}.",
        ),
        body="return sum(int(d) for d in str(abs(n))) + {k}",
        inputs=lambda rng, k: (rng.choice((rng.randint(0, 99), rng.randint(-5000, 99999))),),
        edges=((0,), (9,), (-10,), (1000,)),
    ),
    Family(
        name="running_total",
        level=3,
        functions=("running_total", "cumulative", "prefix_sums"),
        signature="xs: list[int]",
        params={"start": range(40), "cap": range(45, 90)},
        prompts=(
            "Starting from {start}, return the list of running totals of xs, each cut to at most {cap}.",
            "Keep a total that begins at {start}. Add each x, but never let it exceed {cap}; return all totals.",
        ),
        body=("total = {start}\nout = []\nfor x in xs:\n    total = min(total + x, {cap})\n    out.append(total)\nreturn out"),
    ),
    Family(
        name="steps_until",
        level=3,
        functions=("steps_until", "halving_steps", "count_steps"),
        signature="n: int",
        params={"k": SMALL, "stop": range(1, 12)},
        prompts=(
            "While n is greater than {stop}, replace n by n // {k}. Return the number of steps.",
            "Count how often n must be floor-divided by {k} until it is at most {stop}.",
        ),
        body="steps = 0\nwhile n > {stop}:\n    n //= {k}\n    steps += 1\nreturn steps",
        inputs=lambda rng, k, stop: (rng.choice((rng.randint(-5, 40), rng.randint(1, 100000))),),
        edges=((0,), (1,), (-7,), (12,)),
    ),
    Family(
        name="caesar",
        level=3,
        functions=("caesar", "shift_letters", "encode"),
        signature="s: str",
        params={"k": range(1, 26)},
        prompts=(
            "Shift each lower-case letter of s by {k} places in the alphabet, wrapping from z to a; leave the rest.",
            "Caesar cipher: move letters a-z forward by {k}, with wrap-around; keep other characters.",
        ),
        body="return ''.join(chr((ord(c) - 97 + {k}) % 26 + 97) if 'a' <= c <= 'z' else c for c in s)",
    ),
    Family(
        name="run_lengths",
        level=3,
        functions=("run_lengths", "compress", "encode_runs"),
        signature="s: str",
        params={"sep": MARKS, "k": (1, 2)},
        prompts=(
            "Write each run of equal characters as character + {sep!r} + length, but runs shorter than {k} as they are.",
            "Run-length encode s: a run of n >= {k} equal characters c becomes c{sep}n, a shorter one stays.",
        ),
        body=(
            "out = ''\ni = 0\nwhile i < len(s):\n    j = i\n    while j < len(s) and s[j] == s[i]:\n        j += 1\n"
            "    out += s[i] + {sep!r} + str(j - i) if j - i >= {k} else s[i:j]\n    i = j\nreturn out"
        ),
        inputs=_runs,
        edges=(("",), ("a",), ("abc",), ("aaa",)),
    ),
    Family(
        name="group_by_length",
        level=3,
        functions=("group_by_length", "by_size", "group_words"),
        signature="words: list[str]",
        params={"k": range(2, 6)},
        prompts=(
            "Return a dict from length to the list of words of that length, for lengths of at least {k}.",
            "Group the words that have {k} or more letters by their length, in a dict of lists.",
        ),
        body=(
            "groups = {{}}\nfor word in words:\n    if len(word) >= {k}:\n"
            "        groups.setdefault(len(word), []).append(word)\n"
            "return groups"
        ),
    ),
    Family(
        name="filter_counts",
        level=3,
        functions=("filter_counts", "rich_keys", "keys_above"),
        signature="d: dict[str, int]",
        params={"k": range(-3, 25)},
        prompts=(
            "Return the sorted list of keys whose value is greater than {k}.",
            "List, sorted, all keys of d with values above {k}.",
        ),
        body="return sorted(key for key, value in d.items() if value > {k})",
    ),
    Family(
        name="adjust_counts",
        level=3,
        functions=("adjust_counts", "restock", "update_values"),
        signature="d: dict[str, int]",
        params={"k": range(15), "add": range(1, 20)},
        prompts=(
            "Return a new dict in which values below {k} are raised by {add}; others stay.",
            "Add {add} to each value of d that is less than {k} and return the dict.",
        ),
        body="return {{key: value + {add} if value < {k} else value for key, value in d.items()}}",
    ),
    Family(
        name="invert",
        level=3,
        functions=("invert", "swap_keys", "reverse_lookup"),
        signature="d: dict[str, int]",
        params={"k": range(40)},
        prompts=(
            "Return a dict from each value plus {k} to the sorted list of its keys.",
            "Invert d: map every value, increased by {k}, to the sorted list of keys that have it.",
        ),
        body=("out = {{}}\nfor key, value in sorted(d.items()):\n    out.setdefault(value + {k}, []).append(key)\nreturn out"),
    ),
    Family(
        name="pairs_with_sum",
        level=3,
        functions=("pairs_with_sum", "count_pairs", "matching_pairs"),
        signature="xs: list[int]",
        params={"k": range(40)},
        prompts=(
            "Return the number of index pairs i < j with xs[i] + xs[j] == {k}.",
            "Count pairs of positions whose values add to {k}.",
        ),
        body="return sum(xs[i] + xs[j] == {k} for j in range(len(xs)) for i in range(j))",
        inputs=_partners,
    ),
    Family(
        name="discount",
        level=3,
        functions=("price", "total_price", "discounted"),
        signature="n: int",
        params={"unit": range(3, 20), "k": range(5, 20), "off": range(1, 3)},
        prompts=(
            "An item costs {unit}; each item after the first {k} costs {off} less. Return the price of n items (0 if n < 0).",
            "Return the cost of n items: {unit} each for the first {k}, then {off} less for each further one; 0 if n < 0.",
        ),
        body="if n < 0:\n    return 0\nreturn {unit} * min(n, {k}) + ({unit} - {off}) * max(n - {k}, 0)",
        inputs=lambda rng, unit, k, off: (rng.choice((rng.randint(0, k), rng.randint(k, 3 * k))),),
    ),
    Family(
        name="vowel_replace",
        level=3,
        functions=("mask_vowels", "hide_vowels", "vowels_to"),
        signature="s: str",
        params={"mark": MARKS, "keep": tuple("aeiou")},
        prompts=(
            "Replace each of the vowels a, e, i, o, u in s by {mark!r}, but keep every {keep!r}.",
            "Return s with lower-case vowels other than {keep!r} changed to {mark!r}.",
        ),
        body="return ''.join({mark!r} if c in 'aeiou' and c != {keep!r} else c for c in s)",
    ),
    Family(
        name="multiples_table",
        level=3,
        functions=("table", "sum_of_numbers", "add_multiples_below"),
        signature="n: int",
        params={"a": (2, 3, 4), "b": (5, 7, 9, 11), "sign": (1, -1)},
        prompts=(
            "Return {sign} times the sum of all i with 0 < i < n that are divisible by {a} or by {b}.",
            "Add the positive numbers below n that are multiples of {a} or {b}, and multiply by {sign}.",
        ),
        body="return {sign} * sum(i for i in range(1, n) if i % {a} == 0 or i % {b} == 0)",
        inputs=_positive,
    ),
    Family(
        name="alternate_case",
        level=3,
        functions=("alternate", "wave", "every_upper"),
        signature="s: str",
        params={"k": range(2, 7), "shift": range(2)},
        prompts=(
            "Make the characters at indexes i with i % {k} == {shift} upper case, leave the others.",
            "Return s with upper case at every index whose remainder by {k} is {shift}.",
        ),
        body="return ''.join(c.upper() if i % {k} == {shift} else c for i, c in enumerate(s))",
        inputs=_phrase,
    ),
    Family(
        name="draw_triangle",
        level=3,
        functions=("triangle", "stairs", "draw"),
        signature="n: int",
        params={"mark": MARKS, "k": range(1, 4)},
        prompts=(
            "Return a list of n strings; the i-th, from 1, is {mark!r} repeated i + {k} times. If n < 1: an empty list.",
            "For i from 1 to n give the text {mark!r} times (i + {k}), as a list.",
        ),
        body="return [{mark!r} * (i + {k}) for i in range(1, n + 1)]",
        inputs=lambda rng, mark, k: (rng.randint(2, 15),),
        edges=((0,), (1,), (-2,)),
    ),
)
