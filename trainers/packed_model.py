"""A causal LM that runs packed rows: the trainer's view of the model.

The view shares every parameter and buffer with the model it was made from (no copy, the engine in the same process sees
each update), but has a config of its own, so that its attention can be the packed one while the engine's stays as it is.
T: tokens of a row, N: its trained tokens, H: hidden size.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers.modeling_layers import GradientCheckpointingLayer

from agentrl.errors import UsageError
from agentrl.sample import Sample

from .attention import NAME, RowPlan
from .logprobs import Head
from .packing import PackedBatch, pack

LAYER_TYPES = {"full_attention", "sliding_attention"}

TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 0.1}
"""Relative error between packed and plain hidden states that rounding explains; a mixed-up row is off by about 1."""


class PackedModel:
    """Raises UsageError, when it is made, for a model whose packed results differ from its plain ones."""

    def __init__(self, model: nn.Module, *, banned_ids: Sequence[int] = (), activation_checkpointing: bool = False) -> None:
        """`banned_ids`: what engines never sample; the softmax leaves them out."""
        self._view = _view(model)
        self._config: Any = self._view.config
        self._check_layers()
        self.head = Head.of(self._view)
        if activation_checkpointing:
            _checkpoint_layers(self._view)
        self._check_results()  # of the whole distribution, as the plain model gives it
        self.head = self.head.without(banned_ids)

    @property
    def device(self) -> torch.device:
        return self.head.weight.device

    def hidden(self, batch: PackedBatch) -> Tensor:
        """[N, H]: the last hidden states from which the trained tokens are predicted."""
        return self._all_hidden(batch).index_select(0, batch.sources)

    def _all_hidden(self, batch: PackedBatch) -> Tensor:
        decoder: Any = self._view.base_model
        out = decoder(
            input_ids=batch.ids[None],
            position_ids=batch.position_ids[None],
            use_cache=False,
            packed=RowPlan(batch.segments),
        )
        hidden: Tensor = out.last_hidden_state[0]
        return hidden

    def _check_layers(self) -> None:
        text = self._config.get_text_config()
        strange = set(getattr(text, "layer_types", None) or ()) - LAYER_TYPES
        if strange:
            raise UsageError(
                f"{self._config.model_type} has layers of type {', '.join(sorted(strange))}; packed training knows "
                f"{', '.join(sorted(LAYER_TYPES))} only, others carry state from one sequence of a row to the next"
            )

    @torch.no_grad()
    def _check_results(self) -> None:
        """Three short sequences, two of which share a prompt: packed and one by one, hidden states and logits."""
        samples = _probe(self._config.get_text_config().vocab_size)
        (row,) = pack(samples, tokens=sum(map(len, samples)))
        row = row.to(self.device)
        self._config._attn_implementation = NAME
        hidden = self.hidden(row)
        logits = self.head.logits(hidden, temperature=1.0)
        self._config._attn_implementation = "eager"
        plain = [self._plain(samples[i]) for i in row.samples]
        self._config._attn_implementation = NAME
        self._compare("hidden states", hidden.split(list(row.counts)), [h for h, _ in plain])
        self._compare("logits", logits.split(list(row.counts)), [z for _, z in plain])

    def _plain(self, sample: Sample) -> tuple[Tensor, Tensor]:
        """(hidden states, logits) at the positions that predict the sample's trained tokens, without packing."""
        ids = torch.tensor([sample.ids], device=self.device)
        view: Any = self._view
        sources = slice(sample.prompt_length - 1, len(sample) - 1)
        hidden = view.base_model(input_ids=ids, use_cache=False).last_hidden_state[0, sources]
        return hidden, view(input_ids=ids, use_cache=False).logits[0, sources].float()

    def _compare(self, what: str, packed: Sequence[Tensor], plain: Sequence[Tensor]) -> None:
        """The worst sequence's median, since rounding may send single tokens of a mixture of experts to other experts."""
        errors = [
            ((a.float() - b.float()).norm(dim=-1) / b.float().norm(dim=-1).clamp(min=1e-6)).median().item()
            for a, b in zip(packed, plain, strict=True)
        ]
        typical = max(errors)
        if not typical <= TOLERANCE[self.head.weight.dtype]:
            raise UsageError(
                f"{self._config.model_type} cannot be trained in packed rows: its {what} differ from those of the plain model "
                f"by {typical:.2g} (relative). It uses something that packing or the chunked output layer does not know"
            )


def _view(model: nn.Module) -> nn.Module:
    """The modules anew around the same parameters and buffers, without dropout."""
    shared = {id(tensor): tensor for tensor in [*model.parameters(), *model.buffers()]}
    return copy.deepcopy(model, shared).eval()


def _checkpoint_layers(view: nn.Module) -> None:
    """Layers keep their inputs only and run again in the backward pass. Not by transformers' own switch, which needs
    train(), and with it dropout."""
    layers = [module for module in view.modules() if isinstance(module, GradientCheckpointingLayer)]
    if not layers:
        raise UsageError(
            f"{type(view).__name__} has no layers that can be checkpointed; set backend.activation_checkpointing=false"
        )
    for layer in layers:
        layer.forward = partial(checkpoint, layer.forward, use_reentrant=False, preserve_rng_state=False)


def _probe(vocabulary: int) -> list[Sample]:
    """Prompts of 5, 5 (equal) and 3 ids with 6, 9 and 7 trained ones."""
    generator = torch.Generator().manual_seed(0)

    def draw(count: int) -> tuple[int, ...]:
        return tuple(torch.randint(0, vocabulary, (count,), generator=generator).tolist())

    prompt = draw(5)
    return [
        Sample(
            episode="probe",
            group="probe",
            ids=first + draw(n),
            mask=(0,) * len(first) + (1,) * n,
            logprobs=(0.0,) * (len(first) + n),
            versions=(0,) * (len(first) + n),
            reward=0.0,
            prompt_length=len(first),
        )
        for first, n in ((prompt, 6), (prompt, 9), (draw(3), 7))
    ]
