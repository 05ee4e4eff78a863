"""The whole model in one process, on one device: the backend of a laptop, and the reference for all others.

Parameters are held in `dtype` (an engine in the same process reads these very tensors), the optimizer works on float32
masters, rows are packed and share their prompts, logits exist for a few tokens at a time.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers.core_model_loading import revert_weight_conversion

from agentrl.backend import Metrics, TokenLoss
from agentrl.errors import UsageError, nearest
from agentrl.sample import Sample
from agentrl.trainers.cpu_threads import set_threads
from agentrl.trainers.logprobs import chunked_logprobs, fused_loss, logprobs_of
from agentrl.trainers.masters import MasterAdamW
from agentrl.trainers.packed_model import PackedModel
from agentrl.trainers.packing import PackedBatch, pack, trained_positions
from agentrl.weights import ShardSpec, WeightLayout

DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32}
"""float16 is left out on purpose: its gradients underflow without loss scaling, which bfloat16 does not need."""


class LocalBackend:
    """An `agentrl.backend.Backend`.

    >>> backend = LocalBackend(model, tokenizer, dtype="bfloat16", threads=1)              # doctest: +SKIP
    >>> backend.step(samples, inputs, loss, denominator=512, lr=1e-5, temperature=1.0)     # doctest: +SKIP
    {'loss': -0.02, 'grad_norm': 0.4, 'computed_tokens': 900.0, 'tokens': 512.0, ...}
    """

    def __init__(
        self,
        model: nn.Module,
        tokenizer: Any = None,
        *,
        dtype: str = "bfloat16",
        weight_decay: float = 0.0,
        betas: Sequence[float] = (0.9, 0.95),
        max_grad_norm: float = 1.0,
        banned_ids: Sequence[int] = (),
        tokens_per_microbatch: int = 2048,
        logits_chunk: int = 128,
        activation_checkpointing: bool = False,
        share_prefix: bool = True,
        threads: int = 0,
    ) -> None:
        """`model` becomes the backend's: its parameters are cast to `dtype` in place and dropout is switched off. `banned_ids`:
        what the engine may not sample; logprobs, entropy and gradients are of the distribution without them, as the
        engine's logprobs are. Raises UsageError for a model that cannot be trained in packed rows."""
        if dtype not in DTYPES:
            raise UsageError(f"there is no dtype {dtype!r} (model.dtype); {nearest(dtype, DTYPES)}")
        if len(betas) != 2 or not all(0 <= beta < 1 for beta in betas):
            raise UsageError(f"betas must be two numbers from 0 to below 1, got {list(betas)}")
        set_threads(threads)
        self._model, self._tokenizer = model.eval(), tokenizer
        self._optimizer = MasterAdamW(
            dict(model.named_parameters()),
            dtype=DTYPES[dtype],
            betas=(betas[0], betas[1]),
            weight_decay=weight_decay,
            max_grad_norm=max_grad_norm,
        )
        self._packed = PackedModel(model, banned_ids=banned_ids, activation_checkpointing=activation_checkpointing)
        self._banned = tuple(banned_ids)
        self._device = self._packed.device
        self._tokens, self._chunk, self._share = tokens_per_microbatch, logits_chunk, share_prefix

    @property
    def model(self) -> nn.Module:
        return self._model

    def logprobs(self, samples: Sequence[Sample], *, temperature: float) -> list[Tensor]:
        return packed_logprobs(
            self._packed, samples, temperature=temperature, tokens=self._tokens, chunk=self._chunk, share_prefix=self._share
        )

    def frozen(self) -> FrozenModel:
        """The model as it is now, in memory of its own, for reference logprobs. Take it before `load`."""
        return FrozenModel(
            copy.deepcopy(self._model),
            banned_ids=self._banned,
            tokens=self._tokens,
            chunk=self._chunk,
            share_prefix=self._share,
        )

    def step(
        self,
        samples: Sequence[Sample],
        inputs: Sequence[Mapping[str, Tensor]],
        loss: TokenLoss,
        *,
        denominator: float,
        lr: float,
        temperature: float,
    ) -> Metrics:
        _check_inputs(samples, inputs, denominator, temperature)
        metrics: dict[str, float] = {"loss": 0.0, "computed_tokens": 0.0}
        self._optimizer.zero_grad()
        for batch in pack(samples, tokens=self._tokens, share_prefix=self._share):
            row_inputs = {k: v.to(self._device) for k, v in _concatenate(batch, inputs).items()}
            value, sums = self._accumulate(batch.to(self._device), row_inputs, loss, 1.0 / denominator, temperature)
            metrics["loss"] += value
            metrics["computed_tokens"] += batch.tokens
            _add(metrics, sums)
        metrics["grad_norm"] = self._optimizer.step(lr)
        metrics["threads"] = float(torch.get_num_threads())
        return metrics

    def _accumulate(
        self, batch: PackedBatch, inputs: Mapping[str, Tensor], loss: TokenLoss, factor: float, temperature: float
    ) -> tuple[float, list[Mapping[str, Tensor]]]:
        """Adds one row's gradient. Returns (factor * loss, sums of metrics)."""
        head = self._packed.head
        hidden = self._packed.hidden(batch)
        if not loss.per_token:
            logprobs, entropy = chunked_logprobs(hidden, head, batch.targets, temperature=temperature, chunk=self._chunk)
            total, sums = loss(logprobs, entropy if loss.needs_entropy else None, inputs)
            (total * factor).backward()
            return total.item() * factor, [sums]

        gradient, value, sums_of_chunks = fused_loss(
            hidden,
            head,
            batch.targets,
            inputs,
            loss,
            temperature=temperature,
            chunk=self._chunk,
            factor=factor,
            add_weight=self._adder(head.weight),
            add_bias=self._adder(head.bias),
        )
        if hidden.requires_grad:  # not where the output layer alone is trained
            hidden.backward(gradient)
        return value, sums_of_chunks

    def _adder(self, parameter: Tensor | None) -> Callable[[Tensor], None] | None:
        """What takes the gradients of an output layer's parameter; None when it is not trained."""
        if parameter is None or not self._optimizer.holds(parameter):
            return None
        return partial(self._optimizer.add_gradient, parameter)

    def layout(self) -> WeightLayout:
        specs = [
            ShardSpec(name=name, shape=tuple(t.shape), start=(0,) * t.ndim, stop=tuple(t.shape)) for name, t in self.export()
        ]
        return {0: tuple(specs)}

    def export(self) -> Iterator[tuple[str, Tensor]]:
        """Names as in Hugging Face checkpoints: fused experts are taken apart, a tied output layer is not repeated."""
        model: Any = self._model
        tensors = {name: p.detach() for name, p in model.named_parameters()}
        yield from revert_weight_conversion(model, tensors).items()

    def save(self, folder: Path) -> None:
        self._optimizer.save(folder)

    def load(self, folder: Path) -> None:
        self._optimizer.load(folder)

    def save_pretrained(self, folder: Path) -> None:
        model: Any = self._model
        model.save_pretrained(folder)
        if self._tokenizer is not None:
            self._tokenizer.save_pretrained(folder)

    def offload(self) -> None:
        """Masters and optimizer state to the host's memory. On a CPU they are there already."""
        self._optimizer.move(torch.device("cpu"))

    def onload(self) -> None:
        self._optimizer.move(self._device)


