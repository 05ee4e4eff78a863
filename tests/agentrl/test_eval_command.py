"""`agentrl eval`: what it measures, its table, and that nothing measured is no pass rate of 0."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentrl import assembly, models
from agentrl import run as runs
from agentrl.cli import main
from agentrl.live import PlainWatch
from tests.support.runs import SHORT_ENV, SMALL, Silent, small

WORLDS = """
import agentrl as rl

class NoStep(rl.Env):
    def reset(self, task):
        return "Go."

    def step(self, action):
        raise KeyError("left")


class Long(rl.Env):
    def reset(self, task):
        return "word " * 300

    def step(self, action):
        return rl.done()


class Strict(rl.Env):
    max_turns = 2

    def reset(self, task):
        return "Go."

    def step(self, action):
        raise rl.ParseError("Say a number.")
"""


@pytest.fixture
def worlds(tmp_path: Path) -> str:
    file = tmp_path / "worlds.py"
    file.write_text(WORLDS)
    return str(file)


@pytest.fixture
def evaluated(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, dict[str, str], str]]:
    """(exit code, the table's rows by name, standard error)."""

    def call(env: str, *overrides: str) -> tuple[int, dict[str, str], str]:
        code = main(["eval", f"env={env}", *SMALL, "eval.tasks=3", *overrides])
        out, err = capsys.readouterr()
        lines = [line for line in out.splitlines() if len(line) > 11 and line[:11].endswith(" ")]
        return code, {line[:11].strip(): line[11:] for line in lines}, err

    return call


def test_the_table_says_what_was_measured_and_what_came_of_it(evaluated: Any) -> None:
    code, table, err = evaluated(f"{SHORT_ENV}:TwoTurns", "eval.samples=2")
    assert (code, err) == (0, "")
    assert table["model"] == "tiny (random)"
    assert table["tasks"].startswith("3 held-out tasks of ")
    assert table["episodes"] == "6 counted, 0 aborted, 0 cut by a limit"
    assert table["pass rate"].startswith("0.0% [0.0, ")
    assert table["answers"].startswith("12, ")
    assert "cut at sampling.max_new_tokens=5" in table["answers"]


def test_a_run_says_which_checkpoint_and_after_how_many_steps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs.train(
        small(tmp_path, "run=a", "trainer.steps=2", "eval.tasks=2", "eval.every=1", "eval.at_start=false"), watch=Silent()
    )
    best = max((json.loads(line) for line in (tmp_path / "a/metrics.jsonl").open()), key=lambda row: row["eval/reward"])
    for model, name, step in ((tmp_path / "a", "best", best["step"]), (tmp_path / "a/checkpoints/last", "last", 2)):
        assert main(["eval", f"model={model}"]) == 0
        told = capsys.readouterr().out
        assert f"model      {tmp_path}/a/checkpoints/{name} ({name}, after {step} training steps)" in told


def test_where_every_episode_breaks_the_table_counts_them_and_the_exit_code_is_1(evaluated: Any, worlds: str) -> None:
    code, table, err = evaluated(f"{worlds}:NoStep")
    assert code == 1
    assert "pass rate" not in table
    assert table["episodes"] == "0 counted, 3 aborted (3 env_error), 0 cut by a limit"
    assert "all 3 episodes of the evaluation were aborted: 3 of 3 episodes ended as env_error: KeyError: 'left'" in err


def test_where_no_prompt_fits_it_is_refused_with_the_key(evaluated: Any, worlds: str) -> None:
    code, table, err = evaluated(f"{worlds}:Long")
    assert (code, table) == (2, {})
    assert "an episode may have 200: nothing could be sampled; raise sampling.max_episode_tokens=200 to at least" in err
    assert err.count("\n") == 1


def test_where_nothing_was_sampled_the_exit_code_is_1(evaluated: Any, worlds: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where only the first prompts, which are looked at, would have fitted."""

    async def look(setup: Any, tasks: Any) -> str:
        return ""

    monkeypatch.setattr(assembly, "check_first_prompts", look)
    code, table, err = evaluated(f"{worlds}:Long")
    assert code == 1
    assert table["episodes"] == "3 counted, 0 aborted, 3 cut by a limit (3 max_tokens)"
    assert table["answers"].startswith("0, 0 cut")
    assert "nothing was sampled in the 3 episodes of the evaluation: 3 of 3 episodes ended as max_tokens" in err


def test_answers_that_cannot_be_read_are_counted(evaluated: Any, worlds: str) -> None:
    code, table, _ = evaluated(f"{worlds}:Strict")
    assert code == 0
    assert table["answers"].endswith(", 6 unreadable")  # two turns of three episodes
    assert table["episodes"] == "3 counted, 0 aborted, 3 cut by a limit (3 max_turns)"


def test_ctrl_c_shows_what_has_been_played_so_far(evaluated: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Interrupts(PlainWatch):
        def progress(self, name: str, done: int, total: int) -> None:
            if done == 2:
                os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(runs, "new_watch", lambda live: Interrupts())
    kept = tmp_path / "episodes.jsonl"
    code, table, err = evaluated(f"{SHORT_ENV}:TwoTurns", "eval.tasks=40", "engine.slots=2", "--episodes", str(kept))
    played = len(kept.read_text().splitlines())
    assert (code, err) == (130, "")
    assert 2 <= played < 40
    assert table["stopped"] == f"after {played} of 40 episodes, those that ended first"
    assert table["episodes"].startswith(f"{played} counted")


@pytest.mark.parametrize(
    ("place", "answer"),
    [("no/such/file", "there is no folder {0}/no/such"), ("", "{0} is a folder; give a file in it")],
)
def test_a_place_where_no_file_can_be_is_refused_before_anything_is_played(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], place: str, answer: str
) -> None:
    def never(*_: Any, **__: Any) -> Any:
        raise AssertionError("the model was loaded")

    monkeypatch.setattr(models, "load", never)
    assert main(["eval", "env=guess_number", "model=tiny", "--episodes", str(tmp_path / place)]) == 2
    err = capsys.readouterr().err
    assert answer.format(tmp_path) in err
    assert err.count("\n") == 1


def test_a_place_that_may_not_be_written_is_refused_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.access", lambda path, mode: False)  # root may write anywhere
    assert main(["eval", "env=guess_number", "model=tiny", "--episodes", str(tmp_path / "file")]) == 2
