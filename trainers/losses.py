"""The token losses: clipped policy loss, divergence from a reference, entropy bonus, truncated importance weights.

`PolicyLoss` is an `agentrl.backend.TokenLoss`: it gives *sums* over the tokens it is handed and never a mean, so that the
backend's one division by a global denominator makes the split into micro-batches irrelevant. It knows nothing of models.
T: the trained tokens it is handed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

MAX_LOG_RATIO = 20.0  # e^20 is beyond any use, and its square is still finite in float32


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyLoss:
    """PPO's clipped objective with what GRPO, DAPO, RLOO and their kin vary. Called with (logprobs [T], entropy [T] | None,
    inputs), where inputs holds, each [T]:

    advantages, weights (of the token's sample), and optionally old_logprobs (absent: the policy is still the old one, the
    ratio is exactly 1), engine_logprobs (needed by the correction), reference_logprobs (needed by the divergence).

    >>> loss = policy_loss(clip_low=0.2, clip_high=0.2)
    >>> inputs = {"advantages": torch.tensor([1.0]), "weights": torch.ones(1), "old_logprobs": torch.tensor([-1.0])}
    >>> total, sums = loss(torch.tensor([0.0]), None, inputs)         # ratio e, clipped to 1.2
    >>> round(total.item(), 4), sums["clipped"].item()
    (-1.2, 1.0)
    """

    clip_low: float
    clip_high: float
    dual_clip: float
    kl: str
    kl_coef: float
    entropy_coef: float
    correction: str
    correction_cap: float

    @property
    def needs_entropy(self) -> bool:
        return self.entropy_coef != 0.0

    @property
    def per_token(self) -> bool:
        """Each token's loss depends on that token alone, so a backend may evaluate it on any part of the tokens."""
        return True

    @property
    def regularizes(self) -> bool:
        """Tokens with advantage 0 have a gradient too."""
        return self.kl_coef != 0.0 or self.entropy_coef != 0.0

    def __call__(
        self, logprobs: Tensor, entropy: Tensor | None, inputs: Mapping[str, Tensor]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        old = inputs.get("old_logprobs", logprobs.detach())
        log_ratio = (logprobs - old).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
        ratio = log_ratio.exp()
        losses, clipped = self._clipped(ratio, inputs["advantages"])
        sums = _ratio_sums(log_ratio.detach(), ratio.detach(), clipped)
        if self.correction == "tis":
            weight = importance_weights(old, inputs["engine_logprobs"], cap=self.correction_cap)
            losses = losses * weight
            sums |= {"correction": weight.sum(), "correction_capped": (weight >= self.correction_cap).float().sum()}
        if "engine_logprobs" in inputs:
            sums |= _mismatch_sums(logprobs.detach(), inputs["engine_logprobs"])
        if self.kl != "none":
            divergence = kl_divergence(self.kl, logprobs, inputs["reference_logprobs"], ratio.detach())
            losses = losses + self.kl_coef * divergence
            sums["kl_reference"] = divergence.detach().sum()
        if self.needs_entropy:
            assert entropy is not None, "the backend was told by needs_entropy to give the entropy"
            losses = losses - self.entropy_coef * entropy
        sums["entropy"] = -logprobs.detach().sum() if entropy is None else entropy.detach().sum()
        return (losses * inputs["weights"]).sum(), sums

    def _clipped(self, ratio: Tensor, advantages: Tensor) -> tuple[Tensor, Tensor]:
        """(token losses [T], 1.0 where the clip took the gradient away [T])."""
        plain = -advantages * ratio
        bounded = -advantages * ratio.clamp(1.0 - self.clip_low, 1.0 + self.clip_high)
        losses = torch.maximum(plain, bounded)
        clipped = bounded > plain
        if self.dual_clip:
            floor = -advantages * self.dual_clip
            dual = (advantages < 0) & (losses > floor)
            losses = torch.where(dual, floor, losses)
            clipped = clipped | dual
        return losses, clipped.float().detach()


def policy_loss(
    *,
    clip_low: float,
    clip_high: float,
    dual_clip: float = 0.0,
    kl: str = "none",
    kl_coef: float = 0.0,
    entropy_coef: float = 0.0,
    correction: str = "none",
    correction_cap: float = 2.0,
) -> PolicyLoss:
    """A PolicyLoss from plain arguments, which make sense together as `agentrl.validate` has it.

    clip_low, clip_high: the ratio stays in [1 - clip_low, 1 + clip_high] (asymmetric: DAPO's clip-higher). dual_clip: for
    negative advantages the loss is at most dual_clip * |advantage| (arXiv 1912.09729), 0 for off. kl: none | k1 | k2 | k3.
    correction: none | tis, the token's loss times min(old / engine, correction_cap).
    """
    return PolicyLoss(
        clip_low=clip_low,
        clip_high=clip_high,
        dual_clip=dual_clip,
        kl=kl,
        kl_coef=kl_coef,
        entropy_coef=entropy_coef,
        correction=correction,
        correction_cap=correction_cap,
    )


LOSSES = {"clip": policy_loss}
"""By the names of `trainer.loss`."""


def kl_divergence(estimator: str, logprobs: Tensor, reference: Tensor, ratio: Tensor) -> Tensor:
    """KL(policy || reference) of each token [T]: the value is the named estimator's (joschu.net/blog/kl-approx.html), the
    gradient is always the true divergence's.

    With d = log policy - log reference, the true gradient is E[d * grad log policy] over the policy's own tokens. That is
    what k2 = d^2 / 2 gives when it is differentiated. Differentiating k1 = d gives 0 in expectation, and k3 = e^-d - 1 + d
    gives the gradient of the *reverse* divergence. So k1 and k3 lend their value and k2 its gradient (straight-through),
    times `ratio` [T] = policy / old (no gradient), since the tokens come from the old policy.
    """
    d = (logprobs - reference).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    k2 = 0.5 * d * d
    values = {"k1": d, "k2": k2, "k3": torch.exp(-d) - 1.0 + d}
    gradient = ratio * k2
    return gradient + (values[estimator] - gradient).detach()


def importance_weights(old: Tensor, engine: Tensor, *, cap: float) -> Tensor:
    """Truncated importance weights [T] between the trainer's and the engine's view of one policy: min(old / engine, cap)."""
    return (old.detach() - engine).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp().clamp(max=cap)


def _ratio_sums(log_ratio: Tensor, ratio: Tensor, clipped: Tensor) -> dict[str, Tensor]:
    return {
        "tokens": torch.tensor(float(len(ratio))),
        "ratio": ratio.sum(),
        "ratio_squared": ratio.square().sum(),
        "kl_old": (ratio - 1.0 - log_ratio).sum(),  # k3 of KL(old || policy): never negative, low variance
        "clipped": clipped.sum(),
    }


def _mismatch_sums(logprobs: Tensor, engine: Tensor) -> dict[str, Tensor]:
    difference = (logprobs - engine).abs()
    return {"mismatch": difference.sum(), "mismatch_max": difference.max()}
