"""Checks of a config that types cannot express: names from a fixed set, ranges, and values that must fit together.

Each answer is one line that names the key, its value, what must hold and what to do. Nothing here loads or opens anything.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from agentrl.config import Config
from agentrl.errors import UsageError, nearest
from agentrl.parsers import FORMATS

CHOICES: dict[str, tuple[str, ...]] = {
    "model.dtype": ("bfloat16", "float32"),
    "model.history": ("keep", "fork"),
    "model.tool_format": ("auto", *FORMATS),
    "rollout.mode": ("keep", "abort"),
    "rollout.on_abort": ("mask", "drop", "stop"),
    "sandbox.isolation": ("auto", "namespace+cgroup", "namespace", "landlock"),
    "trainer.loss": ("clip",),
    "trainer.advantage": ("group_norm", "group_mean", "leave_one_out", "batch_mean"),
    "trainer.loss_denominator": ("tokens", "sequences"),
    "trainer.kl": ("none", "k1", "k2", "k3"),
    "trainer.old_logprobs": ("engine", "recompute"),
    "trainer.correction": ("none", "tis"),
    "trainer.lr_schedule": ("constant", "linear", "cosine"),
}

AT_LEAST_ONE = (
    "engine.slots",
    "engine.max_context",
    "sampling.max_new_tokens",
    "sampling.max_episode_tokens",
    "sandbox.slots",
    "trainer.steps",
    "trainer.prompts_per_step",
    "trainer.samples_per_prompt",
    "trainer.epochs",
    "trainer.minibatches",
    "trainer.tokens_per_microbatch",
    "backend.logits_chunk",
    "eval.samples",
    "checkpoint.every",
    "checkpoint.keep",
)

NOT_NEGATIVE = (
    "sampling.temperature",
    "sampling.top_k",
    "rollout.staleness",
    "rollout.max_groups",
    "rollout.retries",
    "trainer.clip_low",
    "trainer.clip_high",
    "trainer.dual_clip",
    "trainer.kl_coef",
    "trainer.entropy_coef",
    "trainer.warmup_steps",
    "trainer.weight_decay",
    "trainer.max_grad_norm",
    "backend.threads",
    "eval.every",
    "eval.tasks",
    "eval.temperature",
    "seed",
)

ABOVE_ZERO = (
    "engine.request_timeout",
    "rollout.episode_timeout",
    "rollout.turn_timeout",
    "rollout.step_timeout",
    "trainer.correction_cap",
    "trainer.lr",
)

UP_TO_ONE = ("sampling.top_p", "rollout.max_abort_rate")


def get(config: Config, key: str) -> Any:
    """The value behind a dotted key."""
    value: Any = config
    for name in key.split("."):
        value = getattr(value, name)
    return value


def validate(config: Config) -> None:
    """Raises UsageError with the first thing that is wrong."""
    for problem in problems(config):
        raise UsageError(problem)


def problems(config: Config) -> Iterator[str]:
    """Everything that is wrong, one line each: first single keys, then what must fit together."""
    yield from _names(config)
    yield from _ranges(config)
    yield from _tokens(config)
    yield from _batch(config)
    yield from _policy(config)


def _names(config: Config) -> Iterator[str]:
    for key, valid in CHOICES.items():
        value = get(config, key)
        if value not in valid:
            yield f"{key}={value!r} is not known; {nearest(str(value), valid)}"
    if any(sep in config.run for sep in ("/", "\\", "\0")) or config.run in (".", ".."):
        yield f"run={config.run!r} must be a name without slashes; the folder that runs lie in is out={config.out}"


def _ranges(config: Config) -> Iterator[str]:
    for key in AT_LEAST_ONE:
        if get(config, key) < 1:
            yield f"{key}={get(config, key)} must be at least 1"
    for key in NOT_NEGATIVE:
        if not get(config, key) >= 0:
            yield f"{key}={get(config, key)} must not be negative"
    for key in ABOVE_ZERO:
        if not 0 < get(config, key) < math.inf:
            yield f"{key}={get(config, key)} must be above 0 and finite"
    for key in UP_TO_ONE:
        if not 0 < get(config, key) <= 1:
            yield f"{key}={get(config, key)} must be above 0 and at most 1"
    betas = config.trainer.betas
    if len(betas) != 2 or not all(0 <= b < 1 for b in betas):
        yield f"trainer.betas={betas} must be two numbers from 0 to below 1, as in [0.9,0.95]"


def _tokens(config: Config) -> Iterator[str]:
    sampling, context = config.sampling, config.engine.max_context
    if sampling.max_new_tokens >= context:
        yield (
            f"sampling.max_new_tokens={sampling.max_new_tokens} leaves no room for a prompt in "
            f"engine.max_context={context}; lower the first or raise the second"
        )
    if sampling.max_episode_tokens > context:
        yield (
            f"sampling.max_episode_tokens={sampling.max_episode_tokens} is more than engine.max_context={context} can hold; "
            f"lower the first or raise the second"
        )
    if sampling.temperature == 0:
        yield "sampling.temperature=0 makes all samples of a group equal: nothing can be learnt; use 1.0"


def _batch(config: Config) -> Iterator[str]:
    trainer = config.trainer
    if trainer.minibatches > 0 and trainer.prompts_per_step % trainer.minibatches:
        fitting = [n for n in range(1, trainer.prompts_per_step + 1) if trainer.prompts_per_step % n == 0]
        best = min(fitting, key=lambda n: abs(n - trainer.minibatches))
        yield (
            f"trainer.minibatches={trainer.minibatches} must divide trainer.prompts_per_step={trainer.prompts_per_step} "
            f"(a minibatch holds whole groups of siblings); {best} does"
        )
    if trainer.samples_per_prompt == 1 and trainer.advantage != "batch_mean":
        yield (
            f"trainer.samples_per_prompt=1 gives trainer.advantage={trainer.advantage} nothing to compare; "
            f"use at least 2, or trainer=reinforce"
        )
    if trainer.samples_per_prompt == 1 and trainer.filter_groups:
        yield "trainer.filter_groups=true drops every group of trainer.samples_per_prompt=1; use at least 2 samples"
    groups, need = config.rollout.max_groups, trainer.prompts_per_step
    if 0 < groups < need:
        yield (
            f"rollout.max_groups={groups} is below trainer.prompts_per_step={need}: a step could never be filled; "
            f"use 0 or at least {need}"
        )


def _policy(config: Config) -> Iterator[str]:
    trainer, rollout = config.trainer, config.rollout
    if trainer.kl == "none" and trainer.kl_coef:
        yield f"trainer.kl_coef={trainer.kl_coef} has no effect with trainer.kl=none; set trainer.kl=k3 (or k1, k2)"
    if trainer.kl != "none" and not trainer.kl_coef:
        yield f"trainer.kl={trainer.kl} has no effect with trainer.kl_coef=0; set trainer.kl_coef=0.001, for one"
    if trainer.clip_low > 1:
        yield f"trainer.clip_low={trainer.clip_low} must be at most 1: a ratio of probabilities is not negative"
    if 0 < trainer.dual_clip <= 1:
        yield f"trainer.dual_clip={trainer.dual_clip} must be above 1 (3 is usual), or 0 for off"
    if trainer.correction != "none" and trainer.old_logprobs != "recompute":
        yield (
            f"trainer.correction={trainer.correction} weighs engine against recomputed logprobs; "
            f"set trainer.old_logprobs=recompute with it"
        )
    cut = config.sampling.top_p < 1 or config.sampling.top_k
    if cut and (trainer.old_logprobs == "engine" or trainer.correction != "none"):
        yield (
            f"sampling.top_p={config.sampling.top_p}, top_k={config.sampling.top_k} renormalize the engine's logprobs, which "
            f"the trainer's cannot be compared with; set top_p=1 and top_k=0, or trainer.old_logprobs=recompute"
        )
    if rollout.staleness and trainer.old_logprobs == "recompute" and trainer.correction == "none":
        yield (
            f"rollout.staleness={rollout.staleness} with trainer.old_logprobs=recompute forgets who sampled the tokens; "
            f"use trainer.old_logprobs=engine, or add trainer.correction=tis"
        )
    if rollout.mode == "abort" and not rollout.staleness:
        yield "rollout.mode=abort has no effect with rollout.staleness=0 (nothing is in flight then); set rollout.staleness=1"
    if config.eval.every and not config.eval.tasks:
        yield f"eval.every={config.eval.every} with eval.tasks=0 evaluates nothing; set eval.tasks"
