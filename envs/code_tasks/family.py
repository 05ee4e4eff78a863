"""A family of small functions, and one member of it. Families are written down as data in level1.py to level4.py."""

from __future__ import annotations

import copy
import hashlib
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from .kinds import DRAW, EDGES, probes

Args = tuple[Any, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """Functions that differ by constants. Texts are format strings over the parameters.

    >>> f = Family(name="add", level=1, functions=("add",), signature="x: int", params={"k": (3,)},
    ...            prompts=("Return x plus {k}.",), body="return x + {k}")
    >>> f.draw(random.Random(0)).call((4,))
    7
    """

    name: str
    level: int
    functions: tuple[str, ...]
    """Names that the function may bear in a task."""
    signature: str
    """As in Python, "x: int, s: str"; the annotations name kinds of `kinds.DRAW`."""
    prompts: tuple[str, ...]
    body: str
    """The reference solution's body; "{k!r}" puts in a parameter. Braces of its own are doubled."""
    params: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    inputs: Callable[..., Args] | None = None
    """(rng, **params) -> arguments, where plain random ones would seldom be interesting. Must accept any params."""
    edges: tuple[Args, ...] | None = None
    """Edge cases; None: those of the kinds."""

    @property
    def kinds(self) -> tuple[str, ...]:
        return tuple(re.findall(r"\w+: (.+?)(?=, \w+:|$)", self.signature))

    @property
    def names(self) -> str:
        """The parameters without their kinds, "x, s"."""
        return re.sub(r": .+?(?=, \w+:|$)", "", self.signature)

    def draw(self, rng: random.Random) -> Member:
        """A member with random parameters. Pure in the state of `rng`."""
        return Member(family=self, params={name: rng.choice(values) for name, values in self.params.items()})


@dataclass(frozen=True, kw_only=True)
class Member:
    """A family with its parameters chosen: one function."""

    family: Family
    params: Mapping[str, Any]

    def source(self, function: str) -> str:
        """The reference solution as a whole Python function."""
        body = self.family.body.format(**self.params).replace("\n", "\n    ")
        return f"def {function}({self.family.names}):\n    {body}\n"

    @cached_property
    def _function(self) -> Callable[..., Any]:
        namespace: dict[str, Any] = {}
        exec(self.source("reference"), namespace)  # our own text, from the files of this folder
        return namespace["reference"]

    def call(self, args: Args) -> Any:
        """What the reference returns. The arguments are copied: a function may change its list."""
        return self._function(*copy.deepcopy(args))

    @cached_property
    def behavior(self) -> str:
        """A digest of what the function does to fixed arguments of its kinds: equal for equal functions, whatever their
        family, parameters and wording. An argument it raises on counts with the exception's name.
        """
        seen = []
        for args in probes(self.family.kinds):
            try:
                seen.append(repr(self.call(args)))
            except (ArithmeticError, LookupError, ValueError, RecursionError) as error:
                seen.append(type(error).__name__)
        return hashlib.sha256("\n".join([*self.family.kinds, *seen]).encode()).hexdigest()

    def arguments(self, rng: random.Random) -> Args:
        family = self.family
        if family.inputs is not None:
            return family.inputs(rng, **self.params)
        return tuple(DRAW[kind](rng) for kind in family.kinds)

    def edges(self) -> list[Args]:
        family = self.family
        if family.edges is not None:
            return list(family.edges)
        count = max(len(EDGES[kind]) for kind in family.kinds)
        return [tuple(EDGES[kind][i % len(EDGES[kind])] for kind in family.kinds) for i in range(count)]

    def cases(self, rng: random.Random, visible: int, hidden: int) -> tuple[list[Case], list[Case]]:
        """(visible examples, hidden tests): different arguments, and different results side by side where there are any.

        The visible ones are short, since they are paid for in tokens. Half of the hidden tests at most are edge cases.
        """
        edges = _distinct(self.edges())
        drawn = _distinct([self.arguments(rng) for _ in range(6 * (visible + hidden))], besides=edges)
        mixed = _by_turns([(args, self.call(args)) for args in drawn])
        shown = _by_turns(sorted(mixed[: 4 * visible], key=lambda case: len(repr(case))))[:visible]
        rest = [case for case in mixed if case not in shown]
        hard = _by_turns([(args, self.call(args)) for args in edges])[: hidden // 2]
        return shown, [*hard, *rest[: hidden - len(hard)]]


Case = tuple[Args, Any]


def _distinct(many: list[Args], besides: Sequence[Args] = ()) -> list[Args]:
    seen = {repr(args) for args in besides}
    return [args for args in many if not (repr(args) in seen or seen.add(repr(args)))]  # type: ignore[func-returns-value]


def _by_turns(cases: list[Case]) -> list[Case]:
    """One case of each result, then a second of each, and so on: no test set in which nearly all answers are False."""
    groups: dict[str, list[Case]] = {}
    for case in cases:
        groups.setdefault(repr(case[1]), []).append(case)
    longest = max(map(len, groups.values()), default=0)
    return [group[i] for i in range(longest) for group in groups.values() if i < len(group)]
