"""Find a number by halving: the smallest environment with several turns. No tools, no sandbox, endless tasks."""

from __future__ import annotations

from typing import Any

from agentrl.env import Env, done
from agentrl.messages import Action
from agentrl.task import Task


class GuessNumber(Env):
    """Find a secret number between `low` and `high`, told "Higher." or "Lower." after each guess.

    Halving needs seven guesses for 1 to 100, so `max_turns = 8` leaves one to spare.

    >>> env = GuessNumber()
    >>> import random; env.rng = random.Random(0)
    >>> env.reset(Task(id="t"))
    'I think of a whole number between 1 and 100. What is it?'
    """

    max_turns = 8
    low: int = 1
    high: int = 100

    def reset(self, task: Task) -> str:
        if self.low > self.high:
            raise ValueError(f"low is {self.low} and high is {self.high}; low must not be above high")
        self.secret = self.rng.randint(self.low, self.high)
        return f"I think of a whole number between {self.low} and {self.high}. What is it?"

    def step(self, action: Action) -> Any:
        guess = action.parse(int)
        if guess == self.secret:
            return done("Correct.", reward=1.0)
        return "Higher." if guess < self.secret else "Lower."