class FrozenModel:
    """A model that only gives logprobs: the reference policy."""

    def __init__(self, model: nn.Module, *, banned_ids: Sequence[int], tokens: int, chunk: int, share_prefix: bool) -> None:
        self._packed = PackedModel(model.requires_grad_(False), banned_ids=banned_ids)
        self._tokens, self._chunk, self._share = tokens, chunk, share_prefix

    def logprobs(self, samples: Sequence[Sample], *, temperature: float) -> list[Tensor]:
        """As `Backend.logprobs`."""
        return packed_logprobs(
            self._packed, samples, temperature=temperature, tokens=self._tokens, chunk=self._chunk, share_prefix=self._share
        )


@torch.no_grad()
def packed_logprobs(
    packed: PackedModel, samples: Sequence[Sample], *, temperature: float, tokens: int, chunk: int, share_prefix: bool
) -> list[Tensor]:
    """For each sample [n] float32, on the CPU: the logprob of each trained id, 0 elsewhere."""
    _check_temperature(temperature)
    out = [torch.zeros(len(sample)) for sample in samples]
    for batch in pack(samples, tokens=tokens, share_prefix=share_prefix):
        batch = batch.to(packed.device)
        hidden = packed.hidden(batch)
        values, _ = logprobs_of(hidden, packed.head, batch.targets, temperature=temperature, chunk=chunk)
        for i, own in zip(batch.samples, values.cpu().split(list(batch.counts)), strict=True):
            out[i][trained_positions(samples[i])] = own
    return out


def _concatenate(batch: PackedBatch, inputs: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The row's inputs, each [N], in the order of its targets; `sequence` numbers its samples."""
    names = inputs[batch.samples[0]].keys()
    joined = {name: torch.cat([inputs[i][name] for i in batch.samples]) for name in names}
    joined["sequence"] = torch.repeat_interleave(torch.arange(len(batch.counts)), torch.tensor(batch.counts))
    return joined


def _add(metrics: dict[str, float], parts: list[Mapping[str, Tensor]]) -> None:
    for part in parts:
        for name, value in part.items():
            if name.endswith("_max"):
                metrics[name] = max(metrics.get(name, -float("inf")), float(value))
            else:
                metrics[name] = metrics.get(name, 0.0) + float(value)


def _check_inputs(
    samples: Sequence[Sample], inputs: Sequence[Mapping[str, Tensor]], denominator: float, temperature: float
) -> None:
    _check_temperature(temperature)
    if not denominator > 0:
        raise ValueError(f"the loss's denominator must be above 0, got {denominator}")
    if len(samples) != len(inputs):
        raise ValueError(f"{len(samples)} samples but inputs for {len(inputs)}")
    for sample, tensors in zip(samples, inputs, strict=True):
        if tensors.keys() != inputs[0].keys():
            raise ValueError(f"sample of episode {sample.episode} has inputs {sorted(tensors)}, the first {sorted(inputs[0])}")
        for name, tensor in tensors.items():
            if tensor.shape != (sample.trained_tokens,):
                raise ValueError(
                    f"sample of episode {sample.episode}: input {name!r} has shape {tuple(tensor.shape)}, "
                    f"but {sample.trained_tokens} tokens are trained"
                )


def _check_temperature(temperature: float) -> None:
    if not temperature > 0:
        raise ValueError(
            f"logprobs need a temperature above 0, got {temperature}: greedy sampling has no distribution to train"
        )
