"""Training runs, whole: begins one, goes on with one, and leaves a record however it ends. `evaluate` measures a model.

Opens everything by `agentrl.opening`, hands the loop of `agentrl.trainers` what it asks for, and writes the end down.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from agentrl.assembly import part
from agentrl.compose import Resolved
from agentrl.config import Config
from agentrl.ending import write_report, write_result
from agentrl.live import Watch
from agentrl.live import watch as new_watch
from agentrl.measure import Measured, measure
from agentrl.opening import open_run
from agentrl.resume import reopen
from agentrl.rundir import RunDir
from agentrl.scores import Score
from agentrl.session import Session
from agentrl.stop import Stop, Stopped, signals


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """What became of a run.

    >>> RunResult(folder=Path("runs/try"), status="stopped", steps=7, scores=(), report=()).status
    'stopped'
    """

    folder: Path
    status: Literal["finished", "stopped"]
    steps: int
    """Done in all."""
    scores: tuple[Score, ...]
    """Evaluations, the first one first."""
    report: tuple[Path, ...]


def train(resolved: Resolved, *, watch: Watch | None = None) -> RunResult:
    """A new run, to its end or until it is stopped. Raises UsageError, IsolationError before anything is written."""
    return asyncio.run(_train(resolved, None, watch or new_watch(live=resolved.config.log.live)))


def resume(name: str, overrides: Sequence[str] = (), *, out: str = "runs", watch: Watch | None = None) -> RunResult:
    """Goes on with a run, by its name or folder. Raises UsageError when there is no such run, when it is being trained, when
    nothing is left to do, for a key that cannot be changed in a run that has begun, and for files that are damaged."""
    run, resolved = reopen(name, overrides, out)
    return asyncio.run(_train(resolved, run, watch or new_watch(live=resolved.config.log.live)))


def evaluate(config: Config, *, watch: Watch | None = None) -> Measured:
    """`config.model` on the held-out tasks."""
    return asyncio.run(measure(config, watch or new_watch(live=config.log.live)))


async def _train(resolved: Resolved, run: RunDir | None, watch: Watch) -> RunResult:
    config, began = resolved.config, time.monotonic()
    async with AsyncExitStack() as stack:
        stop = Stop()
        stack.enter_context(signals(stop, watch.note))
        session = await open_run(stack, resolved, run, watch, stop)
        watch.begin(_title(resolved, session), steps=config.trainer.steps, rows=session.logbook.rows)
        stack.callback(watch.close)
        with _failure_on_record(session, began):
            status = await _work(session)
            watch.phase("writing")
            session.settle()
            paths = _report(resolved, session) if status == "finished" and config.log.report else []
            _result(session, status, began)
    scores = tuple(session.evaluator.evaluations.scores)
    return RunResult(folder=session.run.path, status=status, steps=session.step, scores=scores, report=tuple(paths))


async def _work(session: Session) -> Literal["finished", "stopped"]:
    """The run itself: the loop of `trainers.loop` between two evaluations."""
    config = session.config
    try:
        if session.step == 0 and config.eval.at_start:
            await session.evaluator.evaluate(0)
        await part("trainers.loop:train")(
            session,
            session.trainer,
            session,
            steps=config.trainer.steps,
            prompts=config.trainer.prompts_per_step,
            start=session.step,
            on_step=session.on_step,
            save=session.save,
            save_every=config.checkpoint.every,
            pause=session.pause,
        )
        await session.evaluator.evaluate(session.step)
    except Stopped:
        return "stopped"
    return "finished"


@contextlib.contextmanager
def _failure_on_record(session: Session, began: float) -> Iterator[None]:
    """A run that fails leaves a result that says so, and its error says how to go on."""
    try:
        yield
    except Exception as error:
        with contextlib.suppress(OSError):  # a full disk, perhaps; what is told is the first failure
            _result(session, "failed", began, error)
        error.add_note(f"go on with: agentrl train resume={session.run.reference}")
        raise


def _result(session: Session, status: str, began: float, error: Exception | None = None) -> None:
    write_result(
        session.run,
        status=status,
        steps=session.step,
        seconds=time.monotonic() - began,
        evaluations=session.evaluator.evaluations,
        error=error,
    )


def _report(resolved: Resolved, session: Session) -> list[Path]:
    evaluations = session.evaluator.evaluations
    return write_report(session.run, rows=session.logbook.rows, evaluations=evaluations, changed=resolved.changed())


def _title(resolved: Resolved, session: Session) -> str:
    config, presets = resolved.config, resolved.chosen("trainer")
    trained = f", trainer={'+'.join(presets)}" if presets else ""
    gone_on = f", goes on after step {session.step}" if session.step else ""
    return f"{session.run.path}: {config.model.id} in {config.env.id}{trained}{gone_on}"
