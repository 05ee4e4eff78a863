"""search_qa: worlds are sound, every answer can be found by searching and reading, answers are graded exactly."""

import asyncio
import re

import pytest

from agentrl.env import as_step
from agentrl.envs.search_qa import SearchQA, is_right, read_answer
from agentrl.envs.search_qa_world import COUNTS, RELATIONS, world
from agentrl.messages import Action, ParseError, ToolCall
from agentrl.toolbox import toolbox

from .bundled import new

PLACE = world(11)


def test_a_world_has_a_passage_for_each_thing():
    titles = [passage["title"] for passage in PLACE.passages]
    assert titles == list(PLACE.kinds)
    assert len(set(titles)) == sum(COUNTS.values())
    assert {kind: list(PLACE.kinds.values()).count(kind) for kind in COUNTS} == COUNTS


def test_no_name_is_a_part_of_another():
    for number in range(5):
        names = [*world(number).kinds, *(value for value in world(number).facts.values() if value.endswith("ish"))]
        last = [
            re.sub(r"\b(the|lake|works|museum|river)\b", "", name.lower()).split()[-1] for name in set(names) if '"' not in name
        ]
        assert len(set(last)) == len(last)


def test_facts_fit_together():
    for (thing, relation), value in PLACE.facts.items():
        assert PLACE.kinds[thing] == RELATIONS[relation].of
        gives = RELATIONS[relation].gives
        assert (
            value.isdigit()
            if gives == "year"
            else value.endswith("ish")
            if gives == "language"
            else PLACE.kinds[value] == gives
        )
    for country in (name for name, kind in PLACE.kinds.items() if kind == "country"):
        assert PLACE.facts[PLACE.facts[country, "capital"], "country"] == country
    own = {relation for kind in COUNTS for relation in RELATIONS if RELATIONS[relation].of == kind}
    assert own == set(RELATIONS)


def test_each_fact_stands_in_the_passage_of_its_thing_in_words():
    bodies = {passage["title"]: passage["text"] for passage in PLACE.passages}
    for (thing, relation), value in PLACE.facts.items():
        told = [text.format(s=thing, o=value) for text in RELATIONS[relation].says]
        assert any(text[0].upper() + text[1:] in bodies[thing] for text in told)


def searched(env, query):
    call = ToolCall(id="c", name="search", arguments={"query": query})
    ((message, result),) = asyncio.run(toolbox(env).run([call], {"env": env, "sandbox": None}))
    assert not result.is_error
    return message.text


@pytest.mark.parametrize("level", [1, 2, 3, 4])
def test_the_next_thing_is_found_by_searching_for_the_last(level):
    """A reader without the secret: takes the passage of a thing and the sentence that the question's relation is told in."""
    for task in SearchQA.tasks(level).held_out(15):
        env = new("search_qa", task)
        assert env.reset(task) == task.prompt
        path, relations = task.secret["path"], task.secret["relations"]
        assert len(relations) == level
        assert len(set(path)) == level + 1
        assert path[0] in task.prompt
        assert path[-1] not in task.prompt
        thing = path[0]
        for relation in relations:
            title, passage = searched(env, thing).splitlines()[:2]
            assert title == f"[1] {thing}"
            thing = next(found for found in _told(passage, thing, relation) if found)
        assert thing == path[-1]
        assert as_step(env.step(Action(text=thing))).reward == 1.0


def _told(passage, thing, relation):
    """What stands where the sentences of a relation have their object, of the kind that it gives."""
    kinds = {"year": r"\d{4}", "language": r"\w+ish", "river": r"the river \w+", "lake": r"Lake \w+", "company": r"\w+ Works"}
    kind = kinds.get(RELATIONS[relation].gives, r"[A-Z]\w+(?: [A-Z]\w+)?")
    for sentence in RELATIONS[relation].says:
        pattern = re.escape(sentence).replace(r"\{s\}", f"(?i:{re.escape(thing)})").replace(r"\{o\}", f"({kind})")
        found = re.search(pattern, passage)
        yield found and found[1]


