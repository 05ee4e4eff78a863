"""Programming tasks: the model writes a function in a fenced code block and may mend it; hidden tests decide.

The hidden tests' expected results never enter a sandbox: a grader on the host runs the function on arguments alone and
compares. The agent's own sandbox runs only the visible examples and the `python` tool. Tasks come from `code_tasks/`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from agentrl.env import Env, Step, done
from agentrl.errors import UsageError
from agentrl.messages import Action, Message, as_messages
from agentrl.registry import find
from agentrl.reward import metric, reward
from agentrl.sandbox import Sandbox, SandboxSpec, cut
from agentrl.task import Task, TaskSource

from .code_tasks.expect import Expected, expected_cases
from .code_tasks.prompt import call_text, case_of
from .code_tasks.sources import open_source

SHOWN = 200
"""Characters of a wrong result that the model is shown: enough for a value, too little to flood its context."""


DEMONSTRATION = (
    *as_messages("Write a function triple(x). Return three times x.\ntriple(2) == 6"),
    *as_messages("```python\ndef triple(x):\n    return 3 * x\n```", role="assistant"),
)
"""A solved task, shown before the real one. It costs some 45 tokens of prompt and saves as many of each answer: without it
a small instruct model explains itself."""


class Case(Protocol):
    """What a grader says of one call; `error` names what was raised, or what came instead of the expected."""

    @property
    def passed(self) -> bool: ...
    @property
    def error(self) -> str: ...


class Graded(Protocol):
    """What a grader says of a function. The results of `function_cases` and of `expected_cases` fit."""

    @property
    def passed(self) -> int: ...
    @property
    def total(self) -> int: ...
    @property
    def cases(self) -> Sequence[Case]: ...


Grader = Callable[..., Awaitable[Graded]]


class CodeSandbox(Env):
    """Write a Python function, see what it does to the visible examples, mend it; hidden tests decide.

    Reward: 1 when all hidden tests pass, plus `partial_credit` times the share that pass.
    """

    max_turns = 2
    system_prompt = "Answer in Python."
    tools = ()
    """`env.args.tools=[python]` lets the model try things out; a description of the tool then goes into every prompt."""
    sandbox: Any = SandboxSpec(memory="256M", pids=32, disk="16M", timeout=5.0, cpu=5.0)

    demonstration: bool = True
    """Whether a solved task is shown first. Right for small models; large ones do without."""
    partial_credit: float = 0.0
    """Reward for passing every hidden test one by one, on top of the 1 for passing all. Off: with advantages divided by the
    group's deviation, a failing group's small differences would weigh as much as passing does."""
    test_timeout: float = 1.0
    """Seconds for one call of the function."""

    _code: str = ""
    """The last complete answer; empty while there is none."""
    _answers: int = 0
    _graded: Graded | None = None

    @classmethod
    def tasks(cls, source: str = "generated", *, seed: int = 0, **args: Any) -> TaskSource:
        """Where tasks come from.

        Args:
            source: generated (with levels, split, examples, hidden), humaneval or a .jsonl file (with held_out).
            seed: of the order and draw of training tasks; a run gives its own. Held-out tasks do not depend on it.
        """
        return open_source(source, {"seed": seed, **args})

    def reset(self, task: Task) -> list[Message]:
        missing = [key for key in ("function", "examples") if key not in task.public]
        if missing or "tests" not in task.secret:
            raise UsageError(f"task {task.id} is no programming task: it lacks {', '.join(missing) or 'hidden tests'}")
        shown = DEMONSTRATION if self.demonstration else ()
        return [*shown, *as_messages(task.prompt)]

    async def step(self, action: Action) -> Step | str:
        self._answers += 1
        self._code = action.code("python", "py")
        examples = self.task.public["examples"]
        if self._answers >= self.max_turns or not examples:
            return done()
        graded = await self._grade(self.sandbox, self.task, [case_of(example) for example in examples])
        if graded.passed == graded.total:
            return done()
        return feedback(self.task, graded)

    async def _grade(self, sandbox: Sandbox, task: Task, cases: Sequence[Any]) -> Graded:
        special = any(isinstance(expected, Expected) for _, expected in cases)
        grade: Grader = expected_cases if special else find("grader", "function_cases")
        code = f"{task.public.get('prelude', '')}\n{self._code}"
        return await grade(sandbox, code, task.public["function"], cases, timeout=self.test_timeout)

    @reward(weight=1.0)
    async def hidden_tests(self, task: Task, fresh: Sandbox) -> float:
        """1 when all hidden tests pass."""
        if not self._code:
            return 0.0
        self._graded = await self._grade(fresh, task, task.secret["tests"])
        return self.passed()

    @reward(weight=1.0)
    def partial(self) -> float:
        """`partial_credit` times the share of hidden tests that pass. Reads what `hidden_tests` has found."""
        if self._graded is None:
            return 0.0
        return self.partial_credit * self._graded.passed / self._graded.total

    @metric
    def passed(self) -> float:
        """1 when all hidden tests pass: the pass rate of an evaluation is its mean."""
        return float(self._graded is not None and self._graded.passed == self._graded.total)

    @metric
    def answered(self) -> float:
        """1 when there was a complete code block."""
        return float(bool(self._code))


def feedback(task: Task, graded: Graded) -> str:
    """The visible examples that went wrong, in a line each, and the request to try again.

    One line is enough for code that fails whatever it is given, a syntax error for one.
    """
    wrong = [(e, case.error) for e, case in zip(task.public["examples"], graded.cases, strict=True) if not case.passed]
    function = task.public["function"]
    lines = [f"{call_text(function, example)}: {cut(error, SHOWN)}" for example, error in wrong]
    if len(wrong) > 1 and len({error for _, error in wrong}) == 1:
        lines = [cut(wrong[0][1], SHOWN)]
    return "\n".join([*lines, "Try again."])
