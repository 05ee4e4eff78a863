"""The environment alone: what it shows, when it ends, what it rewards. The grader is a double; see test_graded.py."""

import asyncio
import copy
import json
import random
from dataclasses import dataclass, field
from typing import Any

import pytest

from agentrl.env import as_step
from agentrl.envs import code_sandbox
from agentrl.envs.code_sandbox import CodeSandbox
from agentrl.episode import Episode, Outcome
from agentrl.errors import UsageError
from agentrl.messages import Action, ParseError, as_messages
from agentrl.reward import score
from agentrl.task import Task
from agentrl.transcript import Transcript

TASK = Task(
    id="double",
    prompt="Write a function double(x). Return twice x.",
    public={"function": "double", "examples": [{"args": "(2,)", "result": "4"}, {"args": "(3,)", "result": "6"}]},
    secret={"tests": [((5,), 10), ((-1,), -2), ((0,), 0), ((7,), 14)], "solution": "def double(x):\n    return 2 * x"},
)
RIGHT = "```python\ndef double(x):\n    return 2 * x\n```"
WRONG = "```python\ndef double(x):\n    return x + 2\n```"  # right for 2 alone, and for no hidden test
HALF = "```python\ndef double(x):\n    return 2 * max(x, 0) if x < 7 else 0\n```"  # right for 2, 3, 5, 0


@dataclass
class Graded:
    passed: int
    total: int
    cases: list[Any] = field(default_factory=list)


@dataclass
class Case:
    passed: bool
    error: str = ""


class Grader:
    """Runs the test's own code in this process, and remembers what was asked of it."""

    def __init__(self):
        self.asked = []

    async def __call__(self, sandbox, code, function, cases, *, timeout):
        self.asked.append((sandbox, code, list(cases)))
        namespace = {}
        try:
            exec(code, namespace)
        except SyntaxError as error:
            return Graded(0, len(cases), [Case(False, f"SyntaxError: {error.msg}")] * len(cases))
        judged = [self.call(namespace[function], args, expected) for args, expected in cases]
        return Graded(sum(case.passed for case in judged), len(cases), judged)

    def call(self, function, args, expected):
        try:
            value = function(*copy.deepcopy(args))
        except ZeroDivisionError as error:
            return Case(False, f"ZeroDivisionError: {error}")
        return Case(expected == value, "" if expected == value else f"got {value!r}, expected {expected!r}")


class Sandbox:
    async def aclose(self):
        pass


class Pool:
    isolation = "none"

    async def acquire(self):
        return Sandbox()


@pytest.fixture
def grader(monkeypatch):
    double = Grader()
    monkeypatch.setattr(code_sandbox, "find", lambda kind, name: double)
    return double


def make(task=TASK, **settings):
    env = CodeSandbox()
    env.task, env.rng, env.sandbox = task, random.Random(0), "the agent's"
    for name, value in {"partial_credit": 0.2, **settings}.items():
        setattr(env, name, value)
    env.reset(task)
    return env


def step(env, text):
    return as_step(asyncio.run(env.step(Action(text=text))))


def rewards(env):
    episode = Episode(
        id="e", group="g", index=0, task=env.task, seed=0, transcripts=(Transcript(),), outcome=Outcome.TERMINATED
    )
    scored = asyncio.run(score(env, episode, Pool()))
    return scored.rewards, scored.metrics


def test_right_answer_ends_the_episode_with_the_best_reward(grader):
    env = make()
    result = step(env, RIGHT)
    assert result.terminated
    assert rewards(env) == ({"hidden_tests": 1.0, "partial": 0.2}, {"passed": 1.0, "answered": 1.0})


def test_wrong_answer_is_shown_and_may_be_mended(grader):
    env = make()
    result = step(env, WRONG)
    assert not result.terminated
    assert result.observation[0].text == "double(3): got 5, expected 6\nTry again."
    assert step(env, RIGHT).terminated
    assert rewards(env)[0] == {"hidden_tests": 1.0, "partial": 0.2}


def test_last_turn_ends_without_feedback(grader):
    env = make(max_turns=1)
    assert step(env, WRONG).terminated
    assert grader.asked == []  # nobody would read what the examples say
    assert rewards(env) == ({"hidden_tests": 0.0, "partial": 0.0}, {"passed": 0.0, "answered": 1.0})


