import math
from dataclasses import replace

import pytest
import torch

from agentrl.config import TrainerConfig
from agentrl.episode import EpisodeGroup, Outcome
from agentrl.errors import UsageError
from agentrl.task import Task
from agentrl.trainers.advantages import ADVANTAGES
from agentrl.trainers.backends.scripted import ScriptedBackend
from agentrl.trainers.batch import EmptyBatch, denominator
from agentrl.trainers.losses import LOSSES, kl_divergence
from agentrl.trainers.schedules import learning_rate
from agentrl.trainers.trainer import Trainer
from agentrl.validate import CHOICES
from tests.trainers.builders import backend, episode, group, tiny


def config(**changes):
    return replace(TrainerConfig(advantage="group_mean", lr=0.5, warmup_steps=0, steps=10), **changes)


def trainer(double=None, *, temperature=1.0, reference=None, top_p=1.0, top_k=0, seed=0, **changes):
    double = ScriptedBackend() if double is None else double
    settings = {"reference": reference, "top_p": top_p, "top_k": top_k, "seed": seed}
    return Trainer(double, config(**changes), temperature=temperature, **settings), double


def as_group(name, *episodes):
    return EpisodeGroup(id=name, number=0, task=Task(id=name), episodes=episodes)


def test_each_trained_token_gets_its_episodes_advantage():
    t, double = trainer()
    t.step([group("a", [1.0, 0.0], sampled=(8, 9, 10)), group("b", [4.0, 2.0])], 0)
    (step,) = double.steps
    assert [x["advantages"].tolist() for x in step.inputs] == [[0.5] * 3, [-0.5] * 3, [1.0] * 2, [-1.0] * 2]
    assert [x["old_logprobs"].tolist() for x in step.inputs[:1]] == [[-1.0] * 3]


def test_advantage_zero_is_left_out_but_counted():
    t, double = trainer()
    metrics = t.step([group("same", [1.0, 1.0, 1.0]), group("b", [1.0, 0.0])], 0)
    (step,) = double.steps
    assert [s.group for s in step.samples] == ["b", "b"]
    assert step.denominator == 5 * 2
    assert (metrics["samples"], metrics["samples_skipped"]) == (5.0, 3.0)
    assert metrics["tokens_trained"] == 10.0


@pytest.mark.parametrize("regularizer", [{"kl": "k3", "kl_coef": 0.1}, {"entropy_coef": 0.1}])
def test_with_a_regularizer_nothing_is_left_out(regularizer):
    t, double = trainer(reference=ScriptedBackend(logprob=-2.0), **regularizer)
    metrics = t.step([group("same", [1.0, 1.0])], 0)
    assert len(double.steps[0].samples) == 2
    assert metrics["samples_skipped"] == 0.0


def test_a_batch_without_any_signal_is_no_step():
    t, double = trainer()
    metrics = t.step([group("same", [1.0, 1.0])], 0)
    assert double.steps == []
    assert (metrics["optimizer_steps"], metrics["samples"], metrics["samples_skipped"]) == (0.0, 2.0, 2.0)
    assert not {"loss", "grad_norm", "ratio_mean"} & metrics.keys()  # there is none to be told


def test_momentum_and_weight_decay_move_nothing_where_no_group_differs():
    """After a step with a gradient Adam's momentum would carry the weights on."""
    b = backend(weight_decay=0.1)
    t, _ = trainer(b, lr=1e-2)

    def weights():
        return [p.detach().clone() for p in b.model.parameters()]

    before = weights()
    t.step([group("a", [1.0, 0.0])], 0)
    learnt = weights()
    assert any(not torch.equal(x, y) for x, y in zip(before, learnt, strict=True))
    t.step([group("same", [1.0, 1.0])], 1)
    assert all(torch.equal(x, y) for x, y in zip(learnt, weights(), strict=True))


