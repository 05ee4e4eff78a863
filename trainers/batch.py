"""A batch on its way to the loss: samples with their advantages, in minibatches, and what the loss is divided by."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from agentrl.advice import commonest, example
from agentrl.episode import EpisodeGroup, RolloutError, as_cause
from agentrl.sample import Sample, samples_of

from .advantages import Advantage
from .packing import trained_positions


class EmptyBatch(RolloutError):
    """A batch in which nothing can be trained: every episode was aborted, or nothing was sampled in it."""


@dataclass(slots=True, kw_only=True)
class Row:
    """A sample with what the loss needs. Tensors are [trained tokens of the sample], float32. Filled in by the trainer."""

    sample: Sample
    advantage: float
    old: Tensor | None = None
    reference: Tensor | None = None

    @property
    def engine(self) -> Tensor:
        """The engine's logprobs of the trained tokens."""
        return torch.tensor([self.sample.logprobs[i] for i in trained_positions(self.sample)])

    def inputs(self, *, on_policy: bool) -> dict[str, Tensor]:
        """For the loss. `on_policy`: the policy is the old one, so that no old logprobs are needed."""
        tokens = self.sample.trained_tokens
        inputs = {
            "advantages": torch.full((tokens,), self.advantage),
            "weights": torch.full((tokens,), self.sample.weight),
            "engine_logprobs": self.engine,
        }
        if self.old is not None and not on_policy:
            inputs["old_logprobs"] = self.old
        if self.reference is not None:
            inputs["reference_logprobs"] = self.reference
        return inputs


def rows_of(groups: Sequence[EpisodeGroup], advantage: Advantage) -> list[Row]:
    """The samples of the usable episodes. Samples of one episode share its advantage; aborted episodes are in no baseline.
    Raises EmptyBatch."""
    samples = samples_of(groups)
    if not samples:
        played = [episode for group in groups for episode in group.episodes]
        text = f"a batch of {len(groups)} groups holds nothing to train on: {commonest(played)}"
        raise EmptyBatch(text) from (as_cause(example(played)) if played else None)
    episodes = {(s.group, s.episode): s.reward for s in samples}
    advantages = advantage(list(episodes.values()), [group for group, _ in episodes])
    by_episode = dict(zip(episodes, advantages.tolist(), strict=True))
    return [Row(sample=s, advantage=by_episode[s.group, s.episode]) for s in samples]


def minibatches(rows: list[Row], count: int, seed: str) -> list[list[Row]]:
    """The rows in at most `count` parts of whole groups, so that siblings share their prompt; the seed alone decides which."""
    if count == 1:
        return [rows]
    names = list(dict.fromkeys(row.sample.group for row in rows))
    random.Random(seed).shuffle(names)
    parts = [set(names[i::count]) for i in range(min(count, len(names)))]
    return [[row for row in rows if row.sample.group in part] for part in parts]


def denominator(rows: Sequence[Row], kind: str) -> float:
    """What the summed loss of a minibatch is divided by: its trained tokens, or its episodes ("sequences"). Rows that are
    left out of the computation count too. Forks of an episode weigh as one together."""
    if kind == "tokens":
        return sum(row.sample.weight * row.sample.trained_tokens for row in rows)
    return sum(row.sample.weight for row in rows)
