"""Answers to mathematical questions: plain numbers without any package, the rest by math-verify under a deadline."""

from __future__ import annotations

import asyncio
import importlib.util

import pytest

from agentrl.errors import MissingExtra
from agentrl.sandbox import Status
from agentrl.tools.graders import math_answers, math_equal
from agentrl.tools.graders.math_answers import last_boxed

needs_math_verify = pytest.mark.skipif(importlib.util.find_spec("math_verify") is None, reason="math-verify is not installed")


def verdict(answer, expected, **options):
    return asyncio.run(math_equal(answer, expected, **options))


@pytest.fixture
def without_math_verify(monkeypatch):
    monkeypatch.setattr(math_answers.importlib.util, "find_spec", lambda name: None)


@pytest.mark.parametrize(
    ("answer", "expected", "same"),
    [
        (r"First \boxed{3}, no: \boxed{4}", "4", True),
        (r"First \boxed{4}, no: \boxed{3}", "4", False),
        (r"\boxed{\frac{1}{2}}", "0.5", True),
        (r"\boxed{-\dfrac{3}{6}}", "-1/2", True),
        (r"\boxed{1,234,567}", "1234567", True),
        (r"\boxed{1{,}000}", "1000", True),
        (r"\boxed{50\%}", "0.5", True),
        (r"\boxed{50}", r"50\%", True),
        (r"\boxed{0.5\%}", "0.5", False),
        (r"\boxed{\$12.50}", "12.5", True),
        (r"\boxed{0.3333333333}", "1/3", True),
        (r"\boxed{0.33}", "1/3", False),
        (r"\boxed{1000001}", "1000000", False),
        (r"\boxed{100000000000000000001}", "100000000000000000000", False),
        ("  42. ", "42", True),
        ("−7", "-7", True),
        (r"\boxed{}", "4", False),
        (r"\boxed{4", "4", None),
    ],
)
def test_plain_numbers_need_no_package(without_math_verify, answer, expected, same):
    if same is None:
        with pytest.raises(MissingExtra, match="math"):
            verdict(answer, expected)
    else:
        assert verdict(answer, expected).passed is same


def test_the_same_text_needs_no_package(without_math_verify):
    assert verdict(r"\boxed{x^2}", "$x^2$")


def test_a_box_can_be_asked_for():
    assert verdict("4", "4")
    assert "boxed" in verdict("4", "4", boxed=True).error


@pytest.mark.parametrize(
    ("text", "inside"),
    [(r"\boxed{a}", "a"), (r"\boxed {a}", "a"), (r"\fbox{a}", "a"), (r"\boxed{\{1\}}", r"\{1\}"), (r"\boxed{{a}}", "{a}"),
     (r"\boxed{1} \boxed{2", "1"), (r"\boxed 5", None), ("", None)],
)  # fmt: skip
def test_the_last_box(text, inside):
    assert last_boxed(text) == inside


@needs_math_verify
@pytest.mark.parametrize(
    ("answer", "expected", "same"),
    [
        (r"\boxed{2x+2}", "2(x+1)", True),
        (r"\boxed{2x+3}", "2(x+1)", False),
        (r"\boxed{\sqrt{8}}", r"2\sqrt{2}", True),
        (r"\boxed{\{2, 1\}}", r"\{1, 2\}", True),
        (r"\boxed{(2, 1)}", "(1, 2)", False),
        (r"\boxed{1, 2}", "2", False),
        (r"\boxed{x = 5}", "5", True),
        ("The answer is 7.", "7", True),
        (r"\boxed{\infty}", "5", False),
        (r"\boxed{\frac{1}{0}}", "5", False),
        (r"\boxed{__import__('os').system('x')}", "5", False),
    ],
)
def test_mathematics(answer, expected, same):
    assert verdict(answer, expected, timeout=60).passed is same


@needs_math_verify
def test_what_hangs_is_cut_and_the_next_is_answered():
    assert verdict(r"\boxed{10^{10^{10}}}", "5", timeout=0.5).status is Status.TIMEOUT
    assert verdict(r"\boxed{a+b}", "b+a", timeout=60)


@needs_math_verify
def test_a_worker_that_died_is_made_anew():
    assert verdict(r"\boxed{a+b}", "b+a", timeout=60)
    process = math_answers._WORKER._process
    process.kill()
    process.wait()
    assert verdict(r"\boxed{a+b}", "b+a", timeout=60)
    assert math_answers._WORKER._process.pid != process.pid


@needs_math_verify
def test_an_unreadable_expectation_is_the_authors_mistake():
    with pytest.raises(ValueError, match="cannot be read"):
        verdict(r"\boxed{4}", " ", timeout=60)


def test_long_answers_are_not_read():
    assert "at most" in verdict(r"\boxed{" + "1+" * 1000 + "1}", "4").error
