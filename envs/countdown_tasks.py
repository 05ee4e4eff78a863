"""Puzzles for countdown: numbers, and a goal that is made from them, so that every puzzle has a solution."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from .drawn import Family, Puzzle


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """What is drawn."""

    count: int
    """Numbers."""
    choices: Sequence[int]
    largest: int
    """Of the goals."""
    operators: str
    """That the solution uses; the player may use all four."""


LEVELS = {
    1: Level(count=3, choices=range(1, 16), largest=60, operators="+-"),
    2: Level(count=3, choices=range(1, 26), largest=100, operators="+-*/"),
    3: Level(count=4, choices=range(1, 51), largest=100, operators="+-*/"),
    4: Level(count=6, choices=(*range(1, 11), *range(1, 11), 25, 50, 75, 100), largest=999, operators="+-*/"),
}
"""4 is as in the television game."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    """A puzzle with the solution that it was made by.

    >>> Numbers(numbers=(3, 1), goal=2, solution="3 - 1").key
    '[1, 3] 2'
    """

    numbers: tuple[int, ...]
    goal: int
    solution: str

    @property
    def key(self) -> str:
        return f"{sorted(self.numbers)} {self.goal}"


def sketch(level: int, rng: random.Random) -> Numbers:
    """Joins two of the numbers until one is left: positive whole numbers all the way."""
    spec = LEVELS[level]
    while True:
        numbers = tuple(rng.sample(spec.choices, spec.count))
        goal, solution = _joined(numbers, spec.operators, rng)
        if goal <= spec.largest and goal not in numbers:
            return Numbers(numbers=numbers, goal=goal, solution=solution.removeprefix("(").removesuffix(")"))


def finish(level: int, drawn: Numbers, rng: random.Random) -> Puzzle:
    public = {"numbers": list(drawn.numbers), "goal": drawn.goal}
    return Puzzle(prompt=put(drawn), public=public, secret={"solution": drawn.solution})


def put(drawn: Numbers) -> str:
    """The puzzle in words."""
    numbers = ", ".join(map(str, drawn.numbers))
    rules = f"Reach {drawn.goal} with the numbers {numbers}, each at most once, by + - * / and brackets."
    return f"{rules} Say only the expression, as in (3 + 4) * 2."


def _joined(numbers: Sequence[int], operators: str, rng: random.Random) -> tuple[int, str]:
    """(value, expression) that uses all numbers; the expression stands in brackets."""
    pool = [(number, str(number)) for number in numbers]
    while len(pool) > 1:
        (a, left), (b, right) = (pool.pop(rng.randrange(len(pool))) for _ in range(2))
        if a < b:
            (a, left), (b, right) = (b, right), (a, left)
        operator = rng.choice([sign for sign in operators if _fits(a, sign, b)])
        value = {"+": a + b, "-": a - b, "*": a * b, "/": a // b}[operator]
        pool.append((value, f"({left} {operator} {right})"))
    return pool[0]


def _fits(a: int, operator: str, b: int) -> bool:
    """Whether the result is a positive whole number, and another one than was put in."""
    return {"+": True, "-": a > b, "*": b > 1, "/": b > 1 and a % b == 0}[operator]


SOLVED = Numbers(numbers=(7, 2, 4), goal=15, solution="7 + 2 * 4")

FAMILY = Family(name="countdown", levels=tuple(LEVELS), sketch=sketch, finish=finish, key=lambda drawn: drawn.key)
