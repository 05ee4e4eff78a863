"""What a run would do, worked out from its config: who runs where, how much memory, how many episodes and tokens.

Loads no weights and opens nothing. Sizes of a model come from the headers of its files where they are on this machine.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentrl import models
from agentrl.compose import Resolved
from agentrl.config import Config
from agentrl.errors import UsageError
from agentrl.world import World, build

GIB = 1 << 30
BYTES = {"bfloat16": 2, "float16": 2, "float32": 4}

OPTIMIZER_BYTES = 4 + 4 + 8
"""Of each parameter, beside the one that the engine reads: float32 gradient and master, AdamW's two moments."""

ACTIVATION_BYTES = 34
"""Kept for the backward pass, of each token, layer and hidden unit at two bytes a number [Korthikanti et al. 2022,
arXiv 2205.05198, table 2, without attention scores]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The sizes of a model that memory depends on.

    >>> Shape(parameters=135_000_000, layers=30, hidden=576, kv_width=192).kv_bytes(1024, "bfloat16") >> 20
    22
    """

    parameters: int
    layers: int
    hidden: int
    kv_width: int
    """Numbers that one layer caches for the keys of one token (and as many for its values)."""

    def kv_bytes(self, tokens: int, dtype: str) -> int:
        return 2 * self.layers * self.kv_width * tokens * BYTES[dtype]


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """One line of the plan: what runs, where, and how many bytes it takes (None: not known)."""

    name: str
    where: str
    what: str
    bytes: int | None


def lines(resolved: Resolved) -> list[str]:
    """The plan, for `--dry-run`. Raises UsageError as the run itself would."""
    config = resolved.config
    world = build(config.env, seed=config.seed)
    shape = shape_of(config.model.id)
    return [
        *table(roles(config, world, shape)),
        "",
        *arithmetic(config, world),
        "",
        "settings that are not defaults:",
        *(f"  {key:32} {text}" for key, text in resolved.changed().items()),
    ]


