"""Endless programming tasks, made from families of small functions. Implements `agentrl.task.TaskSource`.

Which side of the split a function falls on is a property of what it *does* (`Member.behavior`): a function that training
can draw, in whatever family, wording or parameters, is never a held-out one. No list of tasks is kept anywhere.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import cycle, islice

from agentrl.errors import UsageError, nearest
from agentrl.task import Secret, Task, task_id

from . import level1, level2, level3, level4
from .family import Family, Member
from .prompt import example_of, function_prompt

FAMILIES: tuple[Family, ...] = (*level1.FAMILIES, *level2.FAMILIES, *level3.FAMILIES, *level4.FAMILIES)
LEVELS = (1, 2, 3, 4)
SPLITS = ("functions", "families")

HELD_OUT_SHARE = 5
"""One function of five is held out."""
MAX_DRAWS = 1000
"""Draws until a source is held to be exhausted; four of five draws are for training."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratedTasks:
    """Tasks of the chosen levels. Held-out ones do not depend on the seed, so runs can be compared.

    >>> source = GeneratedTasks(levels=(1,), seed=3)
    >>> source.get(0) == source.get(0), source.get(0).id != source.get(1).id
    (True, True)
    """

    levels: tuple[int, ...] = (1,)
    seed: int = 0
    examples: int = 2
    """Visible ones."""
    hidden: int = 10
    split: str = "functions"
    """functions: held-out functions are new ones, of the families that training draws from. families: held-out families are
    new, too, and make up a fifth of each level."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "levels", tuple(self.levels))
        wrong = [level for level in self.levels if level not in LEVELS]
        if wrong or not self.levels:
            raise UsageError(f"levels are a list of numbers from 1 to 4, got {list(self.levels)}")
        if self.split not in SPLITS:
            raise UsageError(f"there is no split {self.split!r}; {nearest(self.split, SPLITS)}")
        if self.examples < 1 or self.hidden < 1:
            raise UsageError("a task needs at least one visible example and one hidden test")

    def get(self, index: int) -> Task:
        rng = random.Random(f"train {self.seed} {index}")
        families = self._families(held_out=False)
        for _ in range(MAX_DRAWS):
            member = rng.choice(families).draw(rng)
            if not is_held_out(member):
                return self._task(member, rng)
        raise UsageError(f"no function to train on in {MAX_DRAWS} draws of the levels {self.levels}")

    def held_out(self, count: int) -> list[Task]:
        """Families take turns; all functions differ. The first n of a longer list are the shorter list."""
        return [self._task(member, rng) for member, rng in _first(self._held_out_members(), count)]

    def _held_out_members(self) -> Iterator[tuple[Member, random.Random]]:
        """Ends when no family gives a new function any more."""
        seen: set[str] = set()
        rng = random.Random("held out")
        exhausted: set[str] = set()
        families = self._families(held_out=True)
        for family in cycle(families):
            if len(exhausted) == len(families):
                return
            member = None if family.name in exhausted else _new_member(family, rng, seen)
            if member is None:
                exhausted.add(family.name)
                continue
            seen.add(member.behavior)
            yield member, random.Random(f"held out {member.behavior}")

    def _families(self, *, held_out: bool) -> tuple[Family, ...]:
        chosen = tuple(family for family in FAMILIES if family.level in self.levels)
        if self.split == "functions":
            return chosen
        return tuple(family for family in chosen if (family.name in held_out_families()) == held_out)

    def _task(self, member: Member, rng: random.Random) -> Task:
        family = member.family
        function = rng.choice(family.functions)
        visible, hidden = member.cases(rng, self.examples, self.hidden)
        examples = [example_of(args, result) for args, result in visible]
        text = rng.choice(family.prompts).format(**member.params)
        return Task(
            id=task_id(family.name, dict(member.params), function, text, examples),
            prompt=function_prompt(function, family.names, text, examples),
            public={"function": function, "examples": examples, "family": family.name, "level": family.level},
            secret=Secret({"tests": hidden, "solution": member.source(function), "behavior": member.behavior}),
        )


def is_held_out(member: Member) -> bool:
    """Whether training must not see this function."""
    return int(member.behavior[:8], 16) % HELD_OUT_SHARE == 0


@cache
def held_out_families() -> frozenset[str]:
    """A fifth of the families of each level, chosen by the hash of their names."""
    out: set[str] = set()
    for level in LEVELS:
        names = [family.name for family in FAMILIES if family.level == level]
        names.sort(key=lambda name: hashlib.sha256(name.encode()).hexdigest())
        out.update(names[: max(1, len(names) // HELD_OUT_SHARE)])
    return frozenset(out)


def _new_member(family: Family, rng: random.Random, seen: set[str]) -> Member | None:
    for _ in range(MAX_DRAWS // 5):  # a family has few held-out functions: looking longer finds nothing
        member = family.draw(rng)
        if is_held_out(member) and member.behavior not in seen:
            return member
    return None


def _first(members: Iterator[tuple[Member, random.Random]], count: int) -> list[tuple[Member, random.Random]]:
    found = list(islice(members, count))
    if len(found) < count:
        raise UsageError(f"there are only {len(found)} held-out functions of these levels, {count} were asked for")
    return found
