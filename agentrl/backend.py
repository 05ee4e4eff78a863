"""How the model is held and sharded while it learns. Implementations: `agentrl.trainers.backends`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from agentrl.sample import Sample
from agentrl.weights import WeightLayout

if TYPE_CHECKING:
    import torch

Metrics = Mapping[str, float]

TokenLoss = Callable[..., "tuple[torch.Tensor, Mapping[str, torch.Tensor]]"]
"""(logprobs [T], entropy [T] | None, inputs) -> (sum of the token losses, sums of metrics); T: the trained tokens of a
micro-batch. The backend divides by the global denominator, so that the split into micro-batches cannot matter."""


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
    ) -> Metrics:
        """One optimizer step. `inputs[k]` holds the loss's tensors for samples[k], each [trained_tokens of it]. Raises
        FloatingPointError when the gradient is not finite; the parameters are then unchanged."""
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
