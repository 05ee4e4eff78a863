"""Opening a run, in two parts: first everything that can refuse it, then its folder and what writes there.

Says what it is busy with: models take seconds to load, sandboxes to start. What is opened goes on a stack, which closes it
however the run ends.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

from agentrl import assembly, models, rundir
from agentrl.alarms import Alarms
from agentrl.backend import Backend
from agentrl.compose import Resolved
from agentrl.config import Config
from agentrl.engine import Engine
from agentrl.env_source import compare
from agentrl.errors import Damaged, UsageError
from agentrl.evaluator import Evaluator
from agentrl.live import Watch
from agentrl.logbook import Logbook, rows_so_far
from agentrl.phases import Phases
from agentrl.resume import check_source
from agentrl.rundir import RunDir
from agentrl.sandbox import SandboxPool
from agentrl.scores import Evaluations
from agentrl.session import Session, export
from agentrl.stop import Stop
from agentrl.task import Task
from agentrl.trackers import JsonLines, TensorBoard, Tracker, tensorboard_writer
from agentrl.world import World, build, sandboxes

LOOK_AT = 4
"""Tasks that are looked at before a start: enough to tell a rule from an exception, few enough where reset is slow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The environment's side.

    >>> Place(world=world, held_out=(), pool=None).world.make()     # doctest: +SKIP
    """

    world: World
    held_out: Sequence[Task]
    pool: SandboxPool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What can refuse a run, opened."""

    place: Place
    source: str
    """What the model was loaded from."""
    backend: Backend
    trainer: Any
    engine: Engine
    playing: Engine
    """The engine as episodes see it."""
    setup: Any
    step: int
    """Of the checkpoint that is gone on from."""


async def open_run(stack: AsyncExitStack, resolved: Resolved, run: RunDir | None, watch: Watch, stop: Stop) -> Session:
    """A new run (None), or one to go on with. A new one's folder is made late, and goes again when it cannot begin."""
    config = resolved.config
    if run is None:
        rundir.check_place(config)
    else:
        stack.enter_context(run.locked())
    parts = await _parts(stack, config, run, watch)
    if run is not None:
        run.result.unlink(missing_ok=True)  # of when it ended before
        run.write_config(resolved)
        return await _session(stack, config, run, parts, watch, stop)
    run = rundir.create(resolved, source=parts.source)
    with rundir.removed_if_refused(run):
        stack.enter_context(run.locked())
        return await _session(stack, config, run, parts, watch, stop)


async def open_place(stack: AsyncExitStack, config: Config, watch: Watch) -> Place:
    """Raises UsageError, IsolationError, SandboxError."""
    watch.note(f"opening the environment {config.env.id}")
    world = build(config.env, seed=config.seed)
    held_out = _held_out(world, config)
    if world.spec is not None:
        watch.note(f"opening {config.sandbox.slots} sandboxes ({config.sandbox.backend})")
    pool = await stack.enter_async_context(sandboxes(world, config.sandbox))
    return Place(world=world, held_out=held_out, pool=pool)


async def check_first_prompts(setup: Any, tasks: Sequence[Task], watch: Watch) -> None:
    """Says what is noteworthy of them. Raises UsageError, RolloutError when nothing can come of them."""
    if note := await assembly.check_first_prompts(setup, tasks[:LOOK_AT]):
        watch.note(note)


async def _parts(stack: AsyncExitStack, config: Config, run: RunDir | None, watch: Watch) -> Parts:
    place = await open_place(stack, config, watch)
    if config.log.tensorboard:
        tensorboard_writer()
    watch.note(f"loading the model {config.model.id}")
    loaded = models.load(config.model.id, dtype="float32")  # the backend keeps masters of it and casts the rest
    if run is not None:
        check_source(run, config.model.id, loaded.source)
    watch.note("preparing the trainer and the engine")
    world, tokenizer = place.world, loaded.tokenizer
    renderer = assembly.renderer(config, tokenizer, tools=bool(assembly.tool_names(world.make())))
    backend = assembly.backend(config, loaded, renderer.banned_ids)
    trainer = assembly.trainer(config, backend)  # before the checkpoint: its reference is the initial policy
    step = 0 if run is None else assembly.restore(run, backend, watch.note)
    engine = assembly.engine(config, backend.model, tokenizer, version=step)
    stack.push_async_callback(engine.aclose)
    playing = assembly.resuming(config, engine, tokenizer)
    setup = assembly.setup(config, world, playing, renderer, place.pool)
    if run is None:
        first = [world.tasks.get(number) for number in range(min(LOOK_AT, config.trainer.prompts_per_step))]
        await check_first_prompts(setup, first, watch)
    return Parts(
        place=place,
        source=loaded.source,
        backend=backend,
        trainer=trainer,
        engine=engine,
        playing=playing,
        setup=setup,
        step=step,
    )


async def _session(stack: AsyncExitStack, config: Config, run: RunDir, parts: Parts, watch: Watch, stop: Stop) -> Session:
    world, step, engine = parts.place.world, parts.step, parts.engine
    if note := compare(world.cls, world.tasks, run.code):
        watch.note(note)
    store = stack.enter_context(contextlib.closing(_store(run)))
    rows = rows_so_far(run, world, store, step)
    checkpoints, phases = assembly.checkpoints(config, run), Phases(watch)
    return Session(
        run=run,
        config=config,
        source=await stack.enter_async_context(assembly.manager(config, parts.setup, world, store, step=step)),
        transport=assembly.publisher(config, engine, parts.backend),
        trainer=parts.trainer,
        engine=parts.playing,
        backend=parts.backend,
        checkpoints=checkpoints,
        evaluator=Evaluator(
            config=config,
            setup=parts.setup,
            tasks=parts.place.held_out,
            evaluations=Evaluations(run.evals),
            watch=watch,
            phases=phases,
            stop=stop,
            keep_best=partial(export, checkpoints, parts.backend, phases, "best"),
        ),
        logbook=Logbook(rows=rows, trackers=_trackers(stack, config, run), watch=watch, alarms=_alarms(config, world, rows)),
        watch=watch,
        phases=phases,
        stop=stop,
        pauses=assembly.embedded(engine) and not getattr(engine, "packed", False),
        step=step,
        saved=step,
    )


def _store(run: RunDir) -> Any:
    try:
        return assembly.store(run)
    except Damaged as error:
        raise Damaged(f"{error}, or start a new run from its weights: model={run.checkpoints / 'last'}") from error


def _alarms(config: Config, world: World, rows: Sequence[Mapping[str, Any]]) -> Alarms:
    tools, most = assembly.tool_names(world.make()), config.sampling.max_new_tokens
    return Alarms(tools=tools, max_new_tokens=most, last=rows[-1] if rows else None)


def _held_out(world: World, config: Config) -> Sequence[Task]:
    if not config.eval.tasks:
        return ()
    try:
        return world.tasks.held_out(config.eval.tasks)
    except ValueError as error:
        raise UsageError(f"eval.tasks={config.eval.tasks}: {error}; set eval.tasks to no more than there are") from error


def _trackers(stack: AsyncExitStack, config: Config, run: RunDir) -> list[Tracker]:
    trackers: list[Tracker] = [JsonLines(run.metrics)]
    if config.log.tensorboard:
        trackers.append(TensorBoard(run.tensorboard))
    for tracker in trackers:
        stack.callback(tracker.close)
    return trackers