def test_a_minibatch_without_any_signal_is_left_out():
    t, double = trainer(minibatches=2)
    metrics = t.step([group("same", [1.0, 1.0]), group("b", [1.0, 0.0])], 0)
    assert [[s.group for s in step.samples] for step in double.steps] == [["b", "b"]]
    assert metrics["optimizer_steps"] == 1.0


def test_denominators():
    groups = [group("a", [1.0, 0.0], sampled=(8, 9, 10)), group("b", [1.0, 0.0])]
    for kind, expected in (("tokens", 10.0), ("sequences", 4.0)):
        t, double = trainer(loss_denominator=kind)
        t.step(groups, 0)
        assert double.steps[0].denominator == expected


def test_forks_of_an_episode_weigh_as_one():
    """An episode of three transcripts has one place in the baseline, and a third of its weight in each sample."""
    whole, forked = episode("a", 0, 1.0), episode("a", 1, 0.0, transcripts=3)
    t, double = trainer()
    t.step([as_group("a", whole, forked)], 0)
    step = double.steps[0]
    assert [x["advantages"][0].item() for x in step.inputs] == [0.5, -0.5, -0.5, -0.5]
    assert [x["weights"][0].item() for x in step.inputs] == pytest.approx([1.0, 1 / 3, 1 / 3, 1 / 3])
    assert step.denominator == pytest.approx(2 + 3 * 2 / 3)
    t, double = trainer(loss_denominator="sequences")
    t.step([as_group("a", whole, forked)], 0)
    assert double.steps[0].denominator == pytest.approx(2.0)


def test_aborted_episodes_are_neither_trained_nor_in_the_baseline_and_truncated_ones_are_both():
    episodes = [
        episode("a", 0, 1.0),
        episode("a", 1, 0.0, outcome=Outcome.MAX_TURNS),
        episode("a", 2, 100.0, outcome=Outcome.SANDBOX_LOST),
    ]
    t, double = trainer()
    metrics = t.step([as_group("a", *episodes)], 0)
    assert [x["advantages"][0].item() for x in double.steps[0].inputs] == [0.5, -0.5]
    assert metrics["samples_truncated"] == 1.0


def test_a_batch_of_aborted_episodes_is_an_error():
    t, _ = trainer()
    broken = [replace(episode("a", i, 1.0, outcome=Outcome.ENV_ERROR), error="KeyError: 'x'") for i in range(2)]
    with pytest.raises(EmptyBatch, match=r"batch of 1 groups .*: 2 of 3 episodes ended as env_error: KeyError: 'x'$"):
        t.step([as_group("a", *broken, episode("a", 2, 1.0, outcome=Outcome.SANDBOX_LOST))], 0)


def test_a_batch_in_which_nothing_was_sampled_names_the_key_to_raise():
    t, _ = trainer()
    full = episode("a", 0, 0.0, outcome=Outcome.MAX_TOKENS)
    cut = replace(full, transcripts=(full.transcript.fork(1),), error="the conversation has 900 tokens")
    with pytest.raises(EmptyBatch, match=r"1 of 1 .* ended as max_tokens: .* 900 tokens; raise sampling.max_episode_tokens"):
        t.step([as_group("a", cut)], 0)


def test_learning_rate_follows_the_steps_number():
    t, double = trainer(lr=1.0, lr_schedule="linear", warmup_steps=2, steps=6)
    for number in (0, 1, 2, 4):
        t.step([group("a", [1.0, 0.0])], number)
    assert [s.lr for s in double.steps] == [0.5, 1.0, 1.0, 0.5]


def test_minibatches_are_whole_groups_and_every_sample_once_in_each_epoch():
    t, double = trainer(epochs=2, minibatches=2)
    t.step([group(name, [1.0, 0.0]) for name in "abcde"], 0)
    assert len(double.steps) == 4
    for epoch in (double.steps[:2], double.steps[2:]):
        names = [[s.group for s in step.samples] for step in epoch]
        assert sorted(names[0] + names[1]) == sorted("aabbccddee")
        assert {len(set(n)) for n in names} == {2, 3}
        assert [step.denominator for step in epoch] == [2 * len(n) for n in names]


