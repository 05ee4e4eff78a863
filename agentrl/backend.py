"""How the model is held and sharded while it learns. Implementations: `agentrl.trainers.backends`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from agentrl.sample import Sample
from agentrl.weights import WeightLayout

if TYPE_CHECKING:
    import torch

Metrics = Mapping[str, float]


class TokenLoss(Protocol):
    """A loss as sums over tokens. T: the trained tokens of a micro-batch, or of a part of it."""

    @property
    def needs_entropy(self) -> bool:
        """It is to be called with the entropy; the gradient goes through it."""
        ...

    @property
    def per_token(self) -> bool:
        """Each token's loss depends on that token only, so it may be called on any part of a micro-batch. Otherwise it gets
        whole samples, and `inputs["sequence"]` [T] (int64), which numbers them within the call."""
        ...

    def __call__(
        self, logprobs: torch.Tensor, entropy: torch.Tensor | None, inputs: Mapping[str, torch.Tensor]
    ) -> tuple[torch.Tensor, Mapping[str, torch.Tensor]]:
        """(logprobs [T], entropy [T] | None, inputs) -> (sum of the token losses, sums of metrics; a name that ends in
        "_max" is a maximum). The backend divides the loss by the global denominator, so that the split into micro-batches
        cannot matter."""
        ...


class Backend(Protocol):
    """Holds the policy's parameters, gradients and optimizer."""

    def logprobs(self, samples: Sequence[Sample], *, temperature: float) -> list[torch.Tensor]:
        """For each sample [n]: the current policy's logprob of ids[i] given ids[:i], 0 where mask is 0. No gradient."""
        ...

    def step(
        self,
        samples: Sequence[Sample],
        inputs: Sequence[Mapping[str, torch.Tensor]],
        loss: TokenLoss,
        *,
        denominator: float,
        lr: float,
        temperature: float,
    ) -> Metrics:
        """One optimizer step. `inputs[k]` holds the loss's tensors for samples[k], each [trained_tokens of it]. Without
        samples the gradient is 0, and the step is still taken: whether it is worth one, the trainer has decided. Returns the
        loss's metrics summed over all tokens, `loss` (the sum over the denominator), `grad_norm` (before clipping) and
        `computed_tokens`. Raises FloatingPointError when the gradient is not finite; the parameters are then unchanged."""
        ...

    def layout(self) -> WeightLayout: ...

    def export(self) -> Iterator[tuple[str, torch.Tensor]]:
        """(Hugging Face name, full tensor) of every parameter. A collective: drain it on every rank."""
        ...

    def save(self, folder: Path) -> None:
        """Parameters and optimizer, for `load`."""
        ...

    def load(self, folder: Path) -> None: ...

    def save_pretrained(self, folder: Path) -> None:
        """In Hugging Face format, with the tokenizer."""
        ...

    def offload(self) -> None: ...

    def onload(self) -> None: ...

    @property
    def model(self) -> Any:
        """The module itself, for an engine in the same process."""
        ...