def test_each_episode_searches_in_its_own_world():
    one, other = SearchQA.tasks(1).held_out(2)
    envs = [new("search_qa", task) for task in (one, other)]
    for env, task in zip(envs, (one, other), strict=True):
        env.reset(task)
    for env, task in zip(envs, (one, other), strict=True):
        assert searched(env, task.secret["path"][0]).startswith(f"[1] {task.secret['path'][0]}\n")
    assert searched(envs[0], "xyzzy").startswith("nothing found")


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("Kleba", "Kleba"),
        ("I found it in the passage.\nKleba", "Kleba"),
        ("The answer is: Kleba.", "Kleba."),
        ("Answer: Kleba\nI am sure.", "Kleba"),
        ("answer is Leon Vauk", "Leon Vauk"),
        ("<answer> Kleba </answer>, not Zoun", "Kleba"),
        ("My answer:\nKleba", "Kleba"),
    ],
)
def test_reading(text, answer):
    assert read_answer(text) == answer


def test_silence_is_no_answer():
    with pytest.raises(ParseError, match="search"):
        read_answer(" \n ")


PEOPLE = frozenset({"Ada Trum", "Leon Vauk", "Rosa Vauker"})
CITIES = frozenset({"Kleba", "Zoun"})
RIVERS = frozenset({"the river Moul", "the river Dran"})


@pytest.mark.parametrize(
    ("said", "answer", "others", "right"),
    [
        ("Leon Vauk", "Leon Vauk", PEOPLE, True),
        ("leon vauk.", "Leon Vauk", PEOPLE, True),
        ("It was Leon Vauk, the mayor of Kleba", "Leon Vauk", PEOPLE, True),
        ("Ada Trum was born in Kleba", "Kleba", CITIES, True),
        ("Vauk", "Leon Vauk", PEOPLE, False),
        ("Rosa Vauker", "Leon Vauk", PEOPLE, False),
        ("Leon Vauk or Ada Trum", "Leon Vauk", PEOPLE, False),
        ("Ada Trum", "Leon Vauk", PEOPLE, False),
        ("Moul", "the river Moul", RIVERS, True),
        ("The river Moul", "the river Moul", RIVERS, True),
        ("", "Kleba", CITIES, False),
    ],
)
def test_grading(said, answer, others, right):
    assert is_right(said, answer, others, "Who is the mayor of Brona?") is right


def test_things_of_the_question_may_be_named_again():
    asked = "In which city was Zoun's mayor born?"
    assert is_right("The mayor of Zoun was born in Kleba", "Kleba", CITIES, asked)
    assert not is_right("The mayor of Zoun was born in Kleba", "Kleba", CITIES, "Where was Ada born?")


def test_answers_are_weighed_against_their_own_kind():
    person = next(name for name, kind in PLACE.kinds.items() if kind == "person")
    assert PLACE.alike(person) == {name for name, kind in PLACE.kinds.items() if kind == "person"}
    assert "1912" in PLACE.alike("1875")
    language = next(value for (_, relation), value in PLACE.facts.items() if relation == "language")
    assert all(value.endswith("ish") for value in PLACE.alike(language))
    assert not is_right("1912 or 1913", "1912", PLACE.alike("1912"), "When?")
    assert is_right("In 1912.", "1912", PLACE.alike("1912"), "When?")


def test_the_first_answer_ends_it():
    task = SearchQA.tasks(1).get(0)
    env = new("search_qa", task)
    env.reset(task)
    step = as_step(env.step(Action(text="I do not know")))
    assert (step.terminated, step.reward) == (True, 0.0)


def test_worlds_that_are_held_out_are_not_trained_on():
    source = SearchQA.tasks([1, 4])
    held_out = {task.public["world"] for task in source.held_out(60)}
    assert not held_out & {source.get(index).public["world"] for index in range(300)}
