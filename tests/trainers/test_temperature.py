"""One temperature everywhere: recomputed, reference and trained logprobs are of the distribution that was sampled from."""

import pytest

from agentrl.config import TrainerConfig
from agentrl.sample import samples_of
from agentrl.trainers.trainer import Trainer
from tests.trainers.builders import backend, group, plain_logprobs

TEMPERATURE = 0.6
GROUPS = [group("a", [1.0, 0.0]), group("b", [0.0, 1.0], sampled=(7, 9, 30))]


def test_recomputed_and_reference_logprobs_are_those_of_the_step() -> None:
    """Nothing moves with such a learning rate: every ratio is 1, and there is no divergence from the reference."""
    policy = backend()
    config = TrainerConfig(old_logprobs="recompute", epochs=2, lr=1e-12, kl="k3", kl_coef=0.1)
    metrics = Trainer(policy, config, temperature=TEMPERATURE, reference=policy.frozen()).step(GROUPS, 0)
    assert metrics["optimizer_steps"] == 2.0
    assert (metrics["ratio_mean"], metrics["ess"]) == (pytest.approx(1.0, abs=1e-4), pytest.approx(1.0, abs=1e-4))
    assert metrics["kl_reference"] == pytest.approx(0.0, abs=1e-6)


def test_the_step_is_taken_at_the_temperature_that_was_sampled_with() -> None:
    """The mean distance from the episodes' own logprobs, worked out with a plain forward pass."""
    policy = backend()
    distances = []
    for sample in samples_of(GROUPS):
        logprobs, _ = plain_logprobs(policy.model, sample, TEMPERATURE)
        theirs = [logprob for logprob, trained in zip(sample.logprobs, sample.mask, strict=True) if trained]
        distances += [abs(ours - logprob) for ours, logprob in zip(logprobs.tolist(), theirs, strict=True)]
    metrics = Trainer(policy, TrainerConfig(), temperature=TEMPERATURE).step(GROUPS, 0)
    assert metrics["mismatch_mean"] == pytest.approx(sum(distances) / len(distances), abs=1e-5)
