"""Generated tasks: seeds, splits, duplicates, and what each family's reference does."""

import re

import pytest

from agentrl.envs.code_tasks.family import Member
from agentrl.envs.code_tasks.generated import FAMILIES, GeneratedTasks, held_out_families, is_held_out
from agentrl.envs.code_tasks.prompt import case_of
from agentrl.errors import UsageError

from .by_hand import BY_HAND

ALL = (1, 2, 3, 4)
BY_NAME = {family.name: family for family in FAMILIES}


def test_forty_families_in_four_levels():
    assert len(FAMILIES) >= 40
    assert len(BY_NAME) == len(FAMILIES)
    assert {family.level for family in FAMILIES} == set(ALL)
    assert min(sum(family.level == level for family in FAMILIES) for level in ALL) >= 10


def test_every_family_has_a_case_worked_out_by_hand():
    assert set(BY_HAND) == set(BY_NAME)


@pytest.mark.parametrize("name", BY_NAME)
def test_reference_gives_what_was_worked_out_by_hand(name):
    params, args, expected = BY_HAND[name]
    family = BY_NAME[name]
    assert set(params) == set(family.params)
    assert all(value in family.params[key] for key, value in params.items())
    result = Member(family=family, params=params).call(args)
    assert (result, type(result)) == (expected, type(expected))


def test_same_seed_same_tasks_and_another_seed_others():
    first = [GeneratedTasks(levels=ALL, seed=5).get(i) for i in range(30)]
    again = [GeneratedTasks(levels=ALL, seed=5).get(i) for i in reversed(range(30))][::-1]
    other = [GeneratedTasks(levels=ALL, seed=6).get(i) for i in range(30)]
    assert first == again
    assert [t.secret.reveal() for t in first] == [t.secret.reveal() for t in again]
    assert len({t.id for t in first} & {t.id for t in other}) <= 1
    assert len({t.id for t in first}) == 30


def test_levels_are_those_asked_for():
    source = GeneratedTasks(levels=(2, 4))
    assert {source.get(i).public["level"] for i in range(60)} == {2, 4}
    assert {task.public["level"] for task in source.held_out(60)} == {2, 4}


@pytest.mark.parametrize("split", ["functions", "families"])
def test_nothing_held_out_is_near_anything_in_training(split):
    source = GeneratedTasks(levels=ALL, split=split)
    training = [source.get(i) for i in range(500)]
    held = source.held_out(150 if split == "functions" else 60)
    for key in (wording, hidden_tests, lambda task: task.secret["behavior"]):
        assert not set(map(key, training)) & set(map(key, held))
    assert len({task.secret["behavior"] for task in held}) == len(held)


def wording(task):
    """The sentence with its constants, without the function's name and the examples."""
    sentence = task.prompt.splitlines()[0].split("). ", 1)[1]
    return " ".join(re.findall(r"\S+", sentence.lower()))


def hidden_tests(task):
    """The hidden tests without their order: two tasks with the same ones are the same task."""
    return tuple(sorted(map(repr, task.secret["tests"])))


def test_split_looks_at_what_functions_do_not_at_family_or_wording():
    linear = Member(family=BY_NAME["every_nth"], params={"k": 2, "start": 0})
    again = Member(family=BY_NAME["every_nth"], params={"k": 2, "start": 0})
    primes_6 = Member(family=BY_NAME["primes_with_remainder"], params={"k": 6, "r": 1})
    primes_3 = Member(family=BY_NAME["primes_with_remainder"], params={"k": 3, "r": 1})  # odd, so the same primes
    assert linear.behavior == again.behavior
    assert primes_6.behavior == primes_3.behavior
    assert linear.behavior != primes_3.behavior


def test_held_out_families_are_unknown_to_training():
    source = GeneratedTasks(levels=ALL, split="families")
    assert {source.get(i).public["family"] for i in range(200)}.isdisjoint(held_out_families())
    assert {task.public["family"] for task in source.held_out(60)} <= held_out_families()


def test_held_out_is_the_same_for_any_seed_and_grows_at_its_end():
    long = GeneratedTasks(seed=1).held_out(120)
    short = GeneratedTasks(seed=2).held_out(50)
    assert long[:50] == short
    assert len({task.public["family"] for task in short}) >= 20  # families take turns


def test_about_a_fifth_is_held_out():
    import random

    rng = random.Random(1)
    drawn = [rng.choice(FAMILIES).draw(rng) for _ in range(800)]
    assert 0.14 < sum(map(is_held_out, drawn)) / len(drawn) < 0.26


def test_too_many_held_out_tasks_is_an_error_that_says_how_many_there_are():
    with pytest.raises(ValueError, match=r"only \d+ held-out functions"):
        GeneratedTasks(levels=(1,), split="families").held_out(100_000)


def test_examples_and_hidden_tests():
    source = GeneratedTasks(levels=ALL, examples=2, hidden=10)
    for index in range(300):
        task = source.get(index)
        visible = [case_of(example) for example in task.public["examples"]]
        hidden = task.secret["tests"]
        assert len(visible) == 2
        assert 8 <= len(hidden) <= 10
        assert not {repr(args) for args, _ in visible} & {repr(args) for args, _ in hidden}
        assert len({repr(args) for args, _ in hidden}) == len(hidden)
        assert len({repr(result) for _, result in hidden}) >= 2, "a constant function would pass"


def test_yes_or_no_questions_have_both_answers_among_examples_and_tests():
    source = GeneratedTasks(levels=(1,))
    seen = 0
    for index in range(200):
        task = source.get(index)
        results = [result for _, result in task.secret["tests"]]
        if isinstance(results[0], bool):
            seen += 1
            assert {case_of(example)[1] for example in task.public["examples"]} == {True, False}
            assert 0.2 <= sum(results) / len(results) <= 0.8
    assert seen > 20


def test_prompts_of_level_1_are_short():
    lengths = [len(GeneratedTasks().get(i).prompt) for i in range(200)]
    assert sum(lengths) / len(lengths) < 200  # characters: about 60 tokens
    assert max(lengths) < 400


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({"levels": (5,)}, "from 1 to 4"),
        ({"levels": ()}, "from 1 to 4"),
        ({"split": "family"}, "families"),
        ({"hidden": 0}, "at least one"),
    ],
)
def test_wrong_arguments_are_named(args, message):
    with pytest.raises(UsageError, match=message):
        GeneratedTasks(**args)
