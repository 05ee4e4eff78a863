"""Asks a model, before it serves anyone, whether it computes over the slot cache what it computes by itself.

Families differ in what their layers hand to the attention. A window that a layer keeps to itself, or a mask it would have
made, must not be lost without a word: such a model is refused here, by name, before the first wrong token.
"""

from __future__ import annotations

from typing import Any

import torch

from agentrl.engine import EngineError
from agentrl.errors import UsageError

from .replica import Replica
from .slot_cache import SlotCache
from .step import build_step

READ, DECODED = 6, 2
"""Tokens read in one stretch, and tokens fed one by one after them."""

TOLERANCE = {torch.float32: 1e-3, torch.float64: 1e-3}
"""Largest difference of the logits, as a share of their spread."""

TOLERANCE_16 = 0.5
"""In 16 bits rounding may send a token to another expert: only nonsense is told from noise."""


@torch.inference_mode()
def probe(replica: Replica) -> None:
    """Raises UsageError when the engine would not give what the model gives."""
    size = replica.vocabulary
    ids = torch.arange(READ + DECODED, device=replica.device) * (size // 11 + 1) % size
    name = type(replica.model).__name__
    try:
        over_cache, windows = _over_cache(replica, ids)
    except EngineError as error:
        raise UsageError(f"the embedded engine cannot run {name}: {error}") from error
    _check_windows(name, replica.model.config.get_text_config(), windows)
    alone = replica.alone(ids)[READ - 1 :].float()
    spread = (alone - alone.mean(dim=-1, keepdim=True)).abs().max()
    difference = float((over_cache.float() - alone).abs().max() / spread.clamp(min=1e-6))
    if not difference <= TOLERANCE.get(replica.dtype, TOLERANCE_16):  # nan included
        raise UsageError(
            f"the embedded engine cannot run {name}: over its cache the logits differ from the model's own by {difference:.1%}"
        )


def _over_cache(replica: Replica, ids: torch.Tensor) -> tuple[torch.Tensor, list[int]]:
    """(logits [1 + DECODED, vocabulary], the sliding window of each layer)."""
    cache = SlotCache()
    cache.fit(1, len(ids))
    step = build_step([], [(0, 0, READ)], cache.columns, replica.device)
    rows = [replica.forward(ids[:READ], step, torch.tensor([READ - 1], device=replica.device), cache)]
    for position in range(READ, READ + DECODED):
        single = build_step([(0, position)], [], cache.columns, replica.device)
        rows.append(replica.forward(ids[position, None], single, torch.tensor([0], device=replica.device), cache))
    return torch.cat(rows), step.windows


def _check_windows(name: str, config: Any, windows: list[int]) -> None:
    """Each layer must have asked for the window that the config gives it; the probe's few tokens fit into any."""
    used = getattr(config, "use_sliding_window", True)
    window = (getattr(config, "sliding_window", None) or 0) if used else 0
    kinds = getattr(config, "layer_types", None) or ["sliding_attention"] * len(windows)
    expected = [window if kind == "sliding_attention" else 0 for kind in kinds]
    if windows != expected:
        raise UsageError(
            f"the embedded engine cannot run {name}: its config gives its layers the sliding windows {expected}, but they ask "
            f"the attention for {windows}"
        )
