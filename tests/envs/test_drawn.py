"""Drawn tasks: the side of the split is a property of the puzzle, levels come equally often, exhaustion is said."""

import random

import pytest

from agentrl.envs.drawn import Family, Puzzle, drawn, is_held_out
from agentrl.errors import UsageError


def family(numbers, finish=None):
    def plain(level, number, rng):
        return Puzzle(prompt=f"Level {level}: {number}?", public={"number": number}, secret={"answer": number})

    return Family(
        name="numbers", levels=(1, 2, 3), sketch=lambda level, rng: rng.randrange(numbers), finish=finish or plain, key=str
    )


def test_the_side_depends_on_the_puzzle_alone():
    for seed in range(5):
        for levels in (1, 3, [1, 2]):
            source = drawn(family(1000), levels, seed)
            trained = {source.get(index).public["number"] for index in range(300)}
            held_out = {task.public["number"] for task in source.held_out(100)}
            assert not any(is_held_out("numbers", str(number)) for number in trained)
            assert all(is_held_out("numbers", str(number)) for number in held_out)
            assert len(held_out) == 100


def test_about_a_fifth_is_held_out_and_another_family_holds_out_others():
    held_out = {number for number in range(5000) if is_held_out("numbers", str(number))}
    assert 900 < len(held_out) < 1100  # 1,000 expected, deviation 28
    others = {number for number in range(5000) if is_held_out("letters", str(number))}
    assert 120 < len(held_out & others) < 290  # 200 expected: unrelated


def test_levels_come_equally_often_in_training_and_take_turns_when_held_out():
    source = drawn(family(10**6), [1, 3], seed=0)
    counted = [source.get(index).public["level"] for index in range(400)]
    assert 150 < counted.count(1) < 250
    assert counted.count(1) + counted.count(3) == 400
    assert [task.public["level"] for task in source.held_out(5)] == [1, 3, 1, 3, 1]


def test_a_sketch_of_which_nothing_comes_is_drawn_again():
    def odd(level, number, rng):
        return Puzzle(prompt=str(number)) if number % 2 else None

    source = drawn(family(1000, odd), 1, seed=0)
    assert all(int(task.prompt) % 2 for task in [source.get(3), *source.held_out(20)])


def test_a_small_family_says_how_many_are_held_out():
    fewer = sum(is_held_out("numbers", str(number)) for number in range(40))
    source = drawn(family(40), 1, seed=0)
    assert len(source.held_out(fewer)) == fewer
    with pytest.raises(UsageError, match=f"numbers, level 1: only {fewer} are held out"):
        source.held_out(fewer + 1)


def test_nothing_left_to_train_on_is_said():
    only = next(number for number in range(100) if is_held_out("numbers", str(number)))
    lonely = Family(name="numbers", levels=(1,), sketch=lambda level, rng: only, finish=lambda *_: Puzzle(prompt="?"), key=str)
    with pytest.raises(UsageError, match="level 1: none is left to train on"):
        drawn(lonely, 1, seed=0).get(0)


def test_a_task_is_a_pure_function_of_seed_and_index():
    random.seed(1)
    first = drawn(family(1000), 1, seed=5).get(77)
    random.seed(2)
    assert drawn(family(1000), 1, seed=5).get(77) == first
