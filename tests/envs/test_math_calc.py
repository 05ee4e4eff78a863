"""math_calc: each template worked out by hand, the calculator, how answers are read and graded."""

import asyncio
import random

import pytest

from agentrl.env import as_step
from agentrl.envs.math_calc import MathCalc, final_number
from agentrl.envs.math_calc_tasks import TEMPLATES
from agentrl.messages import Action, ParseError, ToolCall
from agentrl.task import Task
from agentrl.toolbox import toolbox

from .bundled import new

BY_NAME = {template.name: template for template in TEMPLATES}

BY_HAND = {
    "boxes": ({"a": 12, "b": 15}, "180"),
    "sold": ({"a": 300, "b": 120}, "180"),
    "seasons": ({"a": 150, "b": 275}, "425"),
    "shared": ({"a": 72, "b": 6}, "12"),
    "train": ({"a": 120, "b": 5}, "600"),
    "rows": ({"a": 96, "b": 8}, "12"),
    "bill": ({"a": 37, "b": 50}, "13"),
    "pages": ({"a": 20, "b": 30}, "600"),
    "loose": ({"a": 10, "b": 12, "c": 7}, "127"),
    "change": ({"a": 4, "b": 9, "c": 50}, "14"),
    "bags": ({"a": 6, "b": 20, "c": 8}, "15"),
    "job": ({"a": 20, "b": 10, "c": 75}, "125"),
    "trip": ({"a": 11, "b": 14, "c": 4}, "100"),
    "saving": ({"a": 300, "b": 60, "c": 20}, "12"),
    "mean": ({"a": 111, "b": 200}, "155.5"),
    "percent": ({"a": 200, "p": 15}, "170"),
    "tickets": ({"a": 20, "b": 10, "c": 30, "d": 5}, "350"),
    "discount": ({"a": 5, "b": 9, "p": 10}, "40.5"),
    "tank": ({"a": 400, "b": 20, "c": 5, "d": 10}, "30"),
    "part": ({"a": 90, "n": 3, "c": 4}, "240"),  # 60 pupils plant 4 each
    "overtime": ({"a": 20, "b": 30, "c": 4, "d": 5}, "700"),
    "mean_of_four": ({"a": 100, "b": 200, "c": 300, "d": 401}, "250.25"),
    "drive": ({"a": 90, "b": 60, "c": 120, "d": 40}, "4.5"),
    "interest": ({"a": 1000, "p": 3, "c": 4}, "1120"),
    "fence": ({"a": 20, "b": 10, "c": 5, "d": 100}, "400"),
    "harvest": ({"a": 10, "b": 20, "c": 20, "d": 6, "e": 3}, "90"),
}


def test_every_template_is_worked_out_by_hand():
    assert set(BY_HAND) == set(BY_NAME)
    assert {template.level for template in TEMPLATES} == {1, 2, 3}


@pytest.mark.parametrize("name", BY_HAND)
def test_templates(name):
    numbers, answer = BY_HAND[name]
    template = BY_NAME[name]
    assert set(numbers) == set(template.numbers)
    assert template.answer(numbers) == answer


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda template: template.name)
def test_draws_have_answers_that_can_be_said(template):
    rng = random.Random(template.name)
    for _ in range(50):
        numbers = template.draw(rng)
        assert all(numbers[name] in values for name, values in template.numbers.items())
        answer = float(template.answer(numbers))
        assert answer > 0
        assert answer == round(answer, 2 if template.cents else 0)
        text = template.text.format(**numbers, who="Ada", things="eggs", place="a zoo")
        assert all(str(value) in text for value in numbers.values())


def test_no_half_pupils():
    rng = random.Random(0)
    template = BY_NAME["part"]
    assert all(numbers["a"] % numbers["n"] == 0 for numbers in (template.draw(rng) for _ in range(50)))


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("42", 42),
        ("That makes $1,250.50.", 1250.5),
        ("12 * 3 = 36", 36),
        ("The answer is 36 apples in 3 boxes.", 36),
        ("Answer: -4", -4),
        ("#### 17", 17),
        (r"\boxed{8}, which I worked out in 2 steps", 8),
        ("<answer>9</answer> 10", 9),
        ("The answer is below.\n12", 12),
        ("5 is my answer", 5),
    ],
)
def test_reading(text, number):
    assert final_number(text) == number


def test_no_number_is_no_answer():
    with pytest.raises(ParseError, match="calculator"):
        final_number("I do not know.")


@pytest.mark.parametrize(("said", "reward"), [("40.5", 1.0), ("40.50 dollars", 1.0), ("40.49", 0.0), ("41", 0.0)])
def test_the_first_answer_ends_it(said, reward):
    env = MathCalc()
    env.task = Task(id="t", prompt="?", secret={"answer": "40.5"})
    step = as_step(env.step(Action(text=said)))
    assert (step.terminated, step.reward) == (True, reward)


def test_every_problem_can_be_worked_out_with_the_calculator():
    for level in (1, 2, 3):
        for task in MathCalc.tasks(level).held_out(40):
            call = ToolCall(id="c", name="calculator", arguments={"expression": task.secret["expression"]})
            env = new("math_calc", task)
            ((message, result),) = asyncio.run(toolbox(env).run([call], {"env": env, "sandbox": None}))
            assert not result.is_error
            assert float(message.text) == pytest.approx(float(task.secret["answer"]))


def test_numbers_that_are_held_out_are_not_trained_on_in_other_words():
    def asked(tasks):
        return {(task.public["template"], task.secret["expression"]) for task in tasks}

    source = MathCalc.tasks([1, 2])
    assert not asked(source.held_out(200)) & asked(source.get(index) for index in range(1000))
