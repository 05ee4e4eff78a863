"""HumanEval's data as cases: all 164 read, every reference solution passes, wrong ones do not."""

import copy

import pytest

from agentrl.envs.code_tasks.expect import Close, Expected, Items, Root, Truth
from agentrl.envs.code_tasks.expression import evaluate
from agentrl.envs.code_tasks.humaneval import cases, read_tasks, to_task
from agentrl.envs.code_tasks.prompt import case_of
from agentrl.envs.code_tasks.sources import open_source
from agentrl.errors import UsageError

TASKS = {task.id: task for task in read_tasks()}


def test_all_164_tasks_are_there():
    assert list(TASKS) == [f"HumanEval/{n}" for n in range(164)]
    assert all(task.secret["tests"] for task in TASKS.values())


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_reference_solution_gives_the_expected_results(task):
    namespace = {}
    exec(f"{task.public['prelude']}\n{task.secret['solution']}", namespace)
    function = namespace[task.public["function"]]
    for args, expected in task.secret["tests"]:
        assert expected == function(*copy.deepcopy(args)), args
    for example in task.public["examples"]:
        args, expected = case_of(example)
        assert function(*args) == expected, example


def test_a_constant_solves_few_tasks():
    def solves(value, task):
        return all(expected == value for _, expected in task.secret["tests"])

    for value in (None, True, False, 0, 1, "", []):
        assert [task.id for task in TASKS.values() if solves(value, task)] == []


def test_hidden_tests_are_not_in_the_prompt():
    task = TASKS["HumanEval/0"]
    assert (([1.0, 2.0, 5.9, 4.0, 5.0], 0.95), True) in task.secret["tests"]
    assert "5.9" not in task.prompt
    assert "return False\n" not in task.prompt


def test_helpers_of_the_prompt_stand_before_the_answer():
    assert "def encode_cyclic" in TASKS["HumanEval/38"].public["prelude"]
    assert "def decode_cyclic" not in TASKS["HumanEval/38"].public["prelude"]
    assert TASKS["HumanEval/0"].public["prelude"] == "from typing import List"


CHECK = """
METADATA = {}
def check(candidate):
    xs = list(range(3))
    assert True, "nothing"
    assert candidate(2 * 3, [1]) == (6, 'a' + 'b'), "why"
    assert abs(candidate(1.5) - 3.0 / 2) < 1e-6
    assert tuple(candidate([2])) == tuple([2])
    assert candidate(xs) is None
    assert candidate('<>')
    assert not candidate('>')
    for x in range(2, 4):
        assert candidate(x) == str(x)
"""


def test_each_form_of_assertion_is_read():
    read = list(cases(CHECK))
    assert [args for args, _ in read] == [(6, [1]), (1.5,), ([2],), ([0, 1, 2],), ("<>",), (">",), (2,), (3,)]
    kinds = [(type(e).__name__, e.value) if isinstance(e, Expected) else e for _, e in read]
    assert kinds == [(6, "ab"), ("Close", 1.5), ("Items", (2,)), None, ("Truth", True), ("Truth", False), "2", "3"]


def test_eight_tasks_need_more_than_a_plain_value():
    special = [id_ for id_, task in TASKS.items() if any(isinstance(e, Expected) for _, e in task.secret["tests"])]
    assert special == [f"HumanEval/{n}" for n in (2, 4, 32, 33, 37, 52, 56, 61)]


@pytest.mark.parametrize(
    "line", ["import os; os.remove('x')", "assert candidate(open('/etc/passwd')) == 1", "assert other(1) == 2"]
)
def test_what_cannot_be_read_is_an_error_and_is_not_run(line):
    with pytest.raises(ValueError):
        list(cases(f"def check(candidate):\n    {line}\n"))


@pytest.mark.parametrize("text", ["().__class__", "__import__('os')", "(lambda: 1)()", "open", "[x.y for x in [1]]"])
def test_expressions_reach_nothing(text):
    import ast

    with pytest.raises(ValueError):
        evaluate(ast.parse(text, mode="eval").body)


@pytest.mark.parametrize(
    ("expected", "right", "wrong"),
    [
        (Close(0.5, 1e-6), 0.5 + 1e-7, 0.5 + 1e-5),
        (Close(0.5, 1e-6), 0.5, "0.5"),
        (Close(0.5, 1e-6), 0.5, float("nan")),
        (Close(1.0, 1e-6), 1.0, True),
        (Truth(True), [0], []),
        (Items((1, 2)), [1, 2], [1, 2, 3]),
        (Items((1, 2)), (1, 2), None),
        (Root((-6, 11, -6, 1)), 2.0, 2.5),
        (Root((1, 2)), -0.5, float("inf")),
        (Root((1, 2)), -0.5, 1e308),
        (Root((1, 2)), -0.5, None),
        (Close(0.5, 1e-6), 0.5, 10**400),  # beyond what a float holds
        (Root((1, 2)), -0.5, -(10**400)),
    ],
)
def test_expectations(expected, right, wrong):
    assert expected == right
    assert expected != wrong


def test_it_is_for_evaluation_unless_a_share_is_asked_for():
    source = open_source("humaneval", {})
    assert len(source.held_out(164)) == 164
    with pytest.raises(UsageError, match=r"env\.tasks\.held_out"):
        source.get(0)
    split = open_source("humaneval", {"held_out": 0.5})
    training = {split.get(i).id for i in range(164)}
    held = {task.id for task in split.held_out(164 - len(training))}
    assert training | held == set(TASKS)
    assert not training & held


def test_a_test_in_an_unknown_form_names_what_it_is():
    row = {"task_id": "X/1", "entry_point": "f", "prompt": "def f(x):\n    '''Doc.'''\n", "canonical_solution": "    return x"}
    with pytest.raises(ValueError, match="cannot be read as a case: while"):
        to_task({**row, "test": "def check(candidate):\n    while True:\n        pass\n"})
