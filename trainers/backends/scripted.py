"""A backend without a model: the double for tests of trainers, loops and checkpoints.

Shaped so: every token has the same logprob, which each step raises by the learning rate, so that "the policy has changed"
is one number to look at; the loss is really called and differentiated, so that wrong inputs fail here as they would in
training; each call is written down in `steps`; what is saved is that number and the count of steps, as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from agentrl.backend import Metrics, TokenLoss
from agentrl.sample import Sample
from agentrl.weights import ShardSpec, WeightLayout


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedStep:
    """What one call of `step` was given."""

    samples: tuple[Sample, ...]
    inputs: tuple[Mapping[str, Tensor], ...]
    denominator: float
    lr: float
    temperature: float


class ScriptedBackend:
    """An `agentrl.backend.Backend`. `fail_at`: the numbers of the steps whose gradient is to be "not finite".

    >>> backend = ScriptedBackend(logprob=-2.0)
    >>> sample = Sample(episode="e", group="g", ids=(5, 6), mask=(0, 1), logprobs=(0.0, -2.0), versions=(-1, 0), reward=1.0)
    >>> backend.logprobs([sample], temperature=1.0)
    [tensor([ 0., -2.])]
    """

    def __init__(
        self, model: Any = None, tokenizer: Any = None, *, logprob: float = -1.0, fail_at: Sequence[int] = (), **ignored: Any
    ) -> None:
        """`model`, `tokenizer` and `ignored`: what a real backend takes, so that it can stand in one's place in a run."""
        self._model, self._fail_at = model, frozenset(fail_at)
        self.logprob = logprob
        self.steps: list[ScriptedStep] = []
        self.calls: list[str] = []

    @property
    def model(self) -> Any:
        return self._model

    def logprobs(self, samples: Sequence[Sample], *, temperature: float) -> list[Tensor]:
        self.calls.append("logprobs")
        return [torch.tensor(sample.mask, dtype=torch.float32) * self.logprob for sample in samples]

    def step(
        self,
        samples: Sequence[Sample],
        inputs: Sequence[Mapping[str, Tensor]],
        loss: TokenLoss,
        *,
        denominator: float,
        lr: float,
        temperature: float,
    ) -> Metrics:
        self.calls.append("step")
        if len(self.steps) in self._fail_at:
            raise FloatingPointError(f"step {len(self.steps)} was told to fail")
        self.steps.append(
            ScriptedStep(samples=tuple(samples), inputs=tuple(inputs), denominator=denominator, lr=lr, temperature=temperature)
        )
        metrics = {"loss": 0.0, "grad_norm": 0.0, "computed_tokens": float(sum(map(len, samples)))}
        for sample, tensors in zip(samples, inputs, strict=True):
            logprobs = torch.full((sample.trained_tokens,), self.logprob, requires_grad=True)
            entropy = torch.ones(sample.trained_tokens, requires_grad=True) if loss.needs_entropy else None
            total, sums = loss(logprobs, entropy, tensors)
            total.backward()
            metrics["loss"] += total.item() / denominator
            for name, value in sums.items():
                before = metrics.get(name, 0.0)
                metrics[name] = max(before, float(value)) if name.endswith("_max") else before + float(value)
        self.logprob += lr
        return metrics

    def layout(self) -> WeightLayout:
        return {0: (ShardSpec(name="logprob", shape=(1,), start=(0,), stop=(1,)),)}

    def export(self) -> Iterator[tuple[str, Tensor]]:
        yield "logprob", torch.tensor([self.logprob])

    def save(self, folder: Path) -> None:
        (folder / "scripted.json").write_text(json.dumps({"logprob": self.logprob, "steps": len(self.steps)}))

    def load(self, folder: Path) -> None:
        self.logprob = json.loads((folder / "scripted.json").read_text())["logprob"]

    def save_pretrained(self, folder: Path) -> None:
        (folder / "config.json").write_text(json.dumps({"model_type": "scripted", "logprob": self.logprob}))

    def offload(self) -> None:
        self.calls.append("offload")

    def onload(self) -> None:
        self.calls.append("onload")
