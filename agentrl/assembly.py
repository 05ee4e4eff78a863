"""How the parts of a run are made from its config, each by name. The only place, with `agentrl.run`, that knows the parts.

Functions only; who opens what, and in which order it is closed, is written in `agentrl.run`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from agentrl import models, registry
from agentrl.backend import Backend
from agentrl.config import Config
from agentrl.engine import Engine, Sampling
from agentrl.episode import Episode
from agentrl.errors import UsageError
from agentrl.person import CONTEXT
from agentrl.renderer import Renderer
from agentrl.rundir import RunDir
from agentrl.sandbox import SandboxPool
from agentrl.task import Task
from agentrl.toolbox import toolbox
from agentrl.weights import WeightTransport
from agentrl.world import World


def part(where: str) -> Any:
    """A name of a part, "rollout.store:GroupStore". Parts import nothing of each other and are found here at run time."""
    module, _, name = where.partition(":")
    return getattr(importlib.import_module(f"agentrl.{module}"), name)


def tool_names(env: Any) -> tuple[str, ...]:
    """What the agent may call in `env`, methods marked with @tool included. Raises UsageError for an unknown tool."""
    return tuple(spec.name for spec in toolbox(env).specs)


def renderer(config: Config, tokenizer: Any, *, tools: bool) -> Renderer:
    """`tools`: whether the environment has any. Raises UsageError when the template cannot be extended without changing what
    was sampled."""
    history: Any = config.model.history
    args, form = config.model.chat_template_args, config.model.tool_format
    out = Renderer(tokenizer, history=history, chat_template_args=args, tool_format=form)
    report = out.self_test(tools=tools)
    if not report.ok:
        raise UsageError(f"the chat template of model={config.model.id} fails its self-test: {report}")
    return out


def backend(config: Config, loaded: models.Loaded, banned_ids: Sequence[int]) -> Backend:
    """The trainer's side of the model. `banned_ids`: the renderer's, which the engine never samples."""
    made: Backend = registry.find("backend", config.backend.name)(
        loaded.model,
        loaded.tokenizer,
        dtype=config.model.dtype,
        weight_decay=config.trainer.weight_decay,
        betas=config.trainer.betas,
        max_grad_norm=config.trainer.max_grad_norm,
        banned_ids=banned_ids,
        tokens_per_microbatch=config.trainer.tokens_per_microbatch,
        logits_chunk=config.backend.logits_chunk,
        activation_checkpointing=config.backend.activation_checkpointing,
        threads=config.backend.threads,
    )
    return made


def engine(config: Config, model: Any, tokenizer: Any, *, version: int = 0) -> Engine:
    """The sampler's side of the model."""
    made: Engine = registry.find("engine", config.engine.name)(
        model,
        slots=config.engine.slots,
        max_context=config.engine.max_context,
        threads=config.backend.threads,
        version=version,
        request_timeout=config.engine.request_timeout,
        decode=tokenizer.decode,
    )
    return made


def resuming(config: Config, engine: Engine, tokenizer: Any) -> Engine:
    """The engine as episodes see it: what an update cuts off goes on. The embedded engine's random numbers go by position."""
    made: Engine = part("rollout.engines.resuming:ResumingEngine")(
        engine,
        decode=tokenizer.decode,
        reseed=not embedded(engine),
        timeout=config.rollout.step_timeout,
    )
    return made


def set_threads(config: Config) -> None:
    """CPU threads of torch, where no backend sets them."""
    part("trainers.cpu_threads:set_threads")(config.backend.threads)


def embedded(engine: Engine) -> bool:
    """Does it read the trainer's own parameters?"""
    return isinstance(engine, registry.find("engine", "torch"))


def trainer(config: Config, backend: Any) -> Any:
    """The algorithm on a backend that holds the initial weights: the reference policy is copied from them."""
    reference = backend.frozen() if config.trainer.kl != "none" else None
    return part("trainers.trainer:Trainer")(
        backend,
        config.trainer,
        temperature=config.sampling.temperature,
        top_p=config.sampling.top_p,
        top_k=config.sampling.top_k,
        reference=reference,
        seed=config.seed,
    )