def roles(config: Config, world: World, shape: Shape | None) -> Iterator[Role]:
    """Who runs where, in the order in which a step needs them."""
    here = "cpu, this process"
    slots, context = config.engine.slots, config.engine.max_context
    size = None if shape is None else shape.parameters * BYTES[config.model.dtype]
    yield Role(name="model", where=here, what=_model(config, shape), bytes=size)
    cache = None if shape is None else shape.kv_bytes(slots * context * 3 // 2, config.model.dtype)
    text = f"KV cache for {slots} sequences of {context} tokens, and prefixes; samples with the model above"
    yield Role(name="engine", where=here, what=text, bytes=cache)
    yield Role(name="trainer", where=here, what="float32 gradients and masters, AdamW", bytes=_optimizer(shape))
    text = f"activations of {config.trainer.tokens_per_microbatch} tokens"
    yield Role(name="", where=here, what=text, bytes=_activations(config, shape))
    if config.trainer.kl != "none":
        yield Role(name="reference", where=here, what="a frozen copy of the model", bytes=size)
    yield Role(name="environments", where=here, what=f"{world.cls.__name__}, one thread for each call", bytes=0)
    if world.spec is not None:
        slots = config.sandbox.slots
        text = f"{config.sandbox.backend}, {slots} at once, each at most {world.spec.memory}"
        yield Role(name="sandboxes", where="cpu, own processes", what=text, bytes=slots * world.spec.memory_bytes)


def arithmetic(config: Config, world: World) -> Iterator[str]:
    """How many episodes and tokens, and how often what happens."""
    trainer, sampling = config.trainer, config.sampling
    episodes = trainer.prompts_per_step * trainer.samples_per_prompt
    turns = world.args.get("max_turns", world.cls.max_turns)
    optimizer_steps = trainer.epochs * trainer.minibatches
    yield (
        f"step     {trainer.prompts_per_step} prompts x {trainer.samples_per_prompt} samples = {episodes} episodes of at most "
        f"{turns} turns x {sampling.max_new_tokens} new tokens, at most {sampling.max_episode_tokens} tokens in all"
    )
    yield (
        f"         at most {episodes * sampling.max_episode_tokens:,} tokens to train on, {trainer.tokens_per_microbatch} at a "
        f"time; {optimizer_steps} optimizer step{'s' if optimizer_steps > 1 else ''}, lr {trainer.lr:g}"
    )
    yield f"run      {trainer.steps} steps = {trainer.steps * episodes:,} episodes; staleness {config.rollout.staleness}"
    yield f"eval     {_evaluations(config)}"
    keep = config.checkpoint.keep
    yield f"saved    a checkpoint every {config.checkpoint.every} steps, the last {keep} kept, in {config.out}/"


def table(rows: Iterator[Role] | Sequence[Role]) -> list[str]:
    """Aligned columns, with the sum of what is known."""
    rows = list(rows)
    wide = max(len(row.what) for row in rows)
    out = [f"{'role':13} {'where':19} {'what':{wide}}     GiB"]
    out += [f"{r.name:13} {r.where:19} {r.what:{wide}} {_gib(r.bytes):>7}" for r in rows]
    known = sum(r.bytes or 0 for r in rows)
    more = " and the model, whose size is not known yet" if any(r.bytes is None for r in rows) else ""
    return [*out, f"{'':13} {'':19} {'at most':{wide}} {_gib(known):>7}{more}"]


def shape_of(id: str) -> Shape | None:
    """The sizes of a model whose files are on this machine; None for one that is not here, or that is random."""
    folder = models.cached().get(id.partition("@")[0], Path(id).expanduser())
    for place in (folder, *(folder / name for name in models.CHECKPOINTS)):
        if (place / "config.json").is_file():
            return _shape(json.loads((place / "config.json").read_text()), place)
    return None


def _shape(config: Mapping[str, Any], folder: Path) -> Shape:
    config = config.get("text_config", config)
    heads = config.get("num_attention_heads", 1)
    head = config.get("head_dim") or config["hidden_size"] // heads
    return Shape(
        parameters=sum(map(_numbers, folder.glob("*.safetensors"))),
        layers=config["num_hidden_layers"],
        hidden=config["hidden_size"],
        kv_width=(config.get("num_key_value_heads") or heads) * head,
    )


def _numbers(file: Path) -> int:
    """How many numbers a safetensors file holds, by its header."""
    with open(file, "rb") as f:
        (length,) = struct.unpack("<Q", f.read(8))
        header = json.loads(f.read(length))
    total = 0
    for name, tensor in header.items():
        if name == "__metadata__":
            continue
        count = 1
        for side in tensor["shape"]:
            count *= side
        total += count
    return total


def _model(config: Config, shape: Shape | None) -> str:
    size = "" if shape is None else f", {shape.parameters / 1e6:.0f} M parameters"
    return f"{config.model.id}{size}, {config.model.dtype}"


def _optimizer(shape: Shape | None) -> int | None:
    return None if shape is None else shape.parameters * OPTIMIZER_BYTES


def _activations(config: Config, shape: Shape | None) -> int | None:
    if shape is None:
        return None
    layers = 1 if config.backend.activation_checkpointing else shape.layers
    return config.trainer.tokens_per_microbatch * shape.hidden * layers * ACTIVATION_BYTES * BYTES[config.model.dtype] // 2


def _evaluations(config: Config) -> str:
    evaluation = config.eval
    if not evaluation.tasks:
        return "none (eval.tasks=0)"
    steps = {config.trainer.steps} | ({0} if evaluation.at_start else set())
    if evaluation.every:
        steps |= set(range(evaluation.every, config.trainer.steps + 1, evaluation.every))
    each = evaluation.tasks * evaluation.samples
    return (
        f"{len(steps)} x {evaluation.tasks} held-out tasks x {evaluation.samples} = {len(steps) * each:,} episodes, "
        f"after steps {', '.join(map(str, sorted(steps)))}"
    )


def _gib(size: int | None) -> str:
    return "?" if size is None else "-" if size == 0 else f"{size / GIB:.2f}"


def check_memory(resolved: Resolved, free: int) -> str:
    """A line when the plan needs more than what is free; empty when it fits or is not known."""
    world = build(resolved.config.env, seed=resolved.config.seed)
    try:
        rows = list(roles(resolved.config, world, shape_of(resolved.config.model.id)))
    except (KeyError, ValueError) as error:
        raise UsageError(f"the model's config.json cannot be read: {error}") from error
    need = sum(row.bytes or 0 for row in rows if row.name != "sandboxes")  # their limit is rarely reached
    if need <= free:
        return ""
    hint = "lower engine.slots or trainer.tokens_per_microbatch"
    return f"note: about {need / GIB:.1f} GiB are needed and {free / GIB:.1f} are free; {hint}"
