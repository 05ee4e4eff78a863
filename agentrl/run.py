"""The composition root: opens everything that a run needs, in order, runs it, and closes everything, however it ends.

`train` begins a run, `resume` goes on with one, `evaluate` measures a model. Here the parts meet, by dotted name; nothing
below this file reads a whole config.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from agentrl import assembly, models, rundir
from agentrl.assembly import part
from agentrl.compose import Resolved
from agentrl.config import Config
from agentrl.episode import EpisodeGroup
from agentrl.errors import UsageError
from agentrl.live import Watch
from agentrl.live import watch as new_watch
from agentrl.phases import Phases
from agentrl.record import of_groups
from agentrl.resume import reopen
from agentrl.rundir import RunDir
from agentrl.scores import Evaluations, Score, score
from agentrl.session import Session, counter
from agentrl.stop import Stop, Stopped, signals
from agentrl.task import Task
from agentrl.trackers import JsonLines, TensorBoard, Tracker
from agentrl.world import World, build, sandboxes


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
    nothing is left to do, or for a key that cannot be changed in a run that has begun."""
    run, resolved = reopen(name, overrides, out)
    return asyncio.run(_train(resolved, run, watch or new_watch(live=resolved.config.log.live)))


def evaluate(config: Config, *, watch: Watch | None = None) -> tuple[Score, Sequence[Any]]:
    """(score, episodes) of `config.model` on the held-out tasks."""
    return asyncio.run(_evaluate(config, watch or new_watch(live=config.log.live)))


async def _train(resolved: Resolved, run: RunDir | None, watch: Watch) -> RunResult:
    config, began = resolved.config, time.monotonic()
    async with AsyncExitStack() as stack:
        stop = Stop()
        stack.enter_context(signals(stop, watch.note))
        if run is not None:
            stack.enter_context(run.locked())
        session = await _open(stack, resolved, run, watch, stop)
        watch.begin(_title(resolved, session), steps=config.trainer.steps, rows=session.rows)
        stack.callback(watch.close)
        status = await _work(session)
        watch.phase("writing")
        session.settle()
        paths = session.write_report(resolved.changed()) if status == "finished" and config.log.report else []
        session.write_result(status, time.monotonic() - began)
    return RunResult(
        folder=session.run.path,
        status=status,
        steps=session.step,
        scores=tuple(session.evaluations.scores),
        report=tuple(paths),
    )


async def _work(session: Session) -> Literal["finished", "stopped"]:
    """The run itself: the loop of `trainers.loop` between two evaluations."""
    config = session.config
    try:
        if session.step == 0 and config.eval.at_start:
            await session.evaluate()
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
        await session.evaluate()
    except Stopped:
        return "stopped"
    return "finished"


async def _open(stack: AsyncExitStack, resolved: Resolved, run: RunDir | None, watch: Watch, stop: Stop) -> Session:
    """Opens everything. A new run's folder is made late, so that what cannot start leaves none behind."""
    config = resolved.config
    world = build(config.env, seed=config.seed)
    held_out = _held_out(world, config)
    pool = await stack.enter_async_context(sandboxes(world, config.sandbox))
    loaded = models.load(config.model.id, dtype="float32")  # the backend keeps masters of it and casts the rest
    renderer = assembly.renderer(config, loaded.tokenizer, tools=bool(assembly.tool_names(world.make())))
    backend = assembly.backend(config, loaded, renderer.banned_ids)
    trainer = assembly.trainer(config, backend)
    latest = part("trainers.checkpoint:latest")(run.checkpoints) if run is not None else None
    if latest is not None:
        backend.load(latest.folder)
    step = latest.step if latest is not None else 0
    engine = assembly.engine(config, backend.model, loaded.tokenizer, version=step)
    stack.push_async_callback(engine.aclose)
    if run is None:
        run = rundir.create(resolved)
        stack.enter_context(run.locked())
    else:
        run.write_config(resolved)
    shared = assembly.embedded(engine)
    playing = assembly.resuming(config, engine, loaded.tokenizer)
    setup = assembly.setup(config, world, playing, renderer, pool)
    store = stack.enter_context(contextlib.closing(part("rollout.store:GroupStore")(run.episodes)))
    manager = part("rollout.manager:RolloutManager")(
        setup, world.tasks, store, schedule=assembly.schedule(config), step=step, version=step
    )
    publisher = part("rollout.publish:EnginePublisher")(
        engine,
        mode=config.rollout.mode,
        export=None if shared else backend.export,
        timeout=config.rollout.step_timeout,
    )
    rows = _rows(run, world, store, step)
    return Session(
        run=run,
        config=config,
        source=await stack.enter_async_context(manager),
        transport=publisher,
        trainer=trainer,
        engine=playing,
        backend=backend,
        checkpoints=part("trainers.checkpoint:Checkpoints")(run.checkpoints, keep=config.checkpoint.keep),
        evaluations=Evaluations(run.evals),
        setup=setup,
        held_out=held_out,
        trackers=_trackers(stack, config, run),
        watch=watch,
        phases=Phases(watch),
        stop=stop,
        pauses=shared and not getattr(engine, "packed", False),
        step=step,
        saved=step,
        rows=rows,
    )


