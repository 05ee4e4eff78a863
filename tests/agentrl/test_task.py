"""Tasks, and the secret that nobody but a grader sees."""

from __future__ import annotations

import copy
import json
import pickle

import pytest

from agentrl.messages import Message
from agentrl.task import Secret, SecretError, Task, task_id


def test_a_secret_reads_like_a_dict():
    secret = Secret({"cases": [1], "key": "x"})
    assert secret["cases"] == [1]
    assert dict(secret) == secret.reveal() == {"cases": [1], "key": "x"}
    assert (len(secret), "key" in secret, secret.get("none")) == (2, True, None)
    assert len(Secret()) == 0


@pytest.mark.parametrize(
    "write",
    [
        str,
        "{}".format,
        lambda secret: f"{secret}",
        lambda secret: f"{secret:>10}",
        lambda secret: "%s" % secret,  # noqa: UP031
        lambda secret: Message(role="user", content=secret) and json.dumps(secret),
        json.dumps,
    ],
)
def test_a_secret_never_becomes_text(write):
    with pytest.raises(TypeError):
        write(Secret({"answer": "swordfish"}))


def test_the_error_says_what_to_do():
    with pytest.raises(SecretError, match="grade with it on the host"):
        str(Secret({}))


def test_printing_a_task_shows_no_secret():
    task = Task(id="t", prompt="p", public={"level": 1}, secret={"answer": "swordfish"})
    assert "swordfish" not in repr(task)
    assert repr(task.secret) == "Secret(1 key)"
    assert task.to_public_dict() == {"id": "t", "prompt": "p", "public": {"level": 1}}
    assert Task(**task.to_public_dict()).secret == Secret({})


def test_a_secret_travels_between_processes():
    task = Task(id="t", secret={"answer": 7})
    for other in (pickle.loads(pickle.dumps(task)), copy.deepcopy(task)):
        assert other == task
        assert other.secret["answer"] == 7


def test_ids_come_from_content():
    assert task_id("add", [1, 2]) == task_id("add", [1, 2])
    assert len({task_id("add", [1, 2]), task_id("add", [2, 1]), task_id("add"), task_id("sub", [1, 2])}) == 4
    assert task_id({"b": 1, "a": 2}) == task_id({"a": 2, "b": 1})
    # sha256 of '["add", 1]', worked out with sha256sum
    assert task_id("add", 1) == "345123d04a05"
