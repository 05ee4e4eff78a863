"""Checkpoints under kills: between any two operations on files, and by SIGKILL at random moments."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agentrl.trainers import checkpoint as module
from agentrl.trainers.checkpoint import Checkpoints, latest
from agentrl.trainers.restore import check

ROOT = Path(__file__).parents[2]


def write(value):
    def fill(folder):
        (folder / "a.bin").write_text(str(value) * 100)
        (folder / "deep").mkdir()
        (folder / "deep" / "b.bin").write_text(str(value))

    return fill


def content(folder):
    a, b = (folder / "a.bin").read_text(), (folder / "deep" / "b.bin").read_text()
    assert a == b * 100
    return int(b)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_save_and_find(tmp_path):
    assert latest(tmp_path) is None
    store = Checkpoints(tmp_path / "c", keep=2)
    store.save(write(1), {"step": 1, "version": 1})
    saved = store.save(write(2), {"step": 2, "version": 2})
    found = latest(tmp_path / "c")
    assert found == saved == store.latest()
    assert (found.step, found.state["version"], content(found.folder)) == (2, 2, 2)


def test_keeps_the_newest_and_always_what_latest_names(tmp_path):
    store = Checkpoints(tmp_path, keep=2)
    for step in (1, 2, 10, 9):  # 9: an older step saved later, as after going back by hand
        store.save(write(step), {"step": step})
    assert names(tmp_path) == ["latest", "step-000009", "step-000010"]
    assert latest(tmp_path).step == 9


def test_the_same_step_again_does_not_touch_the_first(tmp_path):
    store = Checkpoints(tmp_path, keep=2)
    first = store.save(write(1), {"step": 5})
    second = store.save(write(2), {"step": 5})
    assert (content(first.folder), content(second.folder)) == (1, 2)
    assert latest(tmp_path).folder == second.folder != first.folder


def test_export_replaces(tmp_path):
    store = Checkpoints(tmp_path, keep=1)
    store.export("best", write(1), {"step": 1})
    assert content(store.export("best", write(2), {"step": 2})) == 2
    assert names(tmp_path) == ["best"]


def test_a_pointer_to_nothing_is_an_error(tmp_path):
    store = Checkpoints(tmp_path, keep=1)
    shutil.rmtree(store.save(write(1), {"step": 1}).folder)
    with pytest.raises(OSError, match="step-000001"):
        latest(tmp_path)


def test_keep_of_zero_is_refused(tmp_path):
    with pytest.raises(ValueError, match="at least 1"):
        Checkpoints(tmp_path, keep=0)


def test_a_failing_writer_leaves_the_last_one(tmp_path):
    store = Checkpoints(tmp_path, keep=1)
    store.save(write(1), {"step": 1})

    def full(folder):
        (folder / "a.bin").write_text("half")
        raise OSError("no space left on device")

    with pytest.raises(OSError, match="no space"):
        store.save(full, {"step": 2})
    assert content(latest(tmp_path).folder) == 1
    Checkpoints(tmp_path, keep=1)
    assert names(tmp_path) == ["latest", "step-000001"]


class Killed(BaseException):
    """Stands for SIGKILL: nothing in the code may catch it and go on."""


def kill_at(monkeypatch, count):
    """The count-th operation on the file system is not done, and none after it."""
    left = [count]

    def counted(function):
        def call(*args, **kwargs):
            left[0] -= 1
            if left[0] < 0:
                raise Killed
            return function(*args, **kwargs)

        return call

    for owner, name in (
        (os, "replace"),
        (os, "fsync"),
        (Path, "rename"),
        (Path, "mkdir"),
        (Path, "write_text"),
        (module.shutil, "rmtree"),
    ):
        monkeypatch.setattr(owner, name, counted(getattr(owner, name)))


@pytest.mark.parametrize("stage", range(40))
def test_killed_between_any_two_operations(tmp_path, stage):
    store = Checkpoints(tmp_path, keep=1)
    store.save(write(1), {"step": 1})
    store.export("best", write(1), {"step": 1})
    with pytest.MonkeyPatch.context() as patch:
        kill_at(patch, stage)
        try:
            store.save(write(2), {"step": 2})
            store.export("best", write(2), {"step": 2})
            finished = True
        except Killed:
            finished = False
    reopened = Checkpoints(tmp_path, keep=1)
    found = reopened.latest()
    assert found.step == content(found.folder)
    assert content(tmp_path / "best") in (1, 2)
    assert not [name for name in names(tmp_path) if name.startswith(".")]
    if finished:
        assert (found.step, content(tmp_path / "best")) == (2, 2)
    reopened.save(write(3), {"step": 3})
    reopened.export("best", write(3), {"step": 3})
    assert names(tmp_path) == ["best", "latest", "step-000003"]


def test_the_stages_above_reach_from_nothing_done_to_all_done(tmp_path):
    """Otherwise the test before would not try every stage."""
    store = Checkpoints(tmp_path, keep=1)
    store.save(write(1), {"step": 1})
    with pytest.MonkeyPatch.context() as patch:
        kill_at(patch, 39)
        store.save(write(2), {"step": 2})
        store.export("best", write(2), {"step": 2})


WRITER = """
import sys
from pathlib import Path
from agentrl.trainers.checkpoint import Checkpoints
store = Checkpoints(Path(sys.argv[1]), keep=2)
step = store.latest().step if store.latest() else 0
print("ready", flush=True)
while True:
    step += 1
    def fill(folder):
        for name in "ab":
            with open(folder / f"{name}.bin", "w") as file:
                for _ in range(50):
                    file.write(str(step) + "\\n")
                    file.flush()
    store.save(fill, {"step": step})
    store.export("last", fill, {"step": step})
"""


def test_sigkill_at_random_moments(tmp_path):
    randomness, seen = random.Random(0), 0
    for _ in range(12):
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        process = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, env=environment)
        assert process.stdout.readline() == b"ready\n"
        time.sleep(randomness.uniform(0.0, 0.15))
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        found = latest(tmp_path)
        if found is None:
            continue
        assert found.step >= seen
        seen = found.step
        expected = f"{seen}\n" * 50
        assert [(found.folder / f"{name}.bin").read_text() for name in "ab"] == [expected, expected]
        check(found)  # lengths and checksums are those of the files
    assert seen > 0
