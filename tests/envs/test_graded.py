"""The environment with the real grader and the real local sandbox: references pass, everything else does not."""

import asyncio
import random

import pytest

from agentrl.env import as_step
from agentrl.envs.code_sandbox import CodeSandbox
from agentrl.envs.code_tasks.generated import FAMILIES, GeneratedTasks
from agentrl.envs.code_tasks.humaneval import read_tasks
from agentrl.envs.policies import policy
from agentrl.episode import Episode, Outcome
from agentrl.messages import Action
from agentrl.registry import find
from agentrl.reward import score
from agentrl.sandbox import SandboxSpec
from agentrl.transcript import Transcript


def play_all(jobs, max_turns=1):
    """(rewards, metrics, text of the last observation) for each (task, answers)."""

    async def play(pool, task, answers):
        env = CodeSandbox()
        env.task, env.rng, env.max_turns = task, random.Random(0), max_turns
        env.sandbox = await pool.acquire()
        env.reset(task)
        for text in answers:
            result = as_step(await env.step(Action(text=text)))
        await env.sandbox.aclose()
        shown = "\n".join(message.text for message in result.observation)
        scored = await score(env, episode(task), pool)
        return scored.rewards, scored.metrics, shown

    async def main():
        pool = await find("sandbox", "local").open(SandboxSpec(), slots=2)
        try:
            return [await play(pool, task, answers) for task, answers in jobs]
        finally:
            await pool.aclose()

    return asyncio.run(main())


def episode(task):
    return Episode(id="e", group="g", index=0, task=task, seed=0, transcripts=(Transcript(),), outcome=Outcome.TERMINATED)


def code(text):
    return f"```python\n{text}\n```"


@pytest.fixture(scope="module")
def one_of_each_family():
    found = {}
    for source in (GeneratedTasks(levels=(level,)) for level in (1, 2, 3, 4)):
        index = 0
        wanted = {family.name for family in FAMILIES if family.level == source.levels[0]}
        while not wanted <= set(found):
            task = source.get(index)
            found.setdefault(task.public["family"], task)
            index += 1
    return found


def test_reference_of_every_family_passes(one_of_each_family):
    tasks = list(one_of_each_family.values())
    played = play_all([(task, [policy("code_sandbox", "gold", task)([])]) for task in tasks], max_turns=2)
    failed = [task.public["family"] for task, (_, metrics, _) in zip(tasks, played, strict=True) if metrics["passed"] != 1]
    assert failed == []
    assert all(rewards == {"hidden_tests": 1.0, "partial": 0.0} for rewards, _, _ in played)


def test_constants_and_echoes_fail_every_family(one_of_each_family):
    tasks = list(one_of_each_family.values())
    echo = code("def {f}(*args):\n    return args[0]")
    nothing = code("def {f}(*args):\n    pass")
    jobs = [(task, [answer.replace("{f}", task.public["function"])]) for task in tasks for answer in (echo, nothing)]
    jobs += [(task, [policy("code_sandbox", "random", task)([])]) for task in tasks]
    passed = [
        task.public["family"] for (task, _), (_, metrics, _) in zip(jobs, play_all(jobs), strict=True) if metrics["passed"]
    ]
    assert passed == []


CHEATS = {
    "equal to everything": "class Any:\n    def __eq__(self, other):\n        return True\ndef {f}(*args):\n    return Any()",
    "an int that is equal to everything": (
        "class Any(int):\n    def __eq__(self, other):\n        return True\n    __hash__ = int.__hash__\n"
        "def {f}(*args):\n    return Any(123456)"
    ),
    "leaves with success": "import os\ndef {f}(*args):\n    print('passed')\n    os._exit(0)",
    "leaves at once": "import sys\nsys.exit(0)",
    "looks into its callers": (
        "import sys\ndef {f}(*args):\n    frame = sys._getframe()\n    while frame:\n"
        "        for value in frame.f_locals.values():\n"
        "            if isinstance(value, (list, tuple)) and value and value[0] == args:\n                return value[1]\n"
        "        frame = frame.f_back"
    ),
    "searches memory for the expected results": (
        "import gc\ndef {f}(*args):\n    for item in gc.get_objects():\n"
        "        if isinstance(item, tuple) and len(item) == 2 and item[0] == args:\n            return item[1]"
    ),
    "hangs": "def {f}(*args):\n    while True:\n        pass",
    "raises": "def {f}(*args):\n    raise SystemExit(0)",
    "is another function": "def other(*args):\n    return 1",
    "is no Python": "def {f}(:",
}


@pytest.mark.parametrize("name", CHEATS)
def test_cheats_are_worth_nothing(name):
    tasks = [GeneratedTasks(levels=(1,)).get(index) for index in (0, 7)]
    jobs = [(task, [code(CHEATS[name].replace("{f}", task.public["function"]))]) for task in tasks]
    for rewards, metrics, _ in play_all(jobs):
        assert rewards["hidden_tests"] == 0.0
        assert rewards["partial"] == 0.0
        assert metrics == {"passed": 0.0, "answered": 1.0}


def test_feedback_shows_what_really_happened():
    task = next(t for t in map(GeneratedTasks(levels=(1,)).get, range(200)) if t.public["family"] == "add_constant")
    function = task.public["function"]
    wrong = code(f"def {function}(x):\n    return x")
    crash = code(f"def {function}(x):\n    return x + undefined")
    broken = code(f"def {function}(x)\n    return x")
    (_, _, gave), (_, _, raised), (_, _, syntax) = play_all([(task, [a]) for a in (wrong, crash, broken)], max_turns=2)
    example = task.public["examples"][0]
    argument = example["args"].strip("(),")
    assert gave.splitlines()[0] == f"{function}({argument}): got {argument}, expected {example['result']}"
    assert raised.startswith("NameError")
    assert "SyntaxError" in syntax
    assert all(text.endswith("Try again.") for text in (gave, raised, syntax))


def test_second_answer_counts():
    task = GeneratedTasks(levels=(1,)).get(0)
    gold = policy("code_sandbox", "gold", task)([])
    wrong = code(f"def {task.public['function']}(*args):\n    return 'wrong'")
    ((_, metrics, _),) = play_all([(task, [wrong, gold])], max_turns=2)
    assert metrics["passed"] == 1.0


@pytest.mark.slow
def test_all_164_references_of_humaneval_pass_and_empty_functions_fail():
    tasks = read_tasks()
    gold = play_all([(task, [policy("code_sandbox", "gold", task)([])]) for task in tasks], max_turns=2)
    assert [task.id for task, (_, metrics, _) in zip(tasks, gold, strict=True) if metrics["passed"] != 1] == []
    empty = play_all([(task, [code(f"def {task.public['function']}(*args):\n    pass")]) for task in tasks])
    assert [task.id for task, (_, metrics, _) in zip(tasks, empty, strict=True) if metrics["passed"]] == []