def test_visible_examples_alone_do_not_pass(grader):
    env = make()
    assert step(env, HALF).terminated  # both examples are right
    assert rewards(env) == ({"hidden_tests": 0.0, "partial": 0.2 * 2 / 4}, {"passed": 0.0, "answered": 1.0})


def test_partial_credit_is_a_setting(grader):
    assert CodeSandbox.partial_credit == 0.0
    env = make(partial_credit=0.0)
    step(env, HALF)
    assert rewards(env)[0] == {"hidden_tests": 0.0, "partial": 0.0}


def test_no_code_block_is_a_parse_error_and_worth_nothing(grader):
    env = make()
    with pytest.raises(ParseError, match="complete code block"):
        step(env, "def double(x):\n    return 2 * x")
    with pytest.raises(ParseError):
        step(env, "```python\ndef double(x):\n    return 2 * x")  # cut off by the token budget
    assert grader.asked == []
    assert rewards(env) == ({"hidden_tests": 0.0, "partial": 0.0}, {"passed": 0.0, "answered": 0.0})


def test_an_unreadable_second_answer_leaves_the_first(grader):
    env = make()
    step(env, HALF.replace("2 * max(x, 0)", "2 * max(x, 3)"))
    with pytest.raises(ParseError):
        step(env, "I give up")
    assert rewards(env)[0]["partial"] > 0


def test_errors_are_shown(grader):
    assert step(make(), "```python\ndef double(x:\n```").observation[0].text.startswith("SyntaxError: ")
    always = step(make(), "```python\ndef double(x):\n    return 1 / 0\n```").observation[0].text
    assert always == "ZeroDivisionError: division by zero\nTry again."  # once, not for each example
    once = step(make(), "```python\ndef double(x):\n    return 4 if x == 2 else 1 / 0\n```").observation[0].text
    assert once == "double(3): ZeroDivisionError: division by zero\nTry again."


def test_long_results_are_cut(grader):
    shown = step(make(), "```python\ndef double(x):\n    return 'a' * 100000\n```").observation[0].text
    assert len(shown) < 800


def test_reasoning_is_no_answer(grader):
    env = make(max_turns=1)
    step(env, f"<think>{WRONG}</think>{RIGHT}")
    assert rewards(env)[1]["passed"] == 1.0


def test_agent_sandbox_sees_visible_cases_only_and_hidden_tests_run_in_a_fresh_one(grader):
    env = make()
    step(env, RIGHT)
    rewards(env)
    (first, _, visible), (second, _, hidden) = grader.asked
    assert first == "the agent's"
    assert visible == [((2,), 4), ((3,), 6)]
    assert isinstance(second, Sandbox)
    assert hidden == TASK.secret["tests"]


def test_prelude_stands_before_the_answer(grader):
    task = Task(id="t", prompt="p", public={**TASK.public, "prelude": "import math"}, secret=TASK.secret.reveal())
    env = make(task, max_turns=1)
    step(env, "```python\ndef double(x):\n    return math.trunc(2 * x)\n```")
    assert rewards(env)[1]["passed"] == 1.0


def test_no_two_episodes_share_anything(grader):
    step(make(), RIGHT)
    fresh = make()
    assert rewards(fresh) == ({"hidden_tests": 0.0, "partial": 0.0}, {"passed": 0.0, "answered": 0.0})


def test_a_task_without_hidden_tests_is_refused():
    with pytest.raises(UsageError, match="hidden tests"):
        CodeSandbox().reset(Task(id="t", prompt="p", public={"function": "f", "examples": []}))
    with pytest.raises(UsageError, match="function"):
        CodeSandbox().reset(Task(id="t", prompt="p", secret={"tests": [1]}))


def test_what_the_model_sees_holds_no_secret():
    source = CodeSandbox.tasks(levels=[1, 2, 3, 4])
    for index in range(200):
        task = source.get(index)
        shown = "\n".join(message.text for message in as_messages(CodeSandbox().reset(task)))
        record = json.dumps(task.to_public_dict())
        body = task.secret["solution"].split("\n", 1)[1].strip()
        assert body not in shown
        for args, _ in task.secret["tests"]:
            call = f"({', '.join(map(repr, args))})"
            assert f"{task.public['function']}{call}" not in shown
            assert f'"{args!r}"' not in record


def test_demonstration_is_a_setting():
    env = CodeSandbox()
    assert [message.role for message in env.reset(TASK)] == ["user", "assistant", "user"]
    env.demonstration = False
    assert [message.text for message in env.reset(TASK)] == [TASK.prompt]
