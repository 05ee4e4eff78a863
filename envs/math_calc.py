"""Word problems with a calculator: a tool that must be used well before the answer is given once. No sandbox."""

from __future__ import annotations

import re

from agentrl.answers import numbers
from agentrl.env import Env, Step, done
from agentrl.messages import Action, ParseError
from agentrl.task import TaskSource

from .answer_part import answer_part
from .drawn import drawn
from .math_calc_tasks import FAMILY

_MARK = re.compile(r"\\boxed\{|####|\banswer\b", re.IGNORECASE)


class MathCalc(Env):
    """Solve an arithmetic word problem, with a calculator.

    Reward: 1 for the right number, else 0; the first number given as the answer counts.
    Levels: 1 takes one operation, 2 two, 3 three to five, with percentages and fractions.
    """

    max_turns = 6
    system_prompt = "Work the problem out with the calculator. Then say the answer: a number."
    tools = ("calculator",)

    @classmethod
    def tasks(cls, levels: int | list[int] = 1, *, seed: int = 0) -> TaskSource:
        """Endless problems; numbers that are held out are never trained on, whatever the wording."""
        return drawn(FAMILY, levels, seed)

    def step(self, action: Action) -> Step:
        right = abs(action.parse(final_number) - float(self.task.secret["answer"])) < 1e-6
        return done("Correct." if right else "That is not the answer.", reward=float(right))


def final_number(text: str) -> float:
    """The first number after the last "answer", #### or \\boxed; where there is none, the last number of all.

    Raises ParseError.

    >>> final_number("12 * 3 = 36, so the answer is $36 for 3 days."), final_number("It takes 4 steps: 5")
    (36.0, 5.0)
    """
    text = answer_part(text)
    marks = list(_MARK.finditer(text))
    marked = numbers(text[marks[-1].end() :]) if marks else []
    found = marked[:1] or numbers(text)[-1:]
    if not found:
        raise ParseError("Call the calculator, or say the answer as a number.")
    return found[0]
