"""Logprobs and entropy of trained tokens from hidden states, a few tokens' logits at a time.

The [N, vocabulary] matrix of logits never exists whole: for 2,048 tokens and 49,152 words it alone would take 0.4 GB in
float32, several times over. Two ways to a gradient:

- `fused_loss`: for losses that are sums over tokens, the loss and its gradient are computed together, chunk by chunk, in
  the forward pass; nothing is computed twice.
- `ChunkedLogprobs`: an autograd function for any use; its backward computes each chunk's logits again.

Logits are multiplied, and the softmax taken, in float32. Ids that no engine may sample are left out of the softmax, as
engines leave them out of theirs. N: trained tokens, H: hidden size, V: vocabulary, C: chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from agentrl.backend import TokenLoss
from agentrl.errors import UsageError

NEVER = -1e4
"""The logprob of a banned id in sums over the vocabulary: exp(NEVER) is 0 in float32, and 0 * NEVER is 0, not nan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The last layer: hidden states [N, H] to logits cap(h W^T + b) * scale, cap(x) = softcap * tanh(x / softcap); -inf for
    banned ids."""

    weight: Tensor  # [V, H]
    bias: Tensor | None = None  # [V]
    scale: float = 1.0
    softcap: float | None = None
    banned: Tensor | None = None  # [B] ids, int64

    @classmethod
    def of(cls, model: nn.Module) -> Head:
        """A transformers causal LM's. Raises UsageError when it has none."""
        layer = model.get_output_embeddings()
        if not isinstance(layer, nn.Linear):
            raise UsageError(f"{type(model).__name__} has no linear output layer; a causal language model is needed")
        config: Any = model.config.get_text_config()
        multiplied, divided = getattr(config, "logit_scale", None), getattr(config, "logits_scaling", None)
        scale = (1.0 if multiplied is None else float(multiplied)) / (1.0 if divided is None else float(divided))
        softcap = getattr(config, "final_logit_softcapping", None)
        if softcap is not None and scale != 1.0:
            raise UsageError(f"{type(model).__name__} both caps and scales its logits; in which order is not known here")
        return cls(weight=layer.weight, bias=layer.bias, scale=scale, softcap=softcap)

    def without(self, ids: Sequence[int]) -> Head:
        """The head that never gives these ids. Ids that are not in the vocabulary are passed over, as engines do."""
        inside = sorted({i for i in ids if 0 <= i < self.weight.shape[0]})
        return replace(self, banned=torch.tensor(inside, device=self.weight.device) if inside else None)

    def logits(self, hidden: Tensor, temperature: float) -> Tensor:
        """[C, H] -> [C, V] in float32, divided by the temperature."""
        out = F.linear(hidden, self.weight, self.bias).float()
        if self.softcap is not None:
            out = out.div_(self.softcap).tanh_().mul_(self.softcap)
        factor = self.scale / temperature
        out = out if factor == 1.0 else out.mul_(factor)
        return out if self.banned is None else out.index_fill_(1, self.banned, float("-inf"))

    def raw_gradient(self, gradient: Tensor, logits: Tensor | None, temperature: float) -> Tensor:
        """The gradient by h W^T + b, of the weight's type, from that by the logits [C, V], which is overwritten."""
        factor = self.scale / temperature
        if self.softcap is not None:
            assert logits is not None
            gradient = gradient.mul_(1.0 - (logits * (temperature / self.softcap)).square_())
            if self.banned is not None:
                gradient.index_fill_(1, self.banned, 0.0)  # 0 times the square of -inf
        return (gradient if factor == 1.0 else gradient.mul_(factor)).to(self.weight.dtype)


@dataclass(slots=True)
class _Chunk:
    """What the softmax of one chunk gives, and what its gradient needs."""

    logprobs: Tensor  # [C]
    entropy: Tensor | None  # [C]
    all_logprobs: Tensor  # [C, V]
    logits: Tensor | None  # [C, V], kept for the softcap only


def _chunk(hidden: Tensor, head: Head, targets: Tensor, temperature: float, entropy: bool) -> _Chunk:
    logits = head.logits(hidden, temperature)
    all_logprobs = torch.log_softmax(logits, dim=-1)
    logprobs = all_logprobs.gather(1, targets[:, None]).squeeze(1)
    if head.banned is not None:
        all_logprobs.index_fill_(1, head.banned, NEVER)
    spread = -(all_logprobs.exp() * all_logprobs).sum(-1) if entropy else None
    return _Chunk(logprobs, spread, all_logprobs, logits if head.softcap is not None else None)


def _logits_gradient(chunk: _Chunk, targets: Tensor, by_logprob: Tensor, by_entropy: Tensor | None) -> Tensor:
    """[C, V] from the gradients by logprob and entropy [C]. `chunk.all_logprobs` is used up.

    d logprob / d logits = onehot - p; d entropy / d logits = -p (log p + entropy).
    """
    if by_entropy is None:
        gradient = chunk.all_logprobs.exp_().mul_(-by_logprob[:, None])
    else:
        assert chunk.entropy is not None
        slope = (chunk.all_logprobs + chunk.entropy[:, None]).mul_(by_entropy[:, None]).add_(by_logprob[:, None])
        gradient = chunk.all_logprobs.exp_().mul_(slope.neg_())
    return gradient.scatter_add_(1, targets[:, None], by_logprob[:, None])


