"""The composition root: what a run leaves, how it is gone on with, and that all is closed however it ends."""

from __future__ import annotations

import json
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from agentrl import run as runs
from agentrl.episode import RolloutError
from agentrl.errors import UsageError
from agentrl.resume import MAY_CHANGE, reopen
from agentrl.run_files import read_metrics
from agentrl.rundir import RunDir
from agentrl.sandbox import IsolationError
from tests.support.runs import Silent, small, steps_of

BROKEN = """
import agentrl as rl

class Broken(rl.Env):
    def reset(self, task):
        return "Go."

    def step(self, action):
        raise OSError("no disk")
"""


def test_a_run_leaves_metrics_episodes_checkpoints_evaluations_and_a_report(tmp_path: Path) -> None:
    more = ["run=a", "trainer.steps=2", "eval.tasks=3", "log.tensorboard=true", "log.report=true"]
    watch = Silent()
    result = runs.train(small(tmp_path, *more), watch=watch)
    run = tmp_path / "a"
    assert (result.folder, result.status, result.steps) == (run, "finished", 2)
    assert [(score.step, score.episodes) for score in result.scores] == [(0, 3), (2, 3)]
    assert sorted(path.name for path in result.report) == ["examples.md", "reward.png", "summary.md"]
    assert steps_of(run) == [1, 2]
    rows = read_metrics(run / "metrics.jsonl")
    assert all(row["episodes"] == 6 for row in rows)
    assert all(
        {"loss", "lr", "time/rollout", "time/train", "time/publish", "time/step", "memory_gib"} <= set(row) for row in rows
    )
    assert "eval/pass_rate" in rows[1]
    assert "eval/pass_rate" not in rows[0]
    assert json.loads((run / "result.json").read_text())["status"] == "finished"
    for name in ("checkpoints/last/model.safetensors", "checkpoints/last/tokenizer.json", "checkpoints/latest"):
        assert (run / name).is_file()
    assert list((run / "tensorboard").iterdir())
    assert any("step 2: pass rate" in text for text in watch.said)


def test_the_title_names_the_preset_that_trains(tmp_path: Path) -> None:
    watch = Silent()
    runs.train(small(tmp_path, "run=a", "trainer.steps=1", "trainer=rloo"), watch=watch)
    runs.resume("a", ["trainer.steps=2"], out=str(tmp_path), watch=watch)
    titles = [text for text in watch.said if text.startswith(str(tmp_path / "a"))]
    assert [title.partition(", ")[2] for title in titles] == ["trainer=rloo", "trainer=rloo, goes on after step 1"]


def test_a_stopped_run_keeps_a_checkpoint_and_going_on_gives_what_an_undisturbed_one_gives(tmp_path: Path) -> None:
    runs.train(small(tmp_path, "run=whole", "trainer.steps=4"), watch=Silent())
    watch = Silent(after=3)
    stopped = runs.train(small(tmp_path, "run=parts", "trainer.steps=4"), watch=watch)
    assert (stopped.status, stopped.steps) == ("stopped", 3)
    assert any("stopping after the step in hand" in text for text in watch.said)
    assert (tmp_path / "parts" / "checkpoints" / "latest").read_text().strip() == "step-000003"
    resumed = runs.resume("parts", out=str(tmp_path), watch=Silent())
    assert (resumed.status, resumed.steps) == ("finished", 4)
    assert steps_of(tmp_path / "parts") == [1, 2, 3, 4]
    same = ("reward", "sampled_tokens", "tokens_trained", "lr")
    for ours, theirs in zip(*(read_metrics(tmp_path / name / "metrics.jsonl") for name in ("parts", "whole")), strict=True):
        assert {key: ours[key] for key in same} == {key: theirs[key] for key in same}
    assert weights(tmp_path / "parts") == pytest.approx(weights(tmp_path / "whole"), abs=1e-3)


def weights(run: Path) -> float:
    """A number that every weight counts in."""
    from safetensors.torch import load_file

    tensors = load_file(run / "checkpoints" / "last" / "model.safetensors")
    return sum(float((i + 1) * tensors[name].float().sum()) for i, name in enumerate(sorted(tensors)))


def test_sigterm_stops_like_ctrl_c(tmp_path: Path) -> None:
    stopped = runs.train(small(tmp_path, "run=a", "trainer.steps=50"), watch=Silent(after=1, number=signal.SIGTERM))
    assert (stopped.status, stopped.steps) == ("stopped", 1)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL  # handed back


def test_a_second_ctrl_c_ends_at_once_and_closes_everything(tmp_path: Path) -> None:
    before = {thread.name for thread in threading.enumerate()}
    with pytest.raises(KeyboardInterrupt):
        runs.train(small(tmp_path, "run=a", "trainer.steps=50"), watch=Silent(after=1, times=2))
    assert not (tmp_path / "a" / "result.json").exists()
    left = {thread.name for thread in threading.enumerate()} - before
    assert not [name for name in left if "engine" in name or "trainer" in name]
    with RunDir(path=tmp_path / "a").locked():  # nobody holds it any more
        pass
    resumed = runs.resume("a", ["trainer.steps=3"], out=str(tmp_path), watch=Silent())
    assert (resumed.status, steps_of(tmp_path / "a")) == ("finished", [1, 2, 3])