def test_the_same_step_is_the_same_again_and_another_is_not():
    def order(number, seed):
        t, double = trainer(minibatches=4, seed=seed)
        t.step([group(name, [1.0, 0.0]) for name in "abcdefgh"], number)
        return [sorted({s.group for s in step.samples}) for step in double.steps]

    assert order(3, 0) == order(3, 0)
    assert len({str(order(n, s)) for n, s in ((3, 0), (4, 0), (3, 1))}) == 3


def test_fewer_groups_than_minibatches_gives_fewer_steps():
    t, double = trainer(minibatches=4)
    t.step([group("a", [1.0, 0.0]), group("b", [1.0, 0.0])], 0)
    assert len(double.steps) == 2


def test_recompute_costs_no_pass_for_a_single_step():
    t, double = trainer(old_logprobs="recompute")
    metrics = t.step([group("a", [1.0, 0.0])], 0)
    assert double.calls == ["step"]
    assert "old_logprobs" not in double.steps[0].inputs[0]
    assert metrics["ratio_mean"] == 1.0
    assert metrics["kl_old"] == 0.0


def test_recompute_uses_the_policy_before_the_first_step():
    t, double = trainer(old_logprobs="recompute", epochs=2, minibatches=2, lr=0.25)
    t.step([group("a", [1.0, 0.0]), group("b", [1.0, 0.0])], 0)
    assert double.calls == ["logprobs", *["step"] * 4]
    first, *later = double.steps
    assert all("old_logprobs" not in x for x in first.inputs)
    assert all(x["old_logprobs"].tolist() == [-1.0, -1.0] for step in later for x in step.inputs)


def test_old_logprobs_of_the_engine_are_those_of_the_episode():
    t, double = trainer(ScriptedBackend(logprob=-1.0))
    metrics = t.step([group("a", [1.0, 0.0], logprob=-1.5)], 0)
    assert metrics["ratio_mean"] == pytest.approx(math.exp(0.5))
    assert metrics["mismatch_mean"] == pytest.approx(0.5)
    assert double.calls == ["step"]


def test_mismatch_is_measured_before_the_policy_changes():
    t, _ = trainer(epochs=3, lr=0.5)
    metrics = t.step([group("a", [1.0, 0.0], logprob=-1.1)], 0)
    assert metrics["mismatch_mean"] == pytest.approx(0.1, abs=1e-6)
    assert metrics["optimizer_steps"] == 3.0


def test_effective_sample_size_by_hand():
    t, _ = trainer(ScriptedBackend(logprob=-1.0))
    episodes = [episode("a", 0, 1.0, logprob=-1.0), episode("a", 1, 0.0, logprob=-1.0 - math.log(3.0))]
    metrics = t.step([as_group("a", *episodes)], 0)
    assert metrics["ess"] == pytest.approx((1 + 3) ** 2 / (2 * (1 + 9)), rel=1e-5)  # ratios 1 and 3


def test_reference_logprobs_come_from_the_reference():
    reference = ScriptedBackend(logprob=-3.0)
    t, double = trainer(reference=reference, kl="k1", kl_coef=0.1, temperature=0.7)
    metrics = t.step([group("a", [1.0, 0.0])], 0)
    assert reference.calls == ["logprobs"]
    assert double.steps[0].inputs[0]["reference_logprobs"].tolist() == [-3.0, -3.0]
    assert double.steps[0].temperature == 0.7
    assert metrics["kl_reference"] == pytest.approx(2.0)


