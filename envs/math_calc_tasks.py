"""Word problems for math_calc: templates with numbers to draw, in three levels of one, two, and three or more operations."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .arithmetic import evaluate, shown
from .drawn import Family, Puzzle

PEOPLE = ("Ada", "Ben", "Clara", "Daniel", "Elena", "Farid", "Grace", "Hugo", "Ines", "Jonas", "Keiko", "Liam", "Mona", "Nils")
THINGS = ("apples", "books", "cards", "coins", "eggs", "marbles", "pencils", "shells", "stamps", "stickers", "tiles", "tulips")
PLACES = ("a bakery", "a farm", "a library", "a museum", "a school", "a theater", "a workshop", "a zoo")


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """A kind of problem. Numbers are drawn until the answer is positive, whole or in cents.

    >>> Template(name="rows", level=1, text="{a} seats stand in rows of {b}. How many rows?", expression="{a} / {b}",
    ...          numbers={"a": range(20, 90), "b": range(2, 9)}).answer({"a": 24, "b": 8})
    '3'
    """

    name: str
    level: int
    text: str
    expression: str
    numbers: Mapping[str, Sequence[int]]
    cents: bool = False
    """Whether the answer may have two decimals."""
    whole: str = "0"
    """What else must come out whole: no half pupils."""

    def draw(self, rng: random.Random) -> dict[str, int]:
        while True:
            drawn = {name: rng.choice(values) for name, values in self.numbers.items()}
            value, whole = (evaluate(text.format(**drawn)) for text in (self.expression, self.whole))
            if value > 0 and (100 if self.cents else 1) % value.denominator == 0 and whole.denominator == 1:
                return drawn

    def answer(self, numbers: Mapping[str, int]) -> str:
        return shown(evaluate(self.expression.format(**numbers)))


def _t(
    level: int, name: str, text: str, expression: str, *, cents: bool = False, whole: str = "0", **numbers: tuple[int, ...]
) -> Template:
    """Numbers as arguments of `range`."""
    ranges = {letter: range(*bounds) for letter, bounds in numbers.items()}
    return Template(name=name, level=level, text=text, expression=expression, numbers=ranges, cents=cents, whole=whole)


TEMPLATES: tuple[Template, ...] = (
    _t(1, "boxes", "{who} has {a} boxes with {b} {things} in each. How many {things} does {who} have?", "{a} * {b}",
       a=(12, 99), b=(12, 99)),
    _t(1, "sold", "{place} had {a} {things} and sold {b} of them. How many are left?", "{a} - {b}", a=(200, 2000), b=(50, 999)),
    _t(1, "seasons", "{who} collected {a} {things} in spring and {b} in autumn. How many is that in all?", "{a} + {b}",
       a=(150, 1500), b=(150, 1500)),
    _t(1, "shared", "{who} shares {a} {things} equally among {b} children. How many does each child get?", "{a} / {b}",
       a=(60, 900), b=(3, 30)),
    _t(1, "train", "A train goes {a} kilometers in an hour. How many kilometers does it go in {b} hours?", "{a} * {b}",
       a=(45, 240), b=(3, 25)),
    _t(1, "rows", "The {a} seats of {place} stand in rows of {b}. How many rows are there?", "{a} / {b}",
       a=(90, 990), b=(6, 36)),
    _t(1, "bill", "{who} pays a bill of ${a} with ${b}. How many dollars does {who} get back?", "{b} - {a}",
       a=(12, 480), b=(20, 520, 10)),
    _t(1, "pages", "{who} reads {a} pages every day. How many pages is that in {b} days?", "{a} * {b}", a=(14, 80), b=(12, 60)),
    _t(2, "loose", "{who} has {a} boxes with {b} {things} in each, and {c} loose ones. How many {things} does {who} have?",
       "{a} * {b} + {c}", a=(8, 60), b=(8, 60), c=(3, 90)),
    _t(2, "change", "{who} buys {a} {things} at ${b} each and pays with ${c}. How many dollars does {who} get back?",
       "{c} - {a} * {b}", a=(3, 30), b=(2, 30), c=(50, 500, 50)),
    _t(2, "bags", "{who} bakes {a} trays of {b} cookies and puts them into bags of {c}. How many bags does {who} need?",
       "{a} * {b} / {c}", a=(4, 30), b=(12, 48), c=(6, 24)),
    _t(2, "job", "{who} earns ${a} an hour, works {b} hours and then spends ${c}. How many dollars are left?",
       "{a} * {b} - {c}", a=(11, 45), b=(6, 60), c=(15, 400)),
    _t(2, "trip", "{a} girls and {b} boys visit {place}. Each of them pays ${c}. How many dollars do they pay together?",
       "({a} + {b}) * {c}", a=(11, 90), b=(11, 90), c=(3, 25)),
    _t(2, "saving", "A bicycle costs ${a}. {who} has ${b} and saves ${c} every week. In how many weeks can {who} buy it?",
       "({a} - {b}) / {c}", a=(150, 900), b=(20, 140), c=(5, 45)),
    _t(2, "mean", "{who} scores {a} points in the first game and {b} in the second. What is the mean of the two scores?",
       "({a} + {b}) / 2", cents=True, a=(110, 990), b=(110, 990)),
    _t(2, "percent", "{p}% of the {a} {things} in {place} are new. How many of them are not?", "{a} * (100 - {p}) / 100",
       a=(60, 900, 20), p=(5, 96, 5)),
    _t(3, "tickets", "{place} sells {a} tickets for adults at ${b} and {c} for children at ${d}. How many dollars is that?",
       "{a} * {b} + {c} * {d}", a=(14, 140), b=(9, 30), c=(14, 140), d=(3, 12)),
    _t(3, "discount", "{who} buys {a} {things} at ${b} each, with a discount of {p}%. How many dollars does {who} pay?",
       "{a} * {b} * (100 - {p}) / 100", cents=True, a=(4, 40), b=(3, 45), p=(5, 55, 5)),
    _t(3, "tank", "A tank holds {a} liters. {b} liters flow out of it each hour, for {c} hours. The rest goes into cans of {d} "
       "liters. How many cans does that take?", "({a} - {b} * {c}) / {d}",
       a=(400, 2400, 10), b=(12, 60), c=(3, 12), d=(5, 25)),
    _t(3, "part", "One in {n} of {a} pupils stays at home. Each of the others plants {c} trees. How many trees is that?",
       "({a} - {a} / {n}) * {c}", whole="{a} / {n}", a=(60, 600), n=(3, 10), c=(3, 15)),
    _t(3, "overtime", "{who} earns ${a} an hour for {b} hours, and ${d} an hour more for {c} hours of overtime. How many "
       "dollars does {who} earn?", "{a} * {b} + {c} * ({a} + {d})", a=(11, 40), b=(20, 41), c=(2, 16), d=(3, 15)),
    _t(3, "mean_of_four", "{place} has {a}, {b}, {c} and {d} visitors on four days. What is the mean of these numbers?",
       "({a} + {b} + {c} + {d}) / 4", cents=True, a=(90, 700), b=(90, 700), c=(90, 700), d=(90, 700)),
    _t(3, "drive", "{who} drives {a} kilometers at {b} kilometers an hour and then {c} kilometers at {d} kilometers an hour. "
       "How many hours does that take?", "{a} / {b} + {c} / {d}", cents=True,
       a=(60, 600, 30), b=(30, 121, 10), c=(60, 600, 30), d=(30, 121, 10)),
    _t(3, "interest", "{who} lends ${a} for {c} years and gets {p}% of that sum as interest each year. How many dollars "
       "does {who} have in the end?", "{a} + {a} * {p} / 100 * {c}", cents=True, a=(200, 5000, 50), p=(2, 10), c=(2, 11)),
    _t(3, "fence", "A garden is {a} meters long and {b} meters wide. A fence all around it costs ${c} a meter, and its gate "
       "${d} more. How many dollars is that?", "2 * ({a} + {b}) * {c} + {d}", a=(12, 90), b=(8, 60), c=(4, 30), d=(40, 300)),
    _t(3, "harvest", "{who} picks {a} baskets of {b} pears, throws {c} bad ones away and sells the others in bags of {d} for "
       "${e} each. How many dollars does {who} get?", "({a} * {b} - {c}) / {d} * {e}", whole="({a} * {b} - {c}) / {d}",
       a=(8, 40), b=(20, 60), c=(5, 60), d=(5, 13), e=(2, 9)),
)  # fmt: skip

_BY_NAME = {template.name: template for template in TEMPLATES}

Sketch = tuple[str, dict[str, int]]


def sketch(level: int, rng: random.Random) -> Sketch:
    """(template, numbers): who does it and with what things makes no other problem of it."""
    template = rng.choice([template for template in TEMPLATES if template.level == level])
    return template.name, template.draw(rng)


def finish(level: int, drawn: Sketch, rng: random.Random) -> Puzzle:
    template, numbers = _BY_NAME[drawn[0]], drawn[1]
    words = {"who": rng.choice(PEOPLE), "things": rng.choice(THINGS), "place": rng.choice(PLACES)}
    text = template.text.format(**numbers, **words)
    return Puzzle(
        prompt=text[0].upper() + text[1:],
        public={"template": template.name},
        secret={"answer": template.answer(numbers), "expression": template.expression.format(**numbers)},
    )


FAMILY = Family(name="math_calc", levels=(1, 2, 3), sketch=sketch, finish=finish)