def _rows(run: RunDir, world: World, store: Any, step: int) -> list[Mapping[str, Any]]:
    """The rows so far. A kill between a checkpoint and its row loses the row: it is made again from the episodes."""
    rundir.cut_metrics(run.metrics, store.last_step)
    rows: dict[int, Mapping[str, Any]] = {row["step"]: row for row in rundir.read_metrics(run.metrics)}
    lost = [batch for batch in store.trained_batches_after(0) if batch.step <= step and batch.step not in rows]
    for batch in lost:
        groups: list[EpisodeGroup] = [store.group(number, world.tasks.get(number)) for number in batch.groups]
        rows[batch.step] = {"step": batch.step, **of_groups(groups)}
        rundir.append_metrics(run.metrics, rows[batch.step])
    return [rows[number] for number in sorted(rows)]


def _held_out(world: World, config: Config) -> Sequence[Task]:
    if not config.eval.tasks:
        return ()
    try:
        return world.tasks.held_out(config.eval.tasks)
    except ValueError as error:
        raise UsageError(f"eval.tasks={config.eval.tasks}: {error}") from error


def _trackers(stack: AsyncExitStack, config: Config, run: RunDir) -> list[Tracker]:
    trackers: list[Tracker] = [JsonLines(run.metrics)]
    if config.log.tensorboard:
        trackers.append(TensorBoard(run.tensorboard))
    for tracker in trackers:
        stack.callback(tracker.close)
    return trackers


def _title(resolved: Resolved, session: Session) -> str:
    config, presets = resolved.config, resolved.chosen("trainer")
    trained = f", trainer={'+'.join(presets)}" if presets else ""
    gone_on = f", goes on after step {session.step}" if session.step else ""
    return f"{session.run.path}: {config.model.id} in {config.env.id}{trained}{gone_on}"


async def _evaluate(config: Config, watch: Watch) -> tuple[Score, Sequence[Any]]:
    world = build(config.env, seed=config.seed)
    tasks = _held_out(world, config)
    if not tasks:
        raise UsageError("eval.tasks=0 leaves nothing to evaluate")
    async with AsyncExitStack() as stack:
        stop = Stop()
        stack.enter_context(signals(stop, watch.note))
        pool = await stack.enter_async_context(sandboxes(world, config.sandbox))
        part("trainers.backends.local:set_threads")(config.backend.threads)
        loaded = models.load(config.model.id, dtype=config.model.dtype)
        renderer = assembly.renderer(config, loaded.tokenizer, tools=bool(assembly.tool_names(world.make())))
        engine = assembly.engine(config, loaded.model, loaded.tokenizer)
        stack.push_async_callback(engine.aclose)
        playing = assembly.resuming(config, engine, loaded.tokenizer)
        setup = assembly.for_evaluation(config, assembly.setup(config, world, playing, renderer, pool))
        watch.begin(f"{config.model.id} in {config.env.id}: {len(tasks)} held-out tasks", steps=0)
        stack.callback(watch.close)
        total = len(tasks) * config.eval.samples
        try:
            result = await stop.unless(
                part("rollout.evaluate:evaluate")(
                    setup,
                    tasks,
                    samples=config.eval.samples,
                    concurrency=config.engine.slots,
                    progress=counter(watch, "evaluation", total),
                )
            )
        except Stopped:
            raise KeyboardInterrupt from None
    return score(0, result.episodes), result.episodes
