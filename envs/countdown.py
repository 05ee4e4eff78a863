"""Reach a number with others: one expression, checked exactly, with a few tries. No tools, no sandbox."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

from agentrl.env import Env, Step, done
from agentrl.messages import Action, Message, ParseError
from agentrl.reward import reward
from agentrl.task import Task, TaskSource

from .answer_part import answer_part
from .arithmetic import LONGEST, Malformed, parsed, plain, shown, value_of
from .countdown_tasks import FAMILY, SOLVED, put
from .drawn import drawn
from .opening import opening

_EXPRESSION = re.compile(rf"[-\d(][\d\s+*/().-]{{0,{LONGEST}}}[\d)](?!\d|\.\d|\s*(?:[+/(]|\*(?!\*)))")
"""One that does not go on: 3 + 4 is none in "3 + 4 * x". (Two stars end what is bold.)"""


class Countdown(Env):
    """Reach a goal with given numbers, each used at most once, by + - * / and brackets.

    Reward: 1 when an expression gives the goal, else `legal_credit` when one kept to the rules, else 0.
    Levels: 1 has three small numbers and needs + and - alone, 2 three numbers, 3 four, 4 six as in the television game.
    """

    max_turns = 3
    demonstration: bool = True
    """Whether a solved one is shown first. Right for small models; large ones do without."""
    legal_credit: float = 0.1
    """For an expression of the given numbers that misses the goal: a model learns the form before the arithmetic."""

    _score: float = 0.0

    @classmethod
    def tasks(cls, levels: int | list[int] = 1, *, seed: int = 0) -> TaskSource:
        """Endless puzzles, each with a solution."""
        return drawn(FAMILY, levels, seed)

    def reset(self, task: Task) -> list[Message]:
        return opening(task.prompt, (put(SOLVED), SOLVED.solution), shown=self.demonstration)

    def step(self, action: Action) -> Step | str:
        tree = action.parse(expression)
        numbers, goal = self.task.public["numbers"], self.task.public["goal"]
        if problem := unlawful(tree, numbers):
            return problem
        try:
            value = value_of(tree)
        except Malformed as error:
            return f"That cannot be worked out: {error}."
        if value == goal:
            self._score = 1.0
            return done("Correct.")
        self._score = max(self._score, self.legal_credit)
        return f"{ast.unparse(tree)} is {shown(value)}, not {goal}. Try again."

    @reward
    def reached(self) -> float:
        """1 when the goal was reached."""
        return self._score


def expression(text: str) -> ast.expr:
    """The last expression with an operator in the text, or in its <answer>; of an equation the side with the operators.

    Raises ParseError.

    >>> ast.unparse(expression("I take 3 × (4 + 2) = 18."))
    '3 * (4 + 2)'
    """
    for candidate in _candidates(answer_part(text)):
        try:
            tree = parsed(candidate)
        except Malformed:
            continue
        if isinstance(tree, ast.BinOp):
            return tree
    raise ParseError("Say one expression with + - * / and brackets, as in (3 + 4) * 2.")


def _candidates(text: str) -> Iterator[str]:
    for line in reversed(text.splitlines()):
        for side in reversed(plain(line).split("=")):
            yield from reversed(_EXPRESSION.findall(side))


def unlawful(tree: ast.expr, numbers: list[int]) -> str:
    """What is against the rules, as an observation; empty when nothing is."""
    used: list[Any] = [n.value for n in ast.walk(tree) if isinstance(n, ast.Constant)]
    given = ", ".join(map(str, numbers))
    for value in used:
        if value not in numbers:
            return f"{value} is not among the numbers {given}."
        if used.count(value) > numbers.count(value):
            return f"You used {value} more often than it is among the numbers {given}."
    return ""
