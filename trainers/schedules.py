"""The learning rate of each step: a linear warm-up, then constant, or down to 0 at the last step."""

from __future__ import annotations

import math


def learning_rate(step: int, *, peak: float, schedule: str, warmup_steps: int, steps: int) -> float:
    """The rate of step `step` (from 0) of `steps`. schedule: constant | linear | cosine.

    >>> [learning_rate(k, peak=1.0, schedule="linear", warmup_steps=2, steps=6) for k in range(6)]
    [0.5, 1.0, 1.0, 0.75, 0.5, 0.25]
    """
    if step < warmup_steps:
        return peak * (step + 1) / warmup_steps
    done = min(1.0, (step - warmup_steps) / max(1, steps - warmup_steps))
    if schedule == "linear":
        return peak * (1.0 - done)
    if schedule == "cosine":
        return peak * 0.5 * (1.0 + math.cos(math.pi * done))
    return peak
