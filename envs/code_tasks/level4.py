"""Level 4: small algorithms. Data only; see family.py."""

from __future__ import annotations

from random import Random
from typing import Any

from .family import Args, Family
from .kinds import MARKS

SMALL = range(2, 10)


def _index(rng: Random, **_: Any) -> Args:
    return (rng.randint(0, 25),)


def _amount(rng: Random, **_: Any) -> Args:
    return (rng.randint(0, 90),)


def _many(rng: Random, **_: Any) -> Args:
    return ([rng.randint(-9, 30) for _ in range(rng.randint(3, 10))],)


def _brackets(rng: Random, **_: Any) -> Args:
    parts = [rng.choice(("()", "[]", "(a)", "[(", ")]", "([])", "x", "(", "]")) for _ in range(rng.randint(1, 4))]
    return ("".join(parts),)


def _two_words(rng: Random, **_: Any) -> Args:
    return tuple("".join(rng.choices("abc", k=rng.randint(1, 7))) for _ in range(2))


def _bits(rng: Random, **_: Any) -> Args:
    width = rng.randint(1, 5)
    return ([[rng.randint(-5, 9) for _ in range(width)] for _ in range(rng.randint(1, 5))],)


FAMILIES = (
    Family(
        name="recurrence",
        level=4,
        functions=("recurrence", "nth_term", "sequence"),
        signature="n: int",
        params={"a": range(6), "b": range(1, 6), "mod": range(11, 100)},
        prompts=(
            "f(0) = {a}, f(1) = {b}, f(n) = (f(n-1) + f(n-2)) % {mod}. Return f(n); 0 if n is negative.",
            "A sequence starts {a}, {b}; each next one is the sum of the last two modulo {mod}. Return term n (n < 0: 0).",
        ),
        body="if n < 0:\n    return 0\nx, y = {a}, {b}\nfor _ in range(n):\n    x, y = y, (x + y) % {mod}\nreturn x",
        inputs=_index,
    ),
    Family(
        name="primes_with_remainder",
        level=4,
        functions=("primes", "special_primes", "primes_below"),
        signature="n: int",
        params={"k": range(3, 12), "r": (1, 2)},
        prompts=(
            "Return the primes below n whose remainder by {k} is {r}, in rising order.",
            "List all prime numbers p < n with p % {k} == {r}.",
        ),
        body=("return [p for p in range(2, n) if p % {k} == {r} and all(p % d for d in range(2, int(p ** 0.5) + 1))]"),
        inputs=_amount,
    ),
    Family(
        name="to_base",
        level=4,
        functions=("to_base", "convert", "digits_of"),
        signature="n: int",
        params={"base": (2, 3, 4, 5, 6, 7, 8, 9), "sign": MARKS},
        prompts=(
            "Return n written in base {base} as a string; for negative n put {sign!r} before the digits of -n.",
            "Convert n to base {base} text. Mark negative numbers with a leading {sign!r}.",
        ),
        body=(
            "if n == 0:\n    return '0'\ndigits = ''\nrest = abs(n)\nwhile rest:\n    digits = str(rest % {base}) + digits\n"
            "    rest //= {base}\nreturn ({sign!r} if n < 0 else '') + digits"
        ),
        inputs=lambda rng, base, sign: (rng.choice((rng.randint(-60, 60), rng.randint(0, 5000))),),
    ),
    Family(
        name="fewest_coins",
        level=4,
        functions=("fewest_coins", "min_coins", "change"),
        signature="n: int",
        params={"a": (2, 3, 4), "b": (5, 6, 7), "c": (9, 10, 11, 12, 13)},
        prompts=(
            "Coins are {a}, {b} and {c}. Return the fewest coins that sum to n, or -1 if that is impossible.",
            "Return the smallest number of coins of {a}, {b}, {c} that pay exactly n; -1 when there is no way.",
        ),
        body=(
            "if n < 0:\n    return -1\nbest = [0] + [n + 1] * n\nfor total in range(1, n + 1):\n"
            "    for coin in ({a}, {b}, {c}):\n        if coin <= total:\n"
            "            best[total] = min(best[total], best[total - coin] + 1)\nreturn best[n] if best[n] <= n else -1"
        ),
        inputs=_amount,
    ),
    Family(
        name="count_ways",
        level=4,
        functions=("count_ways", "ways_to_climb", "climb"),
        signature="n: int",
        params={"a": (1, 2), "b": (3, 4, 5), "mod": range(50, 100)},
        prompts=(
            "Return in how many ways one can climb n stairs by steps of {a} or {b}, modulo {mod} (order counts; n < 0: 0).",
            "Count the ordered sums of {a}s and {b}s that make n, modulo {mod}; 0 for negative n.",
        ),
        body=(
            "if n < 0:\n    return 0\nways = [1] + [0] * n\nfor i in range(1, n + 1):\n"
            "    ways[i] = sum(ways[i - step] for step in ({a}, {b}) if step <= i) % {mod}\nreturn ways[n]"
        ),
        inputs=_index,
    ),
    Family(
        name="longest_run",
        level=4,
        functions=("longest_run", "longest_rise", "best_streak"),
        signature="xs: list[int]",
        params={"k": range(12)},
        prompts=(
            "Return the length of the longest contiguous part of xs that rises by more than {k} at each step.",
            "How long is the longest stretch of xs in which each number exceeds the one before by more than {k}?",
        ),
        body=(
            "best = run = min(len(xs), 1)\nfor before, after in zip(xs, xs[1:]):\n"
            "    run = run + 1 if after - before > {k} else 1\n    best = max(best, run)\nreturn best"
        ),
        inputs=_many,
    ),
    Family(
        name="window_sum",
        level=4,
        functions=("window_sum", "best_window", "max_window"),
        signature="xs: list[int]",
        params={"k": range(2, 5), "add": range(30)},
        prompts=(
            "Return the largest sum of {k} neighbors in xs, plus {add}; None if xs has fewer than {k} numbers.",
            "Slide a window of {k} over xs and return its largest sum increased by {add} (None when xs is too short).",
        ),
        body="if len(xs) < {k}:\n    return None\nreturn max(sum(xs[i:i + {k}]) for i in range(len(xs) - {k} + 1)) + {add}",
        inputs=_many,
    ),
    Family(
        name="best_sum_without_neighbors",
        level=4,
        functions=("best_sum", "pick_apart", "rob"),
        signature="xs: list[int]",
        params={"k": range(1, 4), "cost": range(8)},
        prompts=(
            "Pick numbers of xs more than {k} places apart; each costs {cost}. Return the largest sum (0 if none).",
            "Choose items of xs more than {k} indexes apart, each worth its value minus {cost}; return the best sum or 0.",
        ),
        body=(
            "best = [0] * (len(xs) + 1)\nfor i, x in enumerate(xs):\n"
            "    best[i + 1] = max(best[i], best[max(i - {k}, 0)] + x - {cost})\nreturn best[-1]"
        ),
        inputs=_many,
    ),
    Family(
        name="balanced",
        level=4,
        functions=("balanced", "is_balanced", "brackets_match"),
        signature="s: str",
        params={"k": range(1, 5)},
        prompts=(
            "Return True if the brackets () and [] in s are balanced and nested at most {k} deep, else False.",
            "Check that every ( and [ is closed in the right order and that the depth never exceeds {k}.",
        ),
        body=(
            "stack = []\nfor c in s:\n    if c in '([':\n        stack.append(c)\n"
            "        if len(stack) > {k}:\n            return False\n"
            "    elif c in ')]':\n        if not stack or stack.pop() + c not in ('()', '[]'):\n            return False\n"
            "return not stack"
        ),
        inputs=_brackets,
        edges=(("",), ("(]",), ("((()))",), ("[([([])])]",), ("(",)),
    ),
    Family(
        name="edit_distance",
        level=4,
        functions=("edit_distance", "distance", "edits"),
        signature="a: str, b: str",
        params={"sub": range(1, 6), "gap": range(1, 5)},
        prompts=(
            "Return the least cost to turn a into b: change a character for {sub}, insert or delete one for {gap}.",
            "Edit distance of a and b, where a substitution costs {sub} and an insertion or deletion costs {gap}.",
        ),
        body=(
            "row = [{gap} * j for j in range(len(b) + 1)]\nfor i, x in enumerate(a, 1):\n    new = [{gap} * i]\n"
            "    for j, y in enumerate(b, 1):\n        swap = row[j - 1] + (0 if x == y else {sub})\n"
            "        new.append(min(swap, row[j] + {gap}, new[j - 1] + {gap}))\n    row = new\nreturn row[-1]"
        ),
        inputs=_two_words,
    ),
    Family(
        name="survivor",
        level=4,
        functions=("survivor", "last_one", "josephus"),
        signature="n: int",
        params={"k": range(2, 12), "start": range(5)},
        prompts=(
            "n people in a circle, numbered from {start}; every {k}th leaves. Return the last one's number (-1 if n < 1).",
            "Josephus problem, step {k}, numbers from {start}: return the survivor's number, -1 for n below 1.",
        ),
        body=(
            "if n < 1:\n    return -1\nplace = 0\nfor size in range(2, n + 1):\n"
            "    place = (place + {k}) % size\nreturn place + {start}"
        ),
        inputs=lambda rng, k, start: (rng.randint(1, 30),),
        edges=((0,), (1,), (2,), (100,)),
    ),
    Family(
        name="merge_intervals",
        level=4,
        functions=("merge_ranges", "cluster", "group_near"),
        signature="xs: list[int]",
        params={"k": range(1, 9)},
        prompts=(
            "Sort xs and split it where the next number is more than {k} larger. Return [first, last] of each part.",
            "Cluster xs: sorted neighbors at most {k} apart belong together. Return [smallest, largest] of each cluster.",
        ),
        body=(
            "out = []\nfor x in sorted(xs):\n    if out and x - out[-1][1] <= {k}:\n        out[-1][1] = x\n"
            "    else:\n        out.append([x, x])\nreturn out"
        ),
        inputs=_many,
    ),
    Family(
        name="transpose_scale",
        level=4,
        functions=("transpose", "flip_grid", "turn"),
        signature="grid: list[list[int]]",
        params={"a": SMALL, "b": range(9)},
        prompts=(
            "Return the transposed grid (rows become columns) with every number times {a}, plus {b}.",
            "Transpose the matrix, then multiply each entry by {a} and add {b}.",
        ),
        body="return [[{a} * x + {b} for x in column] for column in zip(*grid)]",
    ),
    Family(
        name="islands",
        level=4,
        functions=("islands", "count_regions", "regions"),
        signature="grid: list[list[int]]",
        params={"k": range(-4, 8)},
        prompts=(
            "Return the number of connected regions (up, down, left, right) of cells greater than {k}.",
            "Cells above {k} are land. Count the islands; diagonal cells do not touch.",
        ),
        body=(
            "land = {{(i, j) for i, row in enumerate(grid) for j, x in enumerate(row) if x > {k}}}\ncount = 0\nwhile land:\n"
            "    count += 1\n    todo = [land.pop()]\n    while todo:\n        i, j = todo.pop()\n"
            "        for cell in ((i + 1, j), (i - 1, j), (i, j + 1), (i, j - 1)):\n            if cell in land:\n"
            "                land.remove(cell)\n                todo.append(cell)\nreturn count"
        ),
        inputs=_bits,
    ),
    Family(
        name="knapsack",
        level=4,
        functions=("knapsack", "best_load", "closest_sum"),
        signature="xs: list[int]",
        params={"cap": range(10, 80)},
        prompts=(
            "Return the largest sum of any selection of the positive numbers in xs that is at most {cap}.",
            "Choose positive numbers of xs, each at most once, with a total near {cap} but not above; return the best total.",
        ),
        body=(
            "sums = {{0}}\nfor x in xs:\n    if x > 0:\n"
            "        sums |= {{s + x for s in sums if s + x <= {cap}}}\nreturn max(sums)"
        ),
        inputs=_many,
    ),
)
