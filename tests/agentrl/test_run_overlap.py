"""Sampling while the trainer steps: the engine's copies stay those of the version that it names.

The reference is a copy of the parameters as each step finds them, run by transformers alone, one sequence at a time: nothing of
the trainer's packed rows is in it. bfloat16 is off by about 0.02; a copy that is one step too late, or too early, by 0.13 and
more.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
import torch

from agentrl import assembly
from agentrl import run as runs
from agentrl.live import PlainWatch
from agentrl.sample import Sample, samples_of
from tests.support.runs import small
from tests.trainers.builders import plain_logprobs

STEPS = 3
LONG = [
    "model.dtype=bfloat16",
    "rollout.staleness=1",
    f"trainer.steps={STEPS}",
    "sampling.temperature=1",
    "trainer.lr=3e-3",  # so much that another version's logprobs are far off
    "trainer.warmup_steps=0",
    "engine.slots=3",  # sampling takes longer than a step
    "engine.max_context=512",
    "sampling.max_new_tokens=40",
    "sampling.max_episode_tokens=400",
]


class Recorder:
    """Stands before the run's trainer: keeps each step's policy and what it was given."""

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        self.models: list[Any] = []
        self.samples: list[tuple[int, Sample]] = []

    def step(self, groups: Any, number: int) -> dict[str, float]:
        self.models.append(copy.deepcopy(self._trainer.backend.model))
        self.samples += [(number, sample) for sample in samples_of(groups)]
        metrics: dict[str, float] = self._trainer.step(groups, number)
        return metrics

    def __getattr__(self, name: str) -> Any:
        return getattr(self._trainer, name)


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the run makes of its config."""
    made: dict[str, Any] = {}
    engine, trainer = assembly.engine, assembly.trainer

    def keep(name: str, value: Any) -> Any:
        made[name] = value
        return value

    monkeypatch.setattr(assembly, "engine", lambda *a, **k: keep("engine", engine(*a, **k)))
    monkeypatch.setattr(assembly, "trainer", lambda *a, **k: keep("trainer", Recorder(trainer(*a, **k))))
    return made


def turns(sample: Sample) -> Iterator[list[int]]:
    """The positions of each sampled turn."""
    for trained, positions in groupby(range(len(sample)), key=lambda i: sample.mask[i]):
        if trained:
            yield list(positions)


def reference(model: Any, sample: Sample) -> torch.Tensor:
    """[n]: the logprob of each sampled id, 0 elsewhere."""
    out = torch.zeros(len(sample))
    with torch.no_grad():
        out[[i for i, sampled in enumerate(sample.mask) if sampled]] = plain_logprobs(model, sample)[0]
    return out


def test_tokens_sampled_during_a_step_have_the_logprobs_of_the_version_they_name(tmp_path: Path, seen: dict[str, Any]) -> None:
    resolved = small(tmp_path, "run=a", *LONG)
    assert runs.train(resolved, watch=PlainWatch()).steps == STEPS
    assert seen["engine"].packed
    recorder = seen["trainer"]
    right: list[float] = []
    wrong: list[float] = []
    for step, sample in recorder.samples:
        for turn in turns(sample):
            versions = {sample.versions[i] for i in turn}
            assert max(0, step - 1) <= min(versions) <= max(versions) <= step
            if len(versions) > 1 or step == 0:  # an update in the middle: the cache is of both
                continue
            (version,) = versions
            sampled = torch.tensor([sample.logprobs[i] for i in turn])
            for model_of, found in ((version, right), (2 * step - 1 - version, wrong)):
                theirs = reference(recorder.models[model_of], sample)[turn]
                found.append((sampled - theirs).abs().mean().item())
    assert len(right) >= 2 * STEPS
    assert max(right) < 0.05  # bfloat16
    assert min(wrong) > 0.1
