"""countdown: a brute-force solver agrees that every puzzle can be solved; rules, reading, rewards."""

import ast
from fractions import Fraction
from itertools import permutations

import pytest

from agentrl.env import as_step
from agentrl.envs.countdown import Countdown, expression, unlawful
from agentrl.envs.countdown_tasks import LEVELS, SOLVED
from agentrl.messages import Action, ParseError
from agentrl.task import Task

TASK = Task(id="t", prompt="?", public={"numbers": [3, 4, 10, 10], "goal": 22}, secret={"solution": "3 * 4 + 10"})


def reachable(numbers):
    """All values that some of the numbers give, by trying everything."""
    found = set(numbers)
    for i, j in permutations(range(len(numbers)), 2):
        a, b = numbers[i], numbers[j]
        rest = [numbers[k] for k in range(len(numbers)) if k not in (i, j)]
        for value in (a + b, a - b, a * b, *([a / b] if b else [])):
            found |= reachable([value, *rest])
    return found


@pytest.mark.parametrize(("level", "count"), [(1, 60), (2, 60), (3, 6)])
def test_a_brute_force_solver_reaches_every_goal(level, count):
    for index in range(count):
        task = Countdown.tasks(level).get(index)
        assert task.public["goal"] in reachable([Fraction(number) for number in task.public["numbers"]])


@pytest.mark.parametrize("level", LEVELS)
def test_solutions_give_the_goal_and_keep_to_the_rules(level):
    spec = LEVELS[level]
    for index in range(100):
        task = Countdown.tasks(level).get(index)
        numbers, goal = task.public["numbers"], task.public["goal"]
        assert len(numbers) == spec.count
        assert all(number in spec.choices for number in numbers)
        assert eval(task.secret["solution"]) == goal
        assert 0 < goal <= spec.largest
        assert goal not in numbers
        used = [node.value for node in ast.walk(ast.parse(task.secret["solution"])) if isinstance(node, ast.Constant)]
        assert sorted(used) == sorted(numbers)
        assert all(str(number) in task.prompt for number in [goal, *numbers])
        assert task.secret["solution"] not in task.prompt


def test_level_1_needs_no_products():
    for index in range(50):
        assert not set("*/") & set(Countdown.tasks(1).get(index).secret["solution"])


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("3 * 4 + 10", "3 * 4 + 10"),
        ("3 * 4 + 10 = 22", "3 * 4 + 10"),
        ("22 = 3 * 4 + 10", "3 * 4 + 10"),
        ("My answer: (3 × 4) + 10.", "3 * 4 + 10"),
        ("`3*4+10`", "3 * 4 + 10"),
        ("$3 \\times 4 + 10$", "3 * 4 + 10"),
        ("<answer>3 * 4 + 10</answer> and not 1 + 1", "3 * 4 + 10"),
        ("First 10 + 10 = 20.\nThen I take 3 * 4 + 10 = 22", "3 * 4 + 10"),
        ("3 * 4 = 12, 12 + 10 = 22", "12 + 10"),
        ("10 + 10\nThat is it.", "10 + 10"),
        ("**3 * 4 + 10**", "3 * 4 + 10"),
        ("3 * 4 + 10 - that is 22", "3 * 4 + 10"),
    ],
)
def test_reading(text, read):
    assert ast.unparse(expression(text)) == read


@pytest.mark.parametrize(
    "text",
    [
        "",
        "22",
        "I cannot.",
        "(22)",
        "-22",
        "a + b",
        "= 22",
        "(3 * 4) + (10",
        "3 ** 4",
        "3 + 4 + x",
        "3 + 4 * (y",
        "10 % 4",
        "10 // 4",
    ],
)
def test_no_expression(text):
    with pytest.raises(ParseError, match="Say one expression"):
        expression(text)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("3 * 4 + 10", ""),
        ("10 + 10", ""),
        ("3 + 3", "You used 3 more often"),
        ("10 + 10 + 10", "You used 10 more often"),
        ("3 * 4 + 9", "9 is not among the numbers 3, 4, 10, 10"),
        ("3.5 + 4", "3.5 is not among"),
        ("10 - -4", ""),
    ],
)
def test_rules(text, problem):
    said = unlawful(ast.parse(text, mode="eval").body, [3, 4, 10, 10])
    assert said.startswith(problem)
    assert bool(said) == bool(problem)


def played(*texts, **settings):
    env = Countdown()
    env.task = TASK
    for name, value in settings.items():
        setattr(env, name, value)
    steps = [as_step(env.step(Action(text=text))) for text in texts]
    return steps[-1], env.reached()


def test_rewards():
    last, reward = played("3 * 4 + 10")
    assert (last.terminated, reward) == (True, 1.0)
    last, reward = played("3 * 4")
    assert (last.terminated, reward) == (False, 0.1)
    assert last.observation[0].text == "3 * 4 is 12, not 22. Try again."
    assert played("3 * 4", legal_credit=0.0)[1] == 0.0
    assert played("3 * 5")[1] == 0.0
    assert played("3 * 4", "3 * 4 + 10")[1] == 1.0
    last, reward = played("3 / (10 - 10)")
    assert "division by zero" in last.observation[0].text
    assert reward == 0.0
    assert played("4 / 3")[0].observation[0].text == "4 / 3 is 1.333333 (4/3), not 22. Try again."


def test_the_demonstration_is_solved():
    assert eval(SOLVED.solution) == SOLVED.goal
    assert unlawful(expression(SOLVED.solution), list(SOLVED.numbers)) == ""
    question, answer, real = Countdown().reset(TASK)
    assert (answer.role, answer.text) == ("assistant", SOLVED.solution)
    assert "Reach 15 with the numbers 7, 2, 4" in question.text
    assert real.text == TASK.prompt
