"""Attention over packed rows, for any transformers causal LM that uses the attention interface.

Registered as `agentrl_packed`. Each segment of the row is one SDPA call on its own queries; its keys are its own and, in
front of them, those of the prefix that it shares with its siblings. Nothing of size [row, row] exists. What a model asks
for that this cannot do (sinks, biases, bidirectional layers) is refused, never ignored.

H: heads, K: key-value heads, T: tokens of the row, D: head dimension, n: tokens of a segment, m: its keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from agentrl.errors import UsageError

from .packing import Segment

NAME = "agentrl_packed"

UNSUPPORTED = ("position_bias", "cache_position_bias", "head_mask", "indices")
"""Arguments that some models hand to an attention function and that change its result."""


class PackedAttentionError(UsageError):
    """A model asks its attention for something that packed rows do not offer."""


class RowPlan:
    """The segments of a row with their masks, made once and used by every layer. Handed to the model's forward as
    `packed=`, from where transformers hands it to `packed_attention`."""

    def __init__(self, segments: Sequence[Segment]) -> None:
        self.segments = tuple(segments)
        self.lengths = [segment.length for segment in segments]
        self._masks: dict[tuple[int, int, int | None, torch.dtype], Tensor] = {}

    def bias(self, index: int, window: int | None, like: Tensor) -> Tensor | None:
        """[n, m] of `like`'s type: 0 where a query of segment `index` may look, -inf elsewhere. None when plain causal."""
        segment = self.segments[index]
        before = 0 if segment.prefix is None else self.segments[segment.prefix].length
        if window is not None and window >= before + segment.length:
            window = None
        if before == 0 and window is None:
            return None
        key = (segment.length, before, window, like.dtype)
        if key not in self._masks:
            self._masks[key] = causal_bias(segment.length, before, window, like)
        return self._masks[key]


def causal_bias(queries: int, before: int, window: int | None, like: Tensor) -> Tensor:
    """[queries, before + queries]: query i stands at position before + i, sees itself and what is earlier, and of that only
    the last `window` positions (itself included).

    >>> causal_bias(2, 1, 2, torch.zeros(())).exp().tolist()
    [[1.0, 1.0, 0.0], [0.0, 1.0, 1.0]]
    """
    query = torch.arange(before, before + queries, device=like.device)[:, None]
    key = torch.arange(before + queries, device=like.device)[None, :]
    allowed = key <= query
    if window is not None:
        allowed &= key > query - window
    return torch.zeros(allowed.shape, dtype=like.dtype, device=like.device).masked_fill_(~allowed, -torch.inf)


def packed_attention(
    module: nn.Module,
    query: Tensor,  # [1, H, T, D]
    key: Tensor,  # [1, K, T, D]
    value: Tensor,  # [1, K, T, D]
    attention_mask: Tensor | None,
    *,
    packed: RowPlan | None = None,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    is_causal: bool | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """([1, T, H, D], None), as the interface wants it. Raises PackedAttentionError."""
    if packed is None:
        raise PackedAttentionError(f"{type(module).__name__} did not hand its keyword arguments on: the row's plan is missing")
    _refuse(module, attention_mask, dropout, is_causal, sliding_window, others)
    wanted = query.dtype
    if query.device.type == "cpu":
        # float32 attention, forward and backward, takes two thirds of bfloat16's time on a CPU, conversions included.
        query, key, value = query.float(), key.float(), value.float()
    # One split, not a slice for each segment: a slice's backward is a tensor of zeros as large as the whole row.
    queries, keys, values = (x.split(packed.lengths, dim=2) for x in (query, key, value))
    out = []
    for i, segment in enumerate(packed.segments):
        k, v = keys[i], values[i]
        if segment.prefix is not None:
            k = torch.cat([keys[segment.prefix], k], dim=2)
            v = torch.cat([values[segment.prefix], v], dim=2)
        bias = packed.bias(i, sliding_window, queries[i])
        if softcap is None and s_aux is None:
            attended = _sdpa(queries[i], k, v, bias, scaling)
        else:
            attended = _eager(queries[i], k, v, bias, scaling, softcap, s_aux)
        out.append(attended.transpose(1, 2))
    return torch.cat(out, dim=1).to(wanted), None


def _sdpa(query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, scaling: float | None) -> Tensor:
    grouped = query.shape[1] != key.shape[1]
    return F.scaled_dot_product_attention(
        query, key, value, attn_mask=bias, is_causal=bias is None, scale=scaling, enable_gqa=grouped
    )


def _eager(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    scaling: float | None,
    softcap: float | None,
    sinks: Tensor | None,  # [H]
) -> Tensor:
    """With capped scores (Gemma 2) or sinks (gpt-oss: one more score for each head, without a value), which SDPA lacks."""
    group = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(group, dim=1), value.repeat_interleave(group, dim=1)
    scores = query @ key.transpose(2, 3) * (query.shape[-1] ** -0.5 if scaling is None else scaling)
    if softcap is not None:
        scores = torch.tanh(scores / softcap) * softcap
    if bias is None:
        bias = causal_bias(query.shape[2], 0, None, query)
    scores = (scores + bias).float()
    if sinks is not None:
        scores = torch.cat([scores, sinks.float().view(1, -1, 1, 1).expand(*scores.shape[:3], 1)], dim=-1)
    weights = torch.softmax(scores, dim=-1)[..., : key.shape[2]]
    return weights.to(query.dtype) @ value


def _refuse(
    module: nn.Module,
    attention_mask: Tensor | None,
    dropout: float,
    is_causal: bool | None,
    sliding_window: int | None,
    others: dict[str, Any],
) -> None:
    name = type(module).__name__
    for argument in UNSUPPORTED:
        if others.get(argument) is not None:
            raise PackedAttentionError(f"{name} uses {argument!r} in its attention, which packed rows do not offer")
    if attention_mask is not None:
        raise PackedAttentionError(f"{name} brings an attention mask of its own, which packed rows do not offer")
    if dropout:
        raise PackedAttentionError(f"{name} has attention dropout {dropout}; a policy is trained without, call eval() on it")
    if is_causal is False or not getattr(module, "is_causal", True):
        raise PackedAttentionError(f"{name} looks ahead (is_causal=False); packed rows are causal")
    kinds = getattr(getattr(module, "config", None), "layer_types", None)
    index = getattr(module, "layer_idx", None)
    if kinds and index is not None and kinds[index] == "sliding_attention" and sliding_window is None:
        raise PackedAttentionError(f"{name} is a sliding-window layer but does not hand its window on")


ALL_ATTENTION_FUNCTIONS.register(NAME, packed_attention)
