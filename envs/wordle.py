"""Find a word of five letters by what each guess has in common with it. Own word list; no tools, no sandbox."""

from __future__ import annotations

import re

from agentrl.env import Env, Step, done
from agentrl.messages import Action, Message, ParseError
from agentrl.reward import reward
from agentrl.task import Task, TaskSource

from .answer_part import answer_part
from .drawn import drawn
from .opening import opening
from .wordle_tasks import FAMILY, SOLVED

_FORMS = (
    r"<guess>\W*([a-z]{5})\W*</",
    r"(?<![a-z][ -])\b([a-z](?:[ -][a-z]){4})\b(?![ -][a-z]\b)",
    r"[\[*_`\"'“‘]([a-z]{5})[\]*_`\"'”’]",
    r"\bguess(?: is|ing)?\W{1,3}([a-z]{5})\b",
    r"(?-i:\b([A-Z]{5})\b)",
    r"\b([a-z]{5})\b",
)
"""How a guess may stand in a text, plainest first: <guess>crane</guess>, c r a n e, "crane", guess: crane, CRANE, crane."""


class Wordle(Env):
    """Find a secret word of five letters in six guesses, told which letters are right.

    Reward: 1 when the word was found; else `letter_credit` for each letter of the best guess that was in its place.
    Levels: 1 names eight words that it can be, 2 its first letter, 3 nothing. Any five letters are a guess.
    """

    max_turns = 6
    demonstration: bool = True
    """Whether a solved one is shown first. Right for small models; large ones do without."""
    letter_credit: float = 0.1

    _found: bool = False
    _placed: int = 0

    @classmethod
    def tasks(cls, levels: int | list[int] = 1, *, seed: int = 0) -> TaskSource:
        """A word that is held out is never trained on, at any level."""
        return drawn(FAMILY, levels, seed)

    def reset(self, task: Task) -> list[Message]:
        return opening(task.prompt, SOLVED, shown=self.demonstration)

    def step(self, action: Action) -> Step | str:
        guess = action.parse(read_guess)
        found = marks(guess, self.task.secret["word"])
        self._placed = max(self._placed, found.count("G"))
        self._found = found == "GGGGG"
        board = f"{' '.join(guess.upper())}\n{' '.join(found)}"
        return done(f"{board}\nCorrect.") if self._found else board

    @reward
    def found(self) -> float:
        """1 when the word was found, else the credit for letters."""
        return 1.0 if self._found else min(self.letter_credit * self._placed, 1.0)


def marks(guess: str, secret: str) -> str:
    """G, Y or X for each letter. A letter is marked no more often than the secret has it, places first.

    >>> marks("allay", "loyal")
    'XYYGY'
    """
    left = [letter for letter, own in zip(secret, guess, strict=True) if letter != own]
    out = []
    for letter, own in zip(secret, guess, strict=True):
        if letter == own:
            out.append("G")
        elif own in left:
            left.remove(own)
            out.append("Y")
        else:
            out.append("X")
    return "".join(out)


def read_guess(text: str) -> str:
    """The last guess in the plainest form that the text has one in; in small letters. Raises ParseError.

    >>> read_guess("The first letter may be right. My guess is **crane**, since it is a word."), read_guess("S L A T E")
    ('crane', 'slate')
    """
    part = answer_part(text)
    for form in _FORMS:
        if found := re.findall(form, part, re.IGNORECASE | re.ASCII):
            return re.sub("[ -]", "", found[-1]).lower()
    raise ParseError("Say one word of five letters.")
