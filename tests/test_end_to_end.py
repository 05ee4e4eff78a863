"""Whole runs through the command line, as a user starts them: train, look, evaluate, start from what was trained."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentrl import doctor
from agentrl.doctor import Level

from .support.isolation import missing
from .support.nursery import ROOT, Nursery

SMALL = [
    "model=tiny",
    "trainer.steps=2",
    "trainer.prompts_per_step=2",
    "trainer.samples_per_prompt=2",
    "trainer.lr=1e-3",
    "engine.slots=4",
    "engine.max_context=512",
    "sampling.max_episode_tokens=400",
    "sampling.max_new_tokens=8",
    "backend.threads=1",
    "eval.tasks=2",
]


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery() as started:
        yield started


@pytest.mark.slow
def test_guess_number_from_training_to_evaluating_what_came_of_it(nursery: Nursery, tmp_path: Path) -> None:
    def agentrl(*arguments: str) -> str:
        child = nursery.start([*arguments, f"out={tmp_path}"], tmp_path / "log")
        assert child.wait() == 0, child.log.read_text()
        return child.log.read_text()

    trained = agentrl("train", "env=guess_number", "run=first", *SMALL, "env.args.max_turns=2")
    for part in ("step 1/2  reward", "step 2/2  reward", "finished 2 steps", "before: pass rate", "after:  pass rate"):
        assert part in trained
    run = tmp_path / "first"
    for name in ("reward.png", "summary.md", "examples.md"):
        assert (run / "report" / name).stat().st_size > 100
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [row["turns_per_episode"] for row in rows] == [2.0, 2.0]

    evaluated = agentrl("eval", f"model={run}", "eval.tasks=3")  # env and its settings come from the run
    for part in (f"model      {run}/checkpoints/", "training steps)", "pass rate  ", "episodes   3 counted, 0 aborted"):
        assert part in evaluated

    again = agentrl("train", "env=guess_number", "run=second", *SMALL, f"model={run}/checkpoints/last", "trainer.steps=1")
    assert "finished 1 steps" in again
    gone_on = agentrl("train", "resume=first", "trainer.steps=3")
    assert "goes on after step 2" in gone_on
    assert "step 3/3" in gone_on
    assert "step 2/" not in gone_on


def test_an_environment_in_a_file_of_ones_own_trains(nursery: Nursery, tmp_path: Path) -> None:
    where = f"env={ROOT}/tests/support/short_env.py:Vowels"
    child = nursery.start(["train", where, *SMALL, f"out={tmp_path}", "trainer=rloo"], tmp_path / "log")
    assert child.wait() == 0, child.log.read_text()
    (run,) = (path for path in tmp_path.iterdir() if path.is_dir())
    assert run.name.startswith("Vowels-tiny-")


def test_code_sandbox_trains_with_its_real_sandbox(nursery: Nursery, tmp_path: Path) -> None:
    if any(check.level is Level.BAD for check in doctor.sandbox()):
        missing("this machine cannot isolate; agentrl doctor says why")
    child = nursery.start(
        ["train", "env=code_sandbox", "run=code", *SMALL, "sandbox.slots=2", f"out={tmp_path}"], tmp_path / "log"
    )
    assert child.wait() == 0, child.log.read_text()
    rows = [json.loads(line) for line in (tmp_path / "code" / "metrics.jsonl").read_text().splitlines()]
    assert [row["aborted"] for row in rows] == [0, 0]
    assert [row["episodes"] for row in rows] == [4, 4]
    episodes = (tmp_path / "code" / "episodes" / "episodes.jsonl").read_text()
    assert "hidden_tests" in episodes
    assert '"secret"' not in episodes
