"""Questions about made-up worlds, answered by searching: several look-ups that build on each other. No sandbox."""

from __future__ import annotations

import re

from agentrl.env import Env, Step, done
from agentrl.messages import Action, ParseError
from agentrl.task import Task, TaskSource

from .answer_part import answer_part
from .drawn import drawn
from .search_qa_tasks import FAMILY
from .search_qa_world import world

_MARK = re.compile(r"\banswer\b(?:\s+is)?\s*:?([^\n]*)", re.IGNORECASE)


class SearchQA(Env):
    """Answer a question about a world that exists in its passages alone, with a search tool over them.

    Reward: 1 for the exact name or year, else 0; the first answer counts.
    Levels: 1 takes one fact, 2 a chain of two, and so on up to 4.
    """

    max_turns = 8
    system_prompt = "Search the passages until you know the answer. Then say it: a name or a year, nothing else."
    tools = ("search",)
    """The bundled one, over `corpus`; `rl.use("search", top=5)` in a class of your own shows more passages."""

    @classmethod
    def tasks(cls, levels: int | list[int] = 1, *, seed: int = 0) -> TaskSource:
        """Endless questions; worlds that are held out are never trained on."""
        return drawn(FAMILY, levels, seed)

    def reset(self, task: Task) -> str:
        self._world = world(task.public["world"])
        self.corpus = self._world.passages
        return task.prompt

    def step(self, action: Action) -> Step:
        said = action.parse(read_answer)
        answer = self.task.secret["answer"]
        right = is_right(said, answer, self._world.alike(answer), self.task.prompt)
        return done("Correct." if right else "That is not the answer.", reward=float(right))


def read_answer(text: str) -> str:
    """What follows the last "answer" in a text; else its last line. Raises ParseError.

    >>> read_answer("I have found it.\\nThe answer is: Kleba."), read_answer("<answer>1912</answer>")
    ('Kleba.', '1912')
    """
    lines = [line.strip() for line in answer_part(text).splitlines() if line.strip()]
    if not lines:
        raise ParseError("Call search, or say the answer.")
    marked = _MARK.findall("\n".join(lines))
    return (marked[-1].strip() if marked else "") or lines[-1]


def is_right(said: str, answer: str, others: frozenset[str], question: str) -> bool:
    """Whether the answer, and none of the others that it could be taken for, is named. Those of the question may be.

    >>> people = frozenset({"Ada Trum", "Leon Vauk"})
    >>> is_right("Leon Vauk, I think.", "Leon Vauk", people, "Who is the mayor of Kleba?")
    True
    >>> is_right("Ada Trum or Leon Vauk", "Leon Vauk", people, "Who is the mayor of Kleba?")
    False
    """
    plain, asked = _plain(said), _plain(question)
    return {other for other in others if _plain(other) in plain and _plain(other) not in asked} == {answer}


def _plain(text: str) -> str:
    """Words between spaces, without articles and kinds, so that one text can be looked for in another."""
    words = re.findall(r"\w+", text.lower())
    return f" {' '.join(word for word in words if word not in ('the', 'a', 'river', 'lake'))} "
