"""Secret words for wordle, from a list of its own."""

from __future__ import annotations

import random
from functools import cache
from importlib import resources

from .drawn import Family, Puzzle

SHOWN = 8
"""Words that level 1 chooses from."""
ASKED = "Say only the word."
RULES = (
    "Find a word of five letters. After each guess you see below it, letter by letter: "
    "G right place, Y in the word but elsewhere, X not in the word."
)
SOLVED = (f"{RULES} It is one of: gully, piano, cabin. {ASKED}", "cabin")


@cache
def words() -> tuple[str, ...]:
    """All words, in the order of the alphabet."""
    lines = (resources.files(__package__) / "wordle_words.txt").read_text().splitlines()
    return tuple(word for line in lines if not line.startswith("#") for word in line.split())


def sketch(level: int, rng: random.Random) -> str:
    return rng.choice(words())


def finish(level: int, secret: str, rng: random.Random) -> Puzzle:
    others = [word for word in rng.sample(words(), SHOWN) if word != secret][: SHOWN - 1]
    choices = sorted([secret, *others])
    hints = {1: f" It is one of: {', '.join(choices)}.", 2: f" It begins with {secret[0]!r}.", 3: ""}
    public = {"choices": choices} if level == 1 else {}
    return Puzzle(prompt=f"{RULES}{hints[level]} {ASKED}", public=public, secret={"word": secret})


FAMILY = Family(name="wordle", levels=(1, 2, 3), sketch=sketch, finish=finish, key=str)