def test_a_finished_run_says_so_and_goes_on_only_with_more_steps(tmp_path: Path) -> None:
    runs.train(small(tmp_path, "run=a", "trainer.steps=2"), watch=Silent())
    with pytest.raises(UsageError, match=r"'a' has finished its 2 steps, nothing is left to do; .*trainer.steps=4"):
        runs.resume("a", out=str(tmp_path))
    result = runs.resume("a", ["trainer.steps=3"], out=str(tmp_path), watch=Silent())
    assert (result.steps, steps_of(tmp_path / "a")) == (3, [1, 2, 3])
    with pytest.raises(UsageError, match="has finished its 3 steps"):  # the new number is the run's own now
        runs.resume("a", out=str(tmp_path))


def test_a_key_that_would_change_what_is_learnt_cannot_be_changed_on_the_way(tmp_path: Path) -> None:
    runs.train(small(tmp_path, "run=a", "trainer.steps=1"), watch=Silent())
    for override in ("trainer.lr=1", "seed=1", "trainer=rloo", "env.args.max_turns=1", "sampling.temperature=0.5"):
        with pytest.raises(UsageError, match="start a new run from its weights: model="):
            reopen("a", [override, "trainer.steps=2"], str(tmp_path))
    _, resolved = reopen("a", ["trainer.steps=2", "checkpoint.every=1", "sandbox.slots=3"], str(tmp_path))
    assert resolved.config.checkpoint.every == 1
    assert resolved.origins["trainer.lr"] == "override: trainer.lr=1e-3"  # where it came from when the run began
    assert "trainer.lr" not in MAY_CHANGE


def test_a_run_that_another_process_trains_cannot_be_resumed(tmp_path: Path) -> None:
    runs.train(small(tmp_path, "run=a", "trainer.steps=1"), watch=Silent())
    with RunDir(path=tmp_path / "a").locked(), pytest.raises(UsageError, match="is being trained by process"):
        runs.resume("a", ["trainer.steps=2"], out=str(tmp_path), watch=Silent())


@pytest.mark.parametrize(
    ("more", "answer"),
    [
        (["env.args.max_trns=1"], "did you mean 'max_turns'"),
        (["engine.max_context=100000", "sampling.max_episode_tokens=200"], "max_context=100000"),
    ],
)
def test_what_cannot_start_leaves_no_folder(tmp_path: Path, more: list[str], answer: str) -> None:
    out = tmp_path / "runs"
    with pytest.raises(UsageError, match=answer):
        runs.train(small(out, "run=a", *more), watch=Silent())
    assert not out.exists()


def test_a_machine_without_isolation_refuses_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from agentrl import registry

    class Refuses:
        @classmethod
        async def open(cls, spec: Any, slots: int) -> Any:
            raise IsolationError("this machine isolates nothing")

    monkeypatch.setattr(
        registry, "find", lambda kind, name, real=registry.find: Refuses if kind == "sandbox" else real(kind, name)
    )
    with pytest.raises(IsolationError):
        runs.train(small(tmp_path / "runs", "run=a", env="code_sandbox"), watch=Silent())
    assert not (tmp_path / "runs").exists()


def test_too_many_aborted_episodes_end_the_run_with_the_reason(tmp_path: Path) -> None:
    file = tmp_path / "broken.py"
    file.write_text(BROKEN)
    with pytest.raises(RolloutError, match="no disk"):
        runs.train(small(tmp_path, "run=a", env=f"{file}:Broken"), watch=Silent())
    with RunDir(path=tmp_path / "a").locked():
        pass


@pytest.mark.parametrize(
    "more",
    [
        ["trainer=rloo"],
        ["trainer=dr_grpo", "trainer.minibatches=2", "trainer.epochs=2"],
        ["trainer=reinforce"],
        ["trainer=dapo"],
        ["trainer.kl=k3", "trainer.kl_coef=0.1"],
        ["trainer.old_logprobs=recompute", "trainer.correction=tis"],
        ["rollout.staleness=1"],
        ["rollout.staleness=2", "rollout.mode=abort"],
        ["model=tiny-qwen3", "model.dtype=bfloat16"],
    ],
    ids=" ".join,
)
def test_every_way_of_training_runs(tmp_path: Path, more: list[str]) -> None:
    result = runs.train(small(tmp_path, "run=a", "trainer.steps=2", *more), watch=Silent())
    assert (result.status, result.steps, steps_of(tmp_path / "a")) == ("finished", 2, [1, 2])
    assert all(row["grad_norm"] > 0 for row in read_metrics(tmp_path / "a" / "metrics.jsonl"))


def test_a_row_that_a_kill_has_lost_is_made_again_from_the_episodes(tmp_path: Path) -> None:
    runs.train(small(tmp_path, "run=a", "trainer.steps=2"), watch=Silent())
    file = tmp_path / "a" / "metrics.jsonl"
    first, second = read_metrics(file)
    file.write_text(json.dumps(first) + "\n" + json.dumps(second)[:30])  # torn, as by a kill
    runs.resume("a", ["trainer.steps=3"], out=str(tmp_path), watch=Silent())
    again = read_metrics(file)
    assert [row["step"] for row in again] == [1, 2, 3]
    for key in ("reward", "reward_std", "episodes", "sampled_tokens", "turns"):
        assert again[1][key] == second[key]


def test_evaluate_measures_a_model_on_tasks_that_training_never_sees(tmp_path: Path) -> None:
    measured = runs.evaluate(small(tmp_path, "eval.tasks=3", "eval.samples=2").config, watch=Silent())
    assert (measured.score.episodes, len(measured.episodes), measured.planned, measured.stopped) == (6, 6, 6, False)
    assert measured.what == "tiny (random)"
    again = runs.evaluate(small(tmp_path, "eval.tasks=3", "eval.samples=2").config, watch=Silent())
    assert again.score == measured.score
    with pytest.raises(UsageError, match="leaves nothing to evaluate"):
        runs.evaluate(small(tmp_path).config, watch=Silent())
