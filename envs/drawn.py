"""Endless tasks that an environment draws by itself, in levels of difficulty. Implements `agentrl.task.TaskSource`.

Which side of the split a puzzle falls on depends on what it is (`key`) and on nothing else: not on the seed, the level or the
wording. So training never sees a puzzle that is held out. No list of tasks is kept anywhere.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any

from agentrl.errors import UsageError
from agentrl.finite import position
from agentrl.task import Secret, Task, task_id

HELD_OUT_SHARE = 0.2
MAX_DRAWS = 2000
"""Draws until a level is held to be exhausted. The share of draws that fall on the wanted side is a fifth or more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Puzzle:
    """What a task is made of.

    >>> Puzzle(prompt="What is 1 + 1?", secret={"answer": "2"}).public
    {}
    """

    prompt: str
    public: Mapping[str, Any] = field(default_factory=dict)
    secret: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """How the puzzles of one environment come about, in two stages: what is cheap decides the side of the split."""

    name: str
    levels: Sequence[int]
    sketch: Callable[[int, random.Random], Any]
    """(level, rng) -> what a puzzle starts from, as a board."""
    finish: Callable[[int, Any, random.Random], Puzzle | None]
    """(level, sketch, rng) -> the puzzle; None where nothing comes of the sketch."""
    key: Callable[[Any], str] = repr
    """What tells two sketches apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnTasks:
    """Puzzles of the chosen levels, each equally often. Held-out ones do not depend on the seed, so runs can be compared.

    >>> coins = Family(name="coins", levels=(1,), sketch=lambda level, rng: rng.randrange(10**6),
    ...                finish=lambda level, cents, rng: Puzzle(prompt=f"Pay {cents} cents."))
    >>> tasks = DrawnTasks(family=coins, levels=(1,))
    >>> tasks.get(0) == tasks.get(0), tasks.get(0) == tasks.get(1), tasks.held_out(3)[:2] == tasks.held_out(2)
    (True, False, True)
    """

    family: Family
    levels: tuple[int, ...]
    seed: int = 0

    def get(self, index: int) -> Task:
        rng = random.Random(f"train {self.family.name} {self.seed} {index}")
        return self._draw(rng.choice(self.levels), rng, held_out=False, seen=set())

    def held_out(self, count: int) -> list[Task]:
        """Levels take turns, no puzzle comes twice. Raises UsageError when there are fewer."""
        seen: set[str] = set()
        rngs = (random.Random(f"held out {self.family.name} {number}") for number in range(count))
        return [self._draw(level, rng, held_out=True, seen=seen) for level, rng in zip(cycle(self.levels), rngs, strict=False)]

    def _draw(self, level: int, rng: random.Random, *, held_out: bool, seen: set[str]) -> Task:
        for _ in range(MAX_DRAWS):
            sketch = self.family.sketch(level, rng)
            key = self.family.key(sketch)
            if is_held_out(self.family.name, key) != held_out or key in seen:
                continue
            puzzle = self.family.finish(level, sketch, rng)
            if puzzle is not None:
                if held_out:
                    seen.add(key)
                return self._task(level, key, puzzle)
        what = f"only {len(seen)} are held out" if held_out else "none is left to train on"
        raise UsageError(f"{self.family.name}, level {level}: {what}; {MAX_DRAWS:,} draws gave no other")

    def _task(self, level: int, key: str, puzzle: Puzzle) -> Task:
        return Task(
            id=task_id(self.family.name, level, key, puzzle.prompt),
            prompt=puzzle.prompt,
            public={"level": level, **puzzle.public},
            secret=Secret(puzzle.secret),
        )


def drawn(family: Family, levels: Any, seed: int) -> DrawnTasks:
    """The source that an environment's `tasks` returns. `levels`: a number, or several. Raises UsageError."""
    chosen = tuple(levels) if isinstance(levels, Sequence) else (levels,)
    if not chosen or any(level not in family.levels or isinstance(level, bool) for level in chosen):
        known = f"{family.levels[0]} to {family.levels[-1]}"
        raise UsageError(f"{family.name}: levels are a list of numbers from {known}, got {levels!r}")
    return DrawnTasks(family=family, levels=chosen, seed=seed)


def is_held_out(name: str, key: str) -> bool:
    """Whether training must not see this puzzle."""
    return position(f"{name} {key}") < HELD_OUT_SHARE
