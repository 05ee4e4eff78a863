import pytest
import torch

from agentrl.backend import Backend
from agentrl.registry import find
from agentrl.trainers.backends.scripted import ScriptedBackend
from agentrl.trainers.losses import policy_loss
from tests.trainers.builders import inputs_for, siblings

LOSS = policy_loss(clip_low=0.2, clip_high=0.2)


def methods(kind):
    return {name for name in vars(kind) if not name.startswith("_")}


@pytest.mark.parametrize("name", ["local", "scripted"])
def test_backends_found_by_name_have_every_method_of_the_contract(name):
    assert methods(Backend) <= methods(find("backend", name))


def test_a_step_is_written_down_and_changes_the_one_number():
    double = ScriptedBackend(logprob=-1.0)
    samples = siblings(1, 2)
    inputs = inputs_for(samples)
    metrics = double.step(samples, inputs, LOSS, denominator=3.0, lr=0.25, temperature=0.5)
    assert (double.logprob, dict(double.export())["logprob"].item()) == (-0.75, -0.75)
    (step,) = double.steps
    assert (step.samples, step.denominator, step.lr, step.temperature) == (tuple(samples), 3.0, 0.25, 0.5)
    engine = torch.cat([x["engine_logprobs"] for x in inputs])
    assert metrics["mismatch_max"] == pytest.approx((-1.0 - engine).abs().max().item())
    assert metrics["tokens"] == sum(s.trained_tokens for s in samples)


def test_wrong_inputs_fail_in_the_loss():
    with pytest.raises(KeyError, match="advantages"):
        ScriptedBackend().step(siblings(1, 1), [{}], LOSS, denominator=1.0, lr=0.0, temperature=1.0)


def test_fails_where_it_is_told_to():
    double = ScriptedBackend(fail_at=[1])
    double.step([], [], LOSS, denominator=1.0, lr=0.5, temperature=1.0)
    with pytest.raises(FloatingPointError):
        double.step([], [], LOSS, denominator=1.0, lr=0.5, temperature=1.0)
    assert double.logprob == -0.5


def test_save_and_load(tmp_path):
    first = ScriptedBackend(logprob=-3.0)
    first.save(tmp_path)
    second = ScriptedBackend()
    second.load(tmp_path)
    assert second.logprob == -3.0