def test_correction_weights():
    t, _ = trainer(ScriptedBackend(logprob=-1.0), old_logprobs="recompute", correction="tis", correction_cap=2.0)
    metrics = t.step([group("a", [1.0, 0.0], logprob=-1.0 - math.log(4.0))], 0)
    assert metrics["correction_mean"] == pytest.approx(2.0)
    assert metrics["correction_capped_fraction"] == 1.0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"advantage": "gropu_norm"}, "group_norm"),
        ({"loss": "clipp"}, "'clip'"),
        ({"loss_denominator": "token"}, "'tokens'"),
        ({"old_logprobs": "recomputed"}, "'recompute'"),
        ({"minibatches": 9}, "prompts_per_step=8"),
        ({"minibatches": 0}, "minibatches=0 must be at least 1"),
        ({"epochs": 0}, "epochs=0 must be at least 1"),
        ({"kl": "k4", "kl_coef": 0.1}, "'k1'"),
        ({"kl_coef": 0.1}, "no effect with trainer.kl=none"),
        ({"clip_low": 1.5}, "clip_low"),
        ({"clip_high": -0.1}, "clip_high"),
        ({"dual_clip": 0.5}, "dual_clip"),
        ({"correction": "tiss"}, "'tis'"),
        ({"correction_cap": 0.0}, "correction_cap"),
        ({"correction": "tis"}, "old_logprobs=recompute"),
        ({"temperature": 0.0}, "temperature=0"),
        ({"top_p": 0.9}, "top_p"),
        ({"top_k": 5}, "top_k"),
        ({"lr_schedule": "cosin"}, "'cosine'"),
    ],
)
def test_configurations_that_cannot_be_meant(changes, message):
    with pytest.raises(UsageError, match=message):
        trainer(**changes)


def test_a_divergence_needs_something_to_diverge_from():
    with pytest.raises(ValueError, match="needs a reference policy"):
        trainer(kl="k3", kl_coef=0.1)


def test_every_name_that_the_config_may_hold_is_known_here():
    """The names stand in `agentrl.validate`, and what they stand for in this part."""
    assert set(CHOICES["trainer.advantage"]) == set(ADVANTAGES)
    assert set(CHOICES["trainer.loss"]) == set(LOSSES)
    assert set(CHOICES["trainer.kl"]) == {"none", "k1", "k2", "k3"}
    for name in ("k1", "k2", "k3"):
        assert kl_divergence(name, torch.zeros(1), torch.ones(1), torch.ones(1)).item() > -2
    for schedule in CHOICES["trainer.lr_schedule"]:
        assert 0 < learning_rate(3, peak=1.0, schedule=schedule, warmup_steps=0, steps=6) <= 1
    assert [denominator([], kind) for kind in CHOICES["trainer.loss_denominator"]] == [0, 0]


def test_first_ratio_of_a_real_model_is_exactly_one_with_recompute():
    for dtype in ("float32", "bfloat16"):
        t, _ = trainer(backend(dtype=dtype), old_logprobs="recompute", lr=1e-3)
        metrics = t.step([group("a", [1.0, 0.0]), group("b", [0.0, 1.0])], 0)
        assert metrics["ratio_mean"] == 1.0
        assert metrics["ess"] == 1.0
        assert metrics["mismatch_mean"] > 0  # the episodes' logprobs are made up


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("preset", [{"advantage": "group_norm"}, {"advantage": "leave_one_out"}, {"advantage": "batch_mean"}])
def test_a_bandit_is_learned(dtype, preset):
    """One prompt, one token is rewarded: its probability rises from less than a tenth to nearly all."""
    b = backend(tiny("llama-tied"), dtype=dtype, max_grad_norm=1.0)
    t, _ = trainer(b, lr=5e-3, old_logprobs="engine", **preset)
    generator = torch.Generator().manual_seed(0)
    prompt, good = (5, 6, 7), 11

    def policy():
        with torch.no_grad():
            return torch.log_softmax(b.model(torch.tensor([prompt])).logits[0, -1].float(), -1)

    assert policy()[good].exp() < 0.1
    for number in range(40):
        logprobs = policy()
        drawn = torch.multinomial(logprobs.exp(), 24, replacement=True, generator=generator).tolist()
        episodes = [
            episode("g", i, float(token == good), prompt=prompt, sampled=(token,), logprob=min(0.0, logprobs[token].item()))
            for i, token in enumerate(drawn)
        ]
        t.step([as_group("g", *episodes)], number)
    assert policy()[good].exp() > 0.9
