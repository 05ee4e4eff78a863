"""What a training step tells: sums over its optimizer steps turned into means. Nothing here influences training."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from .batch import Row

PER_TOKEN = {
    "ratio": "ratio_mean",
    "kl_old": "kl_old",
    "kl_reference": "kl_reference",
    "clipped": "clip_fraction",
    "entropy": "entropy",
    "correction": "correction_mean",
    "correction_capped": "correction_capped_fraction",
}
"""Sum that the loss gives -> name of its mean over the tokens that went through the loss."""


class Totals:
    """Collects what the backend gives for each optimizer step of a training step."""

    def __init__(self) -> None:
        self._steps: list[Mapping[str, float]] = []

    def add(self, metrics: Mapping[str, float]) -> None:
        self._steps.append(metrics)

    def means(self) -> dict[str, float]:
        """Without an optimizer step only their number, 0. loss and grad_norm: mean over optimizer steps. ratio, divergences,
        clip fraction, entropy (nats): mean over tokens that had a gradient. ess: (sum w)^2 / (n sum w^2) of the ratios, in
        (0, 1]. mismatch_mean, mismatch_max: |trainer's - engine's logprob| in the first optimizer step, whose policy is the
        one before this step."""
        if not self._steps:
            return {"optimizer_steps": 0.0, "computed_tokens": 0.0}
        out = {name: self._mean_of_steps(name) for name in ("loss", "grad_norm")}
        tokens = self._sum("tokens")
        if tokens:
            out |= {name: self._sum(key) / tokens for key, name in PER_TOKEN.items() if self._has(key)}
            out["ess"] = self._sum("ratio") ** 2 / (tokens * self._sum("ratio_squared"))
        first = self._steps[0]
        if first.get("mismatch") is not None:
            out |= {"mismatch_mean": first["mismatch"] / first["tokens"], "mismatch_max": first["mismatch_max"]}
        return out | {"optimizer_steps": float(len(self._steps)), "computed_tokens": self._sum("computed_tokens")}

    def speed(self, seconds: float) -> dict[str, float]:
        """step_s, and the loss's tokens per second of it."""
        return {"step_s": seconds, "tokens_per_s": self._sum("tokens") / max(seconds, 1e-9)}

    def _has(self, key: str) -> bool:
        return any(key in step for step in self._steps)

    def _sum(self, key: str) -> float:
        return sum(step.get(key, 0.0) for step in self._steps)

    def _mean_of_steps(self, key: str) -> float:
        return statistics.fmean(step[key] for step in self._steps)


def batch_metrics(rows: Sequence[Row]) -> dict[str, float]:
    """Of the samples that came. What can be said of their episodes and groups, `agentrl.record` counts."""
    advantages = [row.advantage for row in rows]
    return {
        "samples": float(len(rows)),
        "samples_zero_advantage": float(sum(a == 0.0 for a in advantages)),
        "samples_truncated": float(sum(row.sample.truncated for row in rows)),
        "tokens_trained": float(sum(row.sample.trained_tokens for row in rows)),
        "tokens_in_samples": float(sum(len(row.sample) for row in rows)),
        "advantage_mean": statistics.fmean(advantages),
        "advantage_std": statistics.pstdev(advantages),
        "advantage_max": max(map(abs, advantages)),
    }
