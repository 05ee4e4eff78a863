"""The model as the engine runs it: a twin of the trainer's module that holds the same parameter objects.

The twin has modules and a config of its own (evaluation mode, our attention), so that the trainer's forward pass, perhaps
at the same time in another thread, is not touched. Two ways to hold the weights:

- shared: the trainer's parameters themselves. Publishing copies nothing; nothing may be sampled while the optimizer steps.
- packed: copies in a layout that decodes faster on a CPU, taken again at every update. What is being sampled from stays as
  it was published, whatever the trainer does meanwhile.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from agentrl.engine import EngineError
from agentrl.errors import UsageError, nearest

from .packed_linear import PackedLinear, can_pack, packable
from .slot_attention import NAME, attending
from .slot_cache import SlotCache
from .step import Step

PACK_UP_TO = 4 * 2**30
"""Bytes of parameters: a second copy of a larger model is a decision for its owner, who says packed=True."""

KNOWN_LAYERS = {"full_attention", "sliding_attention"}
"""Kinds of layers whose whole state is keys and values by position."""


class Replica:
    """Runs one forward pass at a time, in the engine's thread."""

    def __init__(self, model: nn.Module, *, packed: bool | None = None) -> None:
        check_supported(model)
        self.model = model
        self._twin = _twin(model)
        self._cache_name = "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"
        self._copies: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._linears: list[PackedLinear] = []
        self.packed = _pays(model) if packed is None else packed
        if self.packed:
            self._pack()

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    @property
    def dtype(self) -> torch.dtype:
        return next(self.model.parameters()).dtype

    @property
    def vocabulary(self) -> int:
        """Ids the model knows: [0, vocabulary)."""
        return int(self.model.get_input_embeddings().weight.shape[0])

    def forward(self, ids_T: torch.Tensor, step: Step, last_N: torch.Tensor, cache: SlotCache) -> torch.Tensor:
        """[N, vocabulary]: the logits after the tokens at `last_N`. Keys and values of all tokens go into `cache`."""
        cache.begin(step)
        with attending(cache):
            output = self._twin(
                input_ids=ids_T[None],
                position_ids=step.positions_T[None],
                use_cache=True,
                logits_to_keep=last_N,
                **{self._cache_name: cache},
            )
        return output.logits[0]

    def alone(self, ids_T: torch.Tensor) -> torch.Tensor:
        """[T, vocabulary]: the logits with the model's own attention and masks, without a cache."""
        _attend_with(self._twin, self.model.config._attn_implementation)
        try:
            return self._twin(input_ids=ids_T[None], use_cache=False).logits[0]
        finally:
            _attend_with(self._twin, NAME)

    # Weights

    def check(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Raises EngineError unless `tensors` are all parameters of this model, by name and shape. Changes nothing."""
        own = dict(self.model.named_parameters(remove_duplicate=False))
        if unknown := sorted(set(tensors) - set(own)):
            raise EngineError(f"the model has no parameter {unknown[0]!r} ({len(unknown)} unknown); {nearest(unknown[0], own)}")
        given = {id(own[name]) for name in tensors}  # tied parameters have several names; one is enough
        if missing := [name for name, p in own.items() if id(p) not in given]:
            raise EngineError(f"{len(missing)} parameters are missing from the update: {', '.join(missing[:4])}")
        for name, tensor in tensors.items():
            if not isinstance(tensor, torch.Tensor) or tensor.is_meta:
                raise EngineError(f"{name} is no tensor with data: {type(tensor).__name__}")
            if tensor.shape != own[name].shape:
                raise EngineError(f"{name} has shape {tuple(tensor.shape)}, the model's is {tuple(own[name].shape)}")

    @torch.no_grad()
    def load(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Copies checked tensors into the shared parameters."""
        own = dict(self.model.named_parameters(remove_duplicate=False))
        for name, tensor in tensors.items():
            own[name].copy_(tensor)

    @torch.inference_mode()
    def refresh(self) -> None:
        """Follows the shared parameters where they were copied."""
        for target, source in self._copies:
            target.copy_(source)
        for linear in self._linears:
            linear.pack()

    @torch.inference_mode()
    def _pack(self) -> None:
        """Swaps plain linear layers for packed ones, and every other parameter for a copy."""
        originals = dict(self.model.named_modules())
        for name, module in list(self._twin.named_modules()):
            if packable(module):
                linear = PackedLinear(originals[name])
                self._linears.append(linear)
                parent, _, child = name.rpartition(".")
                setattr(self._twin.get_submodule(parent), child, linear)
        for module in self._twin.modules():
            for name, parameter in list(module.named_parameters(recurse=False)):
                own = nn.Parameter(parameter.detach().clone(), requires_grad=False)
                self._copies.append((own, parameter))
                setattr(module, name, own)


def _pays(model: nn.Module) -> bool:
    size = sum(p.numel() * p.element_size() for p in model.parameters())
    return size <= PACK_UP_TO and any(map(packable, model.modules())) and can_pack()


def _twin(model: nn.Module) -> Any:
    """Modules and config copied, parameters and buffers shared."""
    shared = {id(t): t for t in (*model.parameters(), *model.buffers())}
    twin = copy.deepcopy(model, shared).eval()
    _attend_with(twin, NAME)
    for module in twin.modules():
        if hasattr(module, "gradient_checkpointing"):
            module.gradient_checkpointing = False
    return twin


def _attend_with(twin: Any, name: str) -> None:
    for module in twin.modules():
        if (config := getattr(module, "config", None)) is not None:
            config._attn_implementation = name


def check_supported(model: nn.Module) -> None:
    """Raises UsageError for what would be answered wrongly: models whose state is more than keys and values by position,
    or whose attention cannot be exchanged."""
    if not hasattr(model, "config") or not hasattr(model, "get_input_embeddings"):
        raise UsageError(f"the engine runs transformers causal language models, not {type(model).__name__}")
    name, config = type(model).__name__, model.config
    if not getattr(model, "_supports_attention_backend", False):
        raise UsageError(f"{name} does not use transformers' exchangeable attention; the embedded engine cannot run it")
    if "logits_to_keep" not in inspect.signature(model.forward).parameters:
        raise UsageError(f"{name}.forward has no logits_to_keep: it is no causal language model of transformers >= 5")
    kinds = set(getattr(config, "layer_types", None) or ()) - KNOWN_LAYERS
    if kinds:
        raise UsageError(
            f"{name} has layers of kind {', '.join(sorted(kinds))}; the embedded engine knows {', '.join(KNOWN_LAYERS)}"
        )
    if getattr(config, "num_kv_shared_layers", 0):
        raise UsageError(f"{name} shares keys and values between layers, which the embedded engine does not know")
