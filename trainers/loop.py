"""The third loop: take a batch, step, publish, log.

Consumes groups from an EpisodeSource (the rollout manager, or episodes on disk), produces policy versions through a
WeightTransport. Waits for `next_batch` (unblocked by the manager, or its deadline) and for `publish` (unblocked by the
engines' acknowledgement, or their deadline); the step itself runs in a thread, so the event loop never blocks. It knows
nothing of how any of them work. Version v of the policy is the one after v steps. A run that goes on from a checkpoint
starts at its steps; what was trained after it comes from the source again, as any other batch, and trains to the same policy.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

from agentrl.episode import EpisodeSource
from agentrl.weights import WeightTransport

from .trainer import Trainer

OnStep = Callable[[int, Mapping[str, float]], Awaitable[None]]
"""(steps done, metrics), after the step's policy is in the engines."""

Save = Callable[[int], None]
"""(steps done): saves a checkpoint. Called in the trainer's thread."""

Pause = Callable[[], Awaitable[None]]
"""Before each step: stops an engine that reads the trainer's own parameters, which the step changes one after the other, so
that it never serves a mix. Publishing lets it go on."""


async def train(
    source: EpisodeSource,
    trainer: Trainer,
    transport: WeightTransport,
    *,
    steps: int,
    prompts: int,
    start: int = 0,
    on_step: OnStep | None = None,
    save: Save | None = None,
    save_every: int = 1,
    pause: Pause | None = None,
) -> None:
    """Steps `start` to `steps` - 1, each on `prompts` groups. Saves after every `save_every` steps and after the last.
    Raises whatever its parts raise; nothing is retried here."""
    loop = asyncio.get_running_loop()
    # One thread for all steps: each thread that computes would start OpenMP threads of its own.
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="agentrl-trainer") as thread:
        for step in range(start, steps):
            groups = await source.next_batch(prompts)
            if pause is not None:
                await pause()
            metrics = await loop.run_in_executor(thread, trainer.step, groups, step)
            version = await transport.publish(step + 1)
            await source.trained(groups, step=step + 1, version=version)
            if save is not None and ((step + 1) % save_every == 0 or step + 1 == steps):
                await loop.run_in_executor(thread, save, step + 1)
            if on_step is not None:
                await on_step(step + 1, {**metrics, **source.metrics(), "version": float(version)})
