"""What a run does around its steps: the row of each, alarms, stops in between, and waits for the engine that end."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from agentrl.alarms import Alarms
from agentrl.compose import compose
from agentrl.episode import RolloutError
from agentrl.evaluator import Evaluator
from agentrl.live import PlainWatch
from agentrl.logbook import Logbook
from agentrl.phases import Phases
from agentrl.run_files import read_metrics
from agentrl.rundir import RunDir
from agentrl.scores import Evaluations
from agentrl.session import Session
from agentrl.stop import Stop, Stopped
from agentrl.task import Task
from agentrl.trackers import JsonLines
from tests.support.episodes import episode, group


class Played:
    """A source that has played more than the batch."""

    def metrics(self) -> Mapping[str, float]:
        return {"aborted": 2.0, "aborted/env_error": 2.0, "turns": 9.0, "loop_lag_s": 0.5}


class Engine:
    """Counts nothing and does nothing."""

    state = "running"

    def metrics(self) -> Mapping[str, float]:
        return {}

    async def pause(self, mode: str) -> None:
        """Done."""

    async def sleep(self, level: str) -> None:
        """Done."""


def session(folder: Path, *overrides: str, stream: io.StringIO | None = None, tasks: Any = (), **more: Any) -> Session:
    shown, stop = PlainWatch(stream or io.StringIO()), Stop()
    config, phases = compose(["env=guess_number", "model=tiny", *overrides]).config, Phases(shown)
    trackers, alarms = [JsonLines(folder / "metrics.jsonl")], more.pop("alarms", Alarms())
    evaluator = Evaluator(
        config=config,
        setup=None,
        tasks=tasks,
        evaluations=Evaluations(folder / "evals"),
        watch=shown,
        phases=phases,
        stop=stop,
        keep_best=lambda step: None,
    )
    unused: dict[str, Any] = dict.fromkeys(("transport", "trainer", "backend", "checkpoints"))
    usual = {
        "run": RunDir(path=folder),
        "config": config,
        "source": Played(),
        "engine": Engine(),
        "evaluator": evaluator,
        "logbook": Logbook(rows=[], trackers=trackers, watch=shown, alarms=alarms),
        "watch": shown,
        "phases": phases,
        "stop": stop,
        "pauses": False,
        "step": 1,
        "saved": 0,
        "groups": [group(0, episode(0, 0), episode(0, 1))],
    }
    return Session(**{**unused, **usual, **more})


def test_what_was_played_and_what_was_trained_on_are_both_in_the_row(tmp_path: Path) -> None:
    """Two episodes broke and were played again, so that none of the batch is aborted."""
    stream = io.StringIO()
    one = session(tmp_path, "eval.tasks=0", stream=stream)
    asyncio.run(one.on_step(1, {"loss": 0.25, **one.metrics()}))
    (row,) = read_metrics(tmp_path / "metrics.jsonl")
    batch = {"loss": 0.25, "aborted": 0, "turns": len(episode(0, 0).turns)}
    played = {"rollout/aborted": 2.0, "rollout/aborted/env_error": 2.0, "rollout/turns": 9.0, "rollout/loop_lag_s": 0.5}
    assert {name: row[name] for name in (*batch, *played)} == {**batch, **played}
    assert "aborted 2" in stream.getvalue()


@pytest.mark.parametrize(
    ("stuck", "more"),
    [("pause", []), ("sleep", []), ("pause", ["rollout.staleness=1"])],
    ids=["pause", "sleep", "pause of an engine that shares the weights"],
)
def test_an_engine_that_never_comes_to_rest_is_an_error_and_not_a_hang(tmp_path: Path, stuck: str, more: list[str]) -> None:
    engine = Engine()
    setattr(engine, stuck, lambda _: asyncio.sleep(60))
    one = session(tmp_path, "rollout.step_timeout=0.1", *more, engine=engine, pauses=True)
    with pytest.raises(RolloutError, match=r"did not pause within 0.1 s \(rollout.step_timeout\); it is running"):
        asyncio.run(asyncio.wait_for(one.pause(), 20))


def test_an_engines_own_timeout_is_not_taken_for_the_deadline(tmp_path: Path) -> None:
    class Fails(Engine):
        async def pause(self, mode: str) -> None:
            raise TimeoutError("its worker is gone")

    with pytest.raises(TimeoutError, match="its worker is gone"):
        asyncio.run(session(tmp_path, engine=Fails()).pause())


@pytest.mark.parametrize("error", [None, RolloutError("all episodes of the evaluation were aborted")], ids=["stopped", "fails"])
def test_an_evaluation_that_does_not_end_leaves_the_steps_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception | None
) -> None:
    async def evaluation(self: Evaluator) -> None:
        if error is not None:
            raise error
        self.stop.ask()  # Ctrl-C in the middle of it
        await asyncio.sleep(60)

    monkeypatch.setattr(Evaluator, "_play", evaluation)
    one = session(tmp_path, "eval.every=1", tasks=(Task(id="held"),))
    with pytest.raises(Stopped if error is None else RolloutError):
        asyncio.run(asyncio.wait_for(one.on_step(1, {"loss": 0.25}), 20))
    (row,) = read_metrics(tmp_path / "metrics.jsonl")
    assert (row["step"], row["loss"], row["episodes"]) == (1, 0.25, 2)
    assert not [name for name in row if name.startswith("eval/")]


def test_alarms_are_counted_in_the_row_and_said(tmp_path: Path) -> None:
    stream = io.StringIO()
    one = session(tmp_path, "eval.tasks=0", stream=stream, alarms=Alarms(tools=("python",)))
    for step in range(1, 4):
        asyncio.run(one.on_step(step, {"optimizer_steps": 1.0}))
    assert [row["alarm/no_tool_calls"] for row in read_metrics(tmp_path / "metrics.jsonl")] == [1, 2, 3]
    assert stream.getvalue().count("in 3 steps in a row no episode has called a tool (python)") == 1


def test_a_step_that_is_done_again_after_a_kill_keeps_its_row_and_rings_no_alarm_twice(tmp_path: Path) -> None:
    one = session(tmp_path, "eval.tasks=0", alarms=Alarms(tools=("python",)))
    for step in (1, 1, 2):
        asyncio.run(one.on_step(step, {}))
    assert [(row["step"], row["alarm/no_tool_calls"]) for row in read_metrics(tmp_path / "metrics.jsonl")] == [(1, 1), (2, 2)]
