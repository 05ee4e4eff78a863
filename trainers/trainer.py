"""The algorithm's step: finished groups in, an updated policy and metrics out.

GRPO, RLOO, DAPO and their kin differ by the names in the config, not by classes. The trainer keeps no state between steps
(whatever it draws is derived from the seed and the step's number), so a step can be repeated exactly. It knows nothing of
engines, files or event loops. S: samples of a batch.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Protocol

from torch import Tensor

from agentrl.backend import Backend
from agentrl.config import Config, SamplingConfig, TrainerConfig
from agentrl.episode import EpisodeGroup
from agentrl.sample import Sample
from agentrl.validate import validate

from .advantages import ADVANTAGES
from .batch import Row, denominator, minibatches, rows_of
from .losses import LOSSES
from .metrics import Totals, batch_metrics
from .packing import trained_positions
from .schedules import learning_rate


class LogprobSource(Protocol):
    """Something that gives logprobs as `Backend.logprobs` does: the reference policy."""

    def logprobs(self, samples: Sequence[Sample], *, temperature: float) -> list[Tensor]: ...


class Trainer:
    """Trains with one backend. Raises UsageError for a configuration that cannot be meant, as `agentrl.validate` says.

    >>> trainer = Trainer(backend, TrainerConfig(), temperature=1.0)           # doctest: +SKIP
    >>> trainer.step(groups, 0)["clip_fraction"]                               # doctest: +SKIP
    0.0
    """

    def __init__(
        self,
        backend: Backend,
        config: TrainerConfig,
        *,
        temperature: float,
        top_p: float = 1.0,
        top_k: int = 0,
        reference: LogprobSource | None = None,
        seed: int = 0,
    ) -> None:
        """temperature, top_p, top_k: how the episodes were sampled. `reference`: needed when `config.kl` is not none."""
        sampling = SamplingConfig(temperature=temperature, top_p=top_p, top_k=top_k)
        validate(Config(trainer=config, sampling=sampling))
        if config.kl != "none" and reference is None:
            raise ValueError(f"trainer.kl={config.kl} needs a reference policy, and none was given")
        self.backend = backend
        self._config, self._temperature, self._reference, self._seed = config, temperature, reference, seed
        self._advantage = ADVANTAGES[config.advantage]
        self._loss = LOSSES[config.loss](
            clip_low=config.clip_low,
            clip_high=config.clip_high,
            dual_clip=config.dual_clip,
            kl=config.kl,
            kl_coef=config.kl_coef,
            entropy_coef=config.entropy_coef,
            correction=config.correction,
            correction_cap=config.correction_cap,
        )

    def step(self, groups: Sequence[EpisodeGroup], number: int) -> dict[str, float]:
        """Trains on the groups: `epochs` passes of `minibatches` optimizer steps each. `number` counts steps from 0; it
        decides the learning rate and the order of minibatches. A minibatch without a gradient is no step: momentum and weight
        decay would move the policy by what other batches have said. Blocks; call it in a thread. Raises EmptyBatch, and
        FloatingPointError when a gradient is not finite."""
        started = time.perf_counter()
        rows = rows_of(groups, self._advantage)
        parts = [part for epoch in range(self._config.epochs) for part in self._parts(rows, number, epoch)]
        self._prepare(rows, first=parts[0])
        lr = self.learning_rate(number)
        totals = Totals()
        for i, part in enumerate(parts):
            if any(map(self._counts, part)):
                totals.add(self._optimize(part, lr, first=i == 0))
        skipped = float(sum(not self._counts(row) for row in rows))
        speed = totals.speed(time.perf_counter() - started)
        return {**batch_metrics(rows), "samples_skipped": skipped, **totals.means(), "lr": lr, **speed}

    def learning_rate(self, number: int) -> float:
        """Of step `number`, from 0."""
        config = self._config
        return learning_rate(
            number, peak=config.lr, schedule=config.lr_schedule, warmup_steps=config.warmup_steps, steps=config.steps
        )

    def _parts(self, rows: list[Row], number: int, epoch: int) -> list[list[Row]]:
        return minibatches(rows, self._config.minibatches, f"{self._seed}/{number}/{epoch}")

    def _prepare(self, rows: list[Row], first: list[Row]) -> None:
        """Gives the rows whose loss will be computed their old and reference logprobs. The policy still is the old one in
        the first optimizer step: its rows need none when they are seen only there."""
        wanted = [row for row in rows if self._counts(row)]
        if self._config.kl != "none" and wanted:
            assert self._reference is not None
            for row, values in zip(wanted, self._logprobs(self._reference, wanted), strict=True):
                row.reference = values
        if self._config.old_logprobs == "engine":
            for row in wanted:
                row.old = row.engine
            return
        on_policy = {id(row) for row in first} if self._config.epochs == 1 else set()
        later = [row for row in wanted if id(row) not in on_policy]
        if later:
            for row, values in zip(later, self._logprobs(self.backend, later), strict=True):
                row.old = values

    def _optimize(self, part: list[Row], lr: float, *, first: bool) -> Mapping[str, float]:
        """One optimizer step. Rows without a gradient are left out of the computation but stay in the denominator."""
        counted = [row for row in part if self._counts(row)]
        on_policy = first and self._config.old_logprobs == "recompute"
        return self.backend.step(
            [row.sample for row in counted],
            [row.inputs(on_policy=on_policy) for row in counted],
            self._loss,
            denominator=denominator(part, self._config.loss_denominator),
            lr=lr,
            temperature=self._temperature,
        )

    def _counts(self, row: Row) -> bool:
        """Whether it has a gradient."""
        return row.advantage != 0.0 or self._loss.regularizes

    def _logprobs(self, source: LogprobSource, rows: list[Row]) -> list[Tensor]:
        """Of the trained tokens of each row."""
        values = source.logprobs([row.sample for row in rows], temperature=self._temperature)
        return [v[trained_positions(row.sample)] for row, v in zip(rows, values, strict=True)]
