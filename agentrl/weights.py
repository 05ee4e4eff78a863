"""How weights are described when they go from a trainer to engines: which tensors, which part of each, which version."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardSpec:
    """Which region of a global tensor (named as in Hugging Face checkpoints) a rank holds.

    >>> ShardSpec(name="lm_head.weight", shape=(49152, 576), start=(0, 0), stop=(24576, 576)).numel
    14155776
    """

    name: str
    shape: tuple[int, ...]
    start: tuple[int, ...]
    stop: tuple[int, ...]

    @property
    def numel(self) -> int:
        out = 1
        for a, b in zip(self.start, self.stop, strict=True):
            out *= b - a
        return out


WeightLayout = Mapping[int, tuple[ShardSpec, ...]]
"""rank -> the regions it holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightUpdate:
    """New weights of one version.

    `tensors` maps Hugging Face names to full tensors; None means that the engine already shares the trainer's own
    parameters (the embedded engine), so that only the version changes.
    """

    version: int
    tensors: Mapping[str, torch.Tensor] | None = None


class WeightTransport(Protocol):
    """Brings one version's weights into every engine."""

    async def publish(self, version: int) -> int:
        """Returns the version that every engine has acknowledged. Raises EngineError; then no engine serves a mix."""
        ...