def setup(config: Config, world: World, engine: Any, renderer: Renderer, pool: SandboxPool | None) -> Any:
    """All that playing training episodes needs."""
    sampling = config.sampling
    return part("rollout.group:Setup")(
        make_env=world.make,
        engine=engine,
        renderer=renderer,
        sampling=Sampling(temperature=sampling.temperature, top_p=sampling.top_p, top_k=sampling.top_k),
        limits=part("rollout.limits:Limits")(
            max_new_tokens=sampling.max_new_tokens,
            max_episode_tokens=sampling.max_episode_tokens,
            episode_timeout=config.rollout.episode_timeout,
            turn_timeout=config.rollout.turn_timeout,
        ),
        pool=pool,
        seed=config.seed,
        retries=config.rollout.retries,
    )


def for_evaluation(config: Config, setup: Any) -> Any:
    """The same, with the temperature of evaluations and no cut of the distribution."""
    return replace(setup, sampling=Sampling(temperature=config.eval.temperature))


def schedule(config: Config) -> Any:
    """How the rollout manager goes about its groups."""
    rollout = config.rollout
    return part("rollout.manager:Schedule")(
        samples_per_prompt=config.trainer.samples_per_prompt,
        staleness=rollout.staleness,
        max_groups=rollout.max_groups,
        on_abort=rollout.on_abort,
        max_abort_rate=rollout.max_abort_rate,
        filter_groups=config.trainer.filter_groups,
        step_timeout=rollout.step_timeout,
        steps=config.trainer.steps,
    )


def store(run: RunDir) -> Any:
    """The groups of a run, on its disk. Raises Damaged."""
    return part("rollout.store:GroupStore")(run.episodes)


def manager(config: Config, setup: Any, world: World, store: Any, *, step: int) -> Any:
    """Where the trainer's batches come from; `step`: of the checkpoint that is gone on from."""
    made = part("rollout.manager:RolloutManager")
    return made(setup, world.tasks, store, schedule=schedule(config), step=step, version=step)


def publisher(config: Config, engine: Engine, backend: Backend) -> WeightTransport:
    """From the trainer to the engine; nothing is sent where both have the same parameters."""
    made: WeightTransport = part("rollout.publish:EnginePublisher")(
        engine,
        mode=config.rollout.mode,
        export=None if embedded(engine) else backend.export,
        timeout=config.rollout.step_timeout,
    )
    return made


def checkpoints(config: Config, run: RunDir) -> Any:
    """The run's checkpoints, to be written."""
    return part("trainers.checkpoint:Checkpoints")(run.checkpoints, keep=config.checkpoint.keep)


def restore(run: RunDir, backend: Backend, say: Callable[[str], None]) -> int:
    """Loads the run's newest whole checkpoint and returns its steps; 0 when it has none. Raises UsageError."""
    checkpoint = part("trainers.restore:restore")(run.checkpoints, backend.load, say)
    return 0 if checkpoint is None else int(checkpoint.step)


def exported_step(folder: Path | None) -> int | None:
    """The training steps behind a model that a run has exported; None for any other."""
    step: int | None = None if folder is None else part("trainers.checkpoint:exported_step")(folder)
    return step


async def check_first_prompts(setup: Any, tasks: Sequence[Task]) -> str:
    """A note about the first prompts. Raises UsageError, RolloutError when nothing can come of them."""
    note: str = await part("rollout.first_prompts:check_first_prompts")(setup, tasks)
    return note


async def play_by_hand(
    env: Any,
    engine: Any,
    renderer: Any,
    task: Task,
    *,
    seed: int,
    pool: SandboxPool | None,
    seconds: float,
    turn_timeout: float,
) -> Episode:
    """One episode with `agentrl.person`'s renderer and what stands in for the engine: no budget of tokens, `seconds` in all."""
    limits = part("rollout.limits:Limits")(
        max_new_tokens=CONTEXT, max_episode_tokens=CONTEXT, episode_timeout=seconds, turn_timeout=turn_timeout
    )
    episode: Episode = await part("rollout.loop:play")(
        env, engine, renderer, task, seed=seed, sampling=Sampling(), limits=limits, pool=pool, id="play"
    )
    return episode


async def play_held_out(
    config: Config, setup: Any, tasks: Sequence[Task], progress: Callable[[Episode], None]
) -> tuple[Episode, ...]:
    """The episodes of an evaluation; `setup` is that of training."""
    episodes: tuple[Episode, ...] = await part("rollout.evaluate:evaluate")(
        for_evaluation(config, setup),
        tasks,
        samples=config.eval.samples,
        concurrency=config.engine.slots,
        progress=progress,
    )
    return episodes
