"""Attention over the slot cache, registered with transformers under NAME. Knows no model; every model's layers call it.

Sliding windows, soft-capped scores and attention sinks come as arguments of the layer and are followed; what is not
known here is refused, since an ignored argument would be a wrong answer without a word.

Shape legend: _T tokens of the step, n decoding rows, H query heads, K key heads, G = H / K, C columns, D head size.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from transformers import AttentionInterface

from agentrl.engine import EngineError

from .slot_cache import SlotCache
from .step import Step, Stretch

NAME = "agentrl_slots"
"""No mask function of this name is registered: transformers then makes no masks at all."""

UNKNOWN = ("position_bias", "indices", "block_indices", "sinks", "head_mask")
"""Arguments that change what is computed, and that we do not follow. Others only repeat what we know (positions, lengths)."""

_this_thread = threading.local()


@contextmanager
def attending(cache: SlotCache) -> Iterator[None]:
    """Layers that run in this thread attend over `cache`."""
    _this_thread.cache = cache
    try:
        yield
    finally:
        _this_thread.cache = None


def slot_attention(
    module: torch.nn.Module,
    query: torch.Tensor,  # [1, H, T, D]
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    is_causal: bool | None = None,
    **more: Any,
) -> tuple[torch.Tensor, None]:
    """[1, T, H, D]. The cache holds this step's keys and values already; `key` and `value` are the same once more."""
    causal = is_causal if is_causal is not None else getattr(module, "is_causal", True)
    if attention_mask is not None or not causal:
        raise EngineError(f"{type(module).__name__} wants a mask of its own, which the embedded engine does not know")
    if unknown := [name for name in UNKNOWN if more.get(name) is not None]:
        raise EngineError(f"{type(module).__name__} gives its attention {unknown[0]}, which the embedded engine does not know")
    step, keys, values = _this_thread.cache.take()
    window = sliding_window or 0
    step.windows.append(window)
    extra = _Extra(scaling=scaling or query.shape[-1] ** -0.5, softcap=softcap, sinks=s_aux)
    out = query.new_empty(query.shape[2], query.shape[1], values.shape[-1])  # [T, H, D]
    if step.decoding:
        out[: step.decoding] = _decode(query[0, :, : step.decoding].transpose(0, 1), keys, values, step, window, extra)
    for stretch in step.stretches:
        part = slice(stretch.offset, stretch.offset + len(stretch))
        out[part] = _read(query[0, :, part], keys, values, step, stretch, window, extra).transpose(0, 1)
    return out.unsqueeze(0), None


class _Extra:
    """What a layer adds to plain attention."""

    __slots__ = ("plain", "scaling", "sinks", "softcap")

    def __init__(self, *, scaling: float, softcap: float | None, sinks: torch.Tensor | None) -> None:
        self.scaling, self.softcap, self.sinks = scaling, softcap, sinks
        self.plain = softcap is None and sinks is None


def _decode(q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, step: Step, window: int, extra: _Extra) -> torch.Tensor:
    """q [decoding, H, D] -> [decoding, H, D]. Heads of one group share their keys by standing in the query's rows."""
    rows = step.rows_T[: step.decoding]
    if not step.dense:
        q = q.new_zeros(step.high, *q.shape[1:]).index_copy_(0, rows, q)
    n, heads, width = q.shape
    k, v = keys[:n], values[:n]  # [n, K, C, D]
    grouped = q.reshape(n, k.shape[1], heads // k.shape[1], width)  # [n, K, G, D]
    if extra.plain and q.dtype == torch.bfloat16 and q.device.type == "cpu":
        out = _batched(grouped, k, v, step.decode_mask(window, q.dtype), extra.scaling)
    else:
        mask = step.decode_mask(window, q.dtype)[:, None, None]  # [n, 1, 1, C]
        out = _attend(grouped, k, v, mask, extra, heads_in_rows=True)
    out = out.reshape(n, heads, -1)
    return out if step.dense else out[rows]


def _batched(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor, scaling: float) -> torch.Tensor:
    """Two batched products: 2-3 times as fast as SDPA, whose CPU kernel makes small calls for each row and head."""
    n, groups = k.shape[:2]
    mask = mask.repeat_interleave(groups, 0).unsqueeze(1)  # [n * K, 1, C]
    scores = torch.baddbmm(mask, q.flatten(0, 1), k.flatten(0, 1).transpose(1, 2), alpha=scaling)
    return torch.bmm(torch.softmax(scores, dim=-1), v.flatten(0, 1)).view(n, groups, -1, v.shape[-1])


def _read(
    q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, step: Step, stretch: Stretch, window: int, extra: _Extra
) -> torch.Tensor:
    """One sequence's stretch of prompt: q [H, t, D] -> [H, t, D]."""
    k = keys[stretch.row, None, :, : stretch.stop]  # [1, K, stop, D]
    v = values[stretch.row, None, :, : stretch.stop]
    groups = q.shape[0] // k.shape[1]
    k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
    mask = step.stretch_mask(stretch, window)
    if extra.plain and mask is None:
        return F.scaled_dot_product_attention(q[None], k, v, is_causal=True, scale=extra.scaling)[0]
    if mask is None:
        mask = torch.ones(len(stretch), stretch.stop, dtype=torch.bool, device=q.device).tril_()
    return _attend(q[None], k, v, mask[None, None], extra, heads_in_rows=False)[0]


def _attend(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor, extra: _Extra, *, heads_in_rows: bool
) -> torch.Tensor:
    """q [n, K, M, D] over k, v [n, K, C, D]; mask [n or 1, 1, 1 or M, C], boolean or added."""
    if extra.plain:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=extra.scaling)
    scores = (q @ k.transpose(2, 3)).float() * extra.scaling
    if extra.softcap is not None:
        scores = torch.tanh(scores / extra.softcap) * extra.softcap
    scores = scores.masked_fill(~mask, float("-inf")) if mask.dtype == torch.bool else scores + mask
    if extra.sinks is not None:
        shape = (1, k.shape[1], -1, 1) if heads_in_rows else (1, -1, 1, 1)
        sink = extra.sinks.float().reshape(shape).expand(*scores.shape[:3], 1)
        scores = torch.cat([scores, sink], dim=-1)
    weights = torch.softmax(scores, dim=-1)[..., : k.shape[2]]
    return weights.to(v.dtype) @ v


AttentionInterface.register(NAME, slot_attention)
