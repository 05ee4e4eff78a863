"""A user's task file: what is read, what is refused and with which words, how it is split."""

import json

import pytest

from agentrl.envs.code_tasks.jsonl import read_tasks
from agentrl.envs.code_tasks.sources import open_source
from agentrl.errors import UsageError
from agentrl.finite import FiniteTasks
from agentrl.task import Task

GOOD = {
    "prompt": "Write double(x): twice x.",
    "function": "double",
    "examples": [{"args": [2], "result": 4}],
    "tests": [{"args": [0], "result": 0}, {"args": [-3], "result": -6}],
    "solution": "def double(x):\n    return 2 * x",
}


def write(path, *rows):
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows))
    return path


def test_a_task_is_read(tmp_path):
    (task,) = read_tasks(write(tmp_path / "t.jsonl", GOOD))
    assert task.prompt == "Write double(x): twice x.\ndouble(2) == 4"
    assert task.public["function"] == "double"
    assert task.secret["tests"] == [((0,), 0), ((-3,), -6)]
    assert "-6" not in json.dumps(task.to_public_dict())


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("{", "line 2: no JSON"),
        ("[1]", "line 2: a task is a JSON object, got a list"),
        ({**GOOD, "promt": "x"}, "line 2: there is no key 'promt'; did you mean 'prompt'"),
        ({k: v for k, v in GOOD.items() if k != "function"}, "line 2: the key 'function' is missing"),
        ({**GOOD, "prompt": 3}, "line 2: 'prompt' must be a text, got 3"),
        ({**GOOD, "function": "a b"}, "line 2: 'function' must be a function's name"),
        ({**GOOD, "tests": []}, "line 2: 'tests' is empty"),
        ({**GOOD, "tests": {}}, "line 2: 'tests' must be a list"),
        ({**GOOD, "tests": [{"args": [1], "result": 2}, {"args": 1, "result": 2}]}, r"line 2: tests\[1\] must look like"),
        ({**GOOD, "examples": [{"args": [1]}]}, r"line 2: examples\[0\] must look like"),
        ({**GOOD, "id": "a"}, "line 2: 'id' 'a' was given to line 1 already"),
    ],
)
def test_mistakes_are_named_with_line_and_key(tmp_path, row, message):
    path = write(tmp_path / "t.jsonl", {**GOOD, "id": "a"}, row)
    with pytest.raises(UsageError, match=message) as caught:
        read_tasks(path)
    assert str(path) in str(caught.value)


def test_missing_and_empty_files(tmp_path):
    with pytest.raises(UsageError, match="cannot be read"):
        read_tasks(tmp_path / "none.jsonl")
    with pytest.raises(UsageError, match="holds no tasks"):
        read_tasks(write(tmp_path / "t.jsonl", "", ""))


def rows(count):
    return [{**GOOD, "prompt": f"Write double(x), variant {i}."} for i in range(count)]


def test_split_depends_on_the_wording_alone(tmp_path):
    few = open_source(str(write(tmp_path / "a.jsonl", *rows(50))), {})
    spaced = [{**row, "prompt": row["prompt"].upper().replace(" ", "  ")} for row in rows(50)]
    many = FiniteTasks(name="b", tasks=read_tasks(write(tmp_path / "b.jsonl", *rows(200), *spaced)))
    training = {" ".join(many.get(i).prompt.lower().split()) for i in range(400)}
    held = [" ".join(task.prompt.lower().split()) for task in few.held_out(5)]
    assert not training & set(held)


def test_training_starts_over_in_another_order(tmp_path):
    source = open_source(str(write(tmp_path / "t.jsonl", *rows(20))), {"held_out": 0.0, "seed": 3})
    first = [source.get(i).prompt for i in range(20)]
    second = [source.get(i).prompt for i in range(20, 40)]
    assert sorted(first) == sorted(second)
    assert len(set(first)) == 20
    assert first != second


def test_too_few_held_out_tasks():
    source = FiniteTasks(name="x", tasks=(Task(id="a", prompt="p"),), held_out_share=1.0)
    with pytest.raises(ValueError, match="x: 1 tasks are held out, 2 were asked for"):
        source.held_out(2)


@pytest.mark.parametrize(
    ("source", "args", "message"),
    [
        ("generatd", {}, "did you mean 'generated'"),
        ("generated", {"level": [1]}, "takes no 'level'; did you mean 'levels'"),
        ("humaneval", {"levels": [1]}, "takes no 'levels'"),
        ("humaneval", {"path": "x"}, "takes no 'path'"),
        ("humaneval", {"held_out": 2}, "from 0 to 1"),
    ],
)
def test_sources_and_their_arguments(source, args, message):
    with pytest.raises(UsageError, match=message):
        open_source(source, args)