def _spans(total: int, size: int) -> Iterator[slice]:
    return (slice(start, min(start + size, total)) for start in range(0, total, size))


@torch.no_grad()
def logprobs_of(
    hidden: Tensor, head: Head, targets: Tensor, *, temperature: float, chunk: int, entropy: bool = False
) -> tuple[Tensor, Tensor | None]:
    """(logprobs [N], entropy [N] | None) in float32, without gradient."""
    parts = [_chunk(hidden[s], head, targets[s], temperature, entropy) for s in _spans(len(targets), chunk)]
    logprobs = torch.cat([part.logprobs for part in parts])
    return logprobs, torch.cat([part.entropy for part in parts if part.entropy is not None]) if entropy else None


def fused_loss(
    hidden: Tensor,
    head: Head,
    targets: Tensor,
    inputs: Mapping[str, Tensor],
    loss: TokenLoss,
    *,
    temperature: float,
    chunk: int,
    factor: float,
    add_weight: Callable[[Tensor], None] | None,
    add_bias: Callable[[Tensor], None] | None = None,
) -> tuple[Tensor, float, list[Mapping[str, Tensor]]]:
    """(gradient of `factor` * loss by hidden [N, H], `factor` * loss, the loss's metrics of each chunk), for a loss whose
    `per_token` is true. The gradients by head weight [V, H] and bias [V] are handed to `add_weight` and `add_bias`, once
    for each chunk, in the parameters' type; None for parameters that are not trained.
    """
    hidden = hidden.detach()
    gradient = torch.empty_like(hidden)
    total, metrics = 0.0, []
    for span in _spans(len(targets), chunk):
        with torch.no_grad():
            part = _chunk(hidden[span], head, targets[span], temperature, loss.needs_entropy)
        value, sums, by_logprob, by_entropy = _evaluate(part, {k: v[span] for k, v in inputs.items()}, loss, factor)
        total += value
        metrics.append(sums)
        with torch.no_grad():
            by_logits = _logits_gradient(part, targets[span], by_logprob, by_entropy)
            raw = head.raw_gradient(by_logits, part.logits, temperature)
            torch.mm(raw, head.weight, out=gradient[span])
            if add_weight is not None:
                add_weight(raw.t() @ hidden[span])
            if add_bias is not None:
                add_bias(raw.sum(0))
    return gradient, total, metrics


def _evaluate(
    part: _Chunk, inputs: Mapping[str, Tensor], loss: TokenLoss, factor: float
) -> tuple[float, Mapping[str, Tensor], Tensor, Tensor | None]:
    """(factor * loss, metrics, its gradient by the logprobs, and by the entropy), each [C]."""
    logprobs = part.logprobs.detach().requires_grad_()
    entropy = None if part.entropy is None else part.entropy.detach().requires_grad_()
    total, sums = loss(logprobs, entropy, inputs)
    total = total * factor
    leaves = [logprobs] if entropy is None else [logprobs, entropy]
    gradients = torch.autograd.grad(total, leaves)
    return total.item(), sums, gradients[0], gradients[1] if entropy is not None else None


class ChunkedLogprobs(torch.autograd.Function):
    """`chunked_logprobs` with the recomputing backward."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        scale: float,
        softcap: float | None,
        banned: Tensor | None,
        temperature: float,
        chunk: int,
    ) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(hidden, weight, bias, targets, banned)
        ctx.settings = (scale, softcap, temperature, chunk)
        head = Head(weight=weight, bias=bias, scale=scale, softcap=softcap, banned=banned)
        logprobs, entropy = logprobs_of(hidden, head, targets, temperature=temperature, chunk=chunk, entropy=True)
        assert entropy is not None
        return logprobs, entropy

    @staticmethod
    def backward(ctx: Any, by_logprob: Tensor, by_entropy: Tensor) -> tuple[Tensor | None, ...]:
        hidden, weight, bias, targets, banned = ctx.saved_tensors
        scale, softcap, temperature, chunk = ctx.settings
        head = Head(weight=weight, bias=bias, scale=scale, softcap=softcap, banned=banned)
        by_hidden = torch.empty_like(hidden)
        by_weight = torch.zeros_like(weight, dtype=torch.float32)
        by_bias = None if bias is None else torch.zeros_like(bias, dtype=torch.float32)
        for span in _spans(len(targets), chunk):
            part = _chunk(hidden[span], head, targets[span], temperature, True)
            by_logits = _logits_gradient(part, targets[span], by_logprob[span], by_entropy[span])
            raw = head.raw_gradient(by_logits, part.logits, temperature)
            by_hidden[span] = raw @ weight
            by_weight += (raw.t() @ hidden[span]).float()
            if by_bias is not None:
                by_bias += raw.sum(0).float()
        return (
            by_hidden,
            by_weight.to(weight.dtype),
            None if by_bias is None or bias is None else by_bias.to(bias.dtype),
            *(None,) * 6,
        )


def chunked_logprobs(hidden: Tensor, head: Head, targets: Tensor, *, temperature: float, chunk: int) -> tuple[Tensor, Tensor]:
    """(logprobs [N], entropy [N]) in float32, differentiable by hidden states, head weight and bias."""
    logprobs, entropy = ChunkedLogprobs.apply(
        hidden, head.weight, head.bias, targets, head.scale, head.softcap, head.banned, temperature, chunk
    )
    return logprobs, entropy
