import random

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from agentrl.errors import UsageError
from agentrl.trainers.losses import policy_loss
from tests.trainers.builders import (
    FAMILIES,
    backend,
    distance,
    gradients,
    inputs_for,
    plain_logprobs,
    sample,
    siblings,
    tiny,
)

LOSS = policy_loss(clip_low=0.5, clip_high=0.6, kl="k3", kl_coef=0.05, entropy_coef=0.01, correction="tis", correction_cap=1.2)
CLIP = policy_loss(clip_low=0.2, clip_high=0.2)


def reference_gradients(model, samples, inputs, loss, denominator, temperature):
    """By transformers and autograd alone: every sequence by itself, all logits, one backward."""
    model.zero_grad()
    total = 0.0
    for s, x in zip(samples, inputs, strict=True):
        logprobs, entropy = plain_logprobs(model, s, temperature)
        total = total + loss(logprobs, entropy, x)[0]
    (total / denominator).backward()
    return {name: p.grad.clone() for name, p in model.named_parameters()}


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_gradient_equals_plain_transformers(family):
    samples = siblings(2, 3)
    inputs = inputs_for(samples)
    expected = reference_gradients(tiny(family), samples, inputs, LOSS, 7.0, 0.8)
    ours, _ = gradients(backend(tiny(family), tokens_per_microbatch=40), samples, inputs, LOSS, temperature=0.8)
    assert distance(ours, expected) < 1e-5


@pytest.mark.parametrize("family", ["llama-tied", "qwen3-moe"])
def test_gradient_does_not_depend_on_the_layout(family):
    """Micro-batch size, packing order, shared prompts, chunk of logits, activation checkpointing."""
    samples = siblings(3, 3)
    inputs = inputs_for(samples)
    whole, metrics = gradients(backend(tiny(family), tokens_per_microbatch=1000), samples, inputs, LOSS)
    order = random.Random(1).sample(range(len(samples)), len(samples))
    shuffled = ([samples[i] for i in order], [inputs[i] for i in order])
    for settings, (batch, tensors) in (
        ({"tokens_per_microbatch": 1}, (samples, inputs)),
        ({"tokens_per_microbatch": 37}, (samples, inputs)),
        ({"tokens_per_microbatch": 37}, shuffled),
        ({"tokens_per_microbatch": 1000, "share_prefix": False}, (samples, inputs)),
        ({"tokens_per_microbatch": 60, "logits_chunk": 1000}, shuffled),
        ({"tokens_per_microbatch": 60, "activation_checkpointing": True}, (samples, inputs)),
    ):
        ours, other = gradients(backend(tiny(family), **settings), batch, tensors, LOSS)
        assert distance(ours, whole) < 1e-6, settings
        for name in metrics.keys() - {"computed_tokens", "grad_norm"}:
            assert other[name] == pytest.approx(metrics[name], rel=1e-4), name


def test_sharing_a_prompt_computes_it_once():
    samples = [sample([*range(3, 23), 30 + i, 40 + i], [0] * 20 + [1, 1], prompt=20) for i in range(4)]
    inputs = inputs_for(samples)
    _, shared = gradients(backend(), samples, inputs, CLIP)
    _, alone = gradients(backend(share_prefix=False), samples, inputs, CLIP)
    assert (shared["computed_tokens"], alone["computed_tokens"]) == (20 + 4, 4 * 21)


def test_a_loss_of_whole_sequences_gets_whole_sequences():
    """A loss that is not a sum over tokens takes the recomputing way; as a sum over tokens it must agree with the fused one."""

    class PerSequence:
        needs_entropy, per_token = True, False
        calls: list[list[int]] = []

        def __call__(self, logprobs, entropy, inputs):
            self.calls.append(torch.bincount(inputs["sequence"]).tolist())
            return LOSS(logprobs, entropy, inputs)

    samples = siblings(2, 3)
    inputs = inputs_for(samples)
    loss = PerSequence()
    fused, _ = gradients(backend(tiny("llama-tied"), tokens_per_microbatch=30), samples, inputs, LOSS)
    general, _ = gradients(backend(tiny("llama-tied"), tokens_per_microbatch=30), samples, inputs, loss)
    assert distance(general, fused) < 1e-6
    assert sorted(n for call in loss.calls for n in call) == sorted(s.trained_tokens for s in samples)


def test_advantage_zero_has_no_gradient_so_leaving_it_out_changes_nothing():
    samples = siblings(2, 3)
    inputs = inputs_for(samples)
    for x in inputs[1:5]:
        x["advantages"] = torch.zeros_like(x["advantages"])
    with_them, _ = gradients(backend(), samples, inputs, CLIP)
    kept = [0, 5]
    without, _ = gradients(backend(), [samples[i] for i in kept], [inputs[i] for i in kept], CLIP)
    assert distance(without, with_them) < 1e-6


def test_bfloat16_gradient_is_near_the_float32_one():
    samples = siblings(3, 3)
    inputs = inputs_for(samples)
    exact, _ = gradients(backend(), samples, inputs, CLIP)
    rounded, _ = gradients(backend(dtype="bfloat16", tokens_per_microbatch=40), samples, inputs, CLIP)
    assert 1e-6 < distance(rounded, exact) < 0.1


def test_logprobs_are_those_of_the_step():
    """Recomputed and used as old ones in another layout, the ratio is 1 up to rounding."""
    b = backend(tokens_per_microbatch=30)
    samples = siblings(2, 3)
    old = b.logprobs(samples, temperature=0.7)
    inputs = inputs_for(samples)
    for s, x, o in zip(samples, inputs, old, strict=True):
        x["old_logprobs"] = o[torch.tensor(s.mask, dtype=torch.bool)]
    _, metrics = gradients(b, samples, inputs, CLIP, temperature=0.7)
    assert metrics["ratio"] == pytest.approx(metrics["tokens"], rel=1e-5)
    assert metrics["tokens"] == sum(s.trained_tokens for s in samples)
    _, cold = gradients(b, samples, inputs, CLIP, temperature=1.0)  # a forgotten temperature shows
    assert abs(cold["ratio"] / cold["tokens"] - 1) > 0.01


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_save_and_load_go_on_bit_for_bit(tmp_path, dtype):
    samples = siblings(2, 3)
    inputs = inputs_for(samples)

    def advance(b, steps):
        for _ in range(steps):
            b.step(samples, inputs, CLIP, denominator=10.0, lr=1e-2, temperature=1.0)

    first = backend(tiny("llama-tied"), dtype=dtype, max_grad_norm=1.0)
    advance(first, 2)
    first.save(tmp_path)
    second = backend(tiny("llama-tied", seed=9), dtype=dtype, max_grad_norm=1.0)
    shared = second.model.lm_head.weight
    second.load(tmp_path)
    advance(first, 2)
    advance(second, 2)
    assert shared is second.model.lm_head.weight is second.model.model.embed_tokens.weight
    for (name, a), (_, b) in zip(first.export(), second.export(), strict=True):
        assert torch.equal(a, b), name


def test_a_step_changes_the_models_own_tensors():
    b = backend(dtype="bfloat16")
    weight = b.model.lm_head.weight
    before, address = weight.detach().clone(), weight.data_ptr()
    samples = siblings(1, 2)
    metrics = b.step(samples, inputs_for(samples), CLIP, denominator=1.0, lr=1e-2, temperature=1.0)
    assert weight.data_ptr() == address
    assert not torch.equal(weight, before)
    assert metrics["grad_norm"] > 0


@pytest.mark.parametrize("trained", ["lm_head", "model.layers.0"])
def test_what_is_frozen_stays_and_the_rest_learns(trained):
    model = tiny("llama")
    for name, p in model.named_parameters():
        p.requires_grad_(name.startswith(trained))
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    samples = siblings(1, 2)
    inputs = inputs_for(samples)
    expected = reference_gradients(tiny("llama"), samples, inputs, CLIP, 7.0, 1.0)
    b = backend(model)
    ours, _ = gradients(b, samples, inputs, CLIP)
    assert distance(ours, {name: expected[name] for name in ours}) < 1e-5
    b.step(samples, inputs, CLIP, denominator=1.0, lr=1e-2, temperature=1.0)
    for name, p in model.named_parameters():
        assert torch.equal(p, before[name]) != name.startswith(trained), name


def test_step_without_samples_is_a_step_of_gradient_zero():
    b = backend()
    metrics = b.step([], [], CLIP, denominator=5.0, lr=1e-2, temperature=1.0)
    assert metrics == {"loss": 0.0, "computed_tokens": 0.0, "grad_norm": 0.0, "threads": torch.get_num_threads()}


@pytest.mark.parametrize("family", ["llama", "llama-tied", "qwen3-moe"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_saved_model_loads_strictly_in_transformers(tmp_path, family, dtype):
    b = backend(tiny(family), dtype=dtype)
    samples = siblings(1, 2)
    b.step(samples, inputs_for(samples), CLIP, denominator=1.0, lr=1e-2, temperature=1.0)
    b.save_pretrained(tmp_path)
    loaded, report = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=getattr(torch, dtype), output_loading_info=True)
    assert not any(report[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    mine, theirs = dict(b.model.named_parameters()), dict(loaded.named_parameters())
    assert mine.keys() == theirs.keys()
    assert all(torch.equal(mine[name], theirs[name]) for name in mine)


@pytest.mark.parametrize("family", ["llama", "llama-tied", "qwen3-moe"])
def test_export_has_the_names_and_values_of_the_hugging_face_file(tmp_path, family):
    b = backend(tiny(family))
    b.save_pretrained(tmp_path)
    stored = load_file(tmp_path / "model.safetensors")
    exported = dict(b.export())
    assert exported.keys() == stored.keys()
    assert all(torch.equal(exported[name], stored[name]) for name in stored)
    layout = b.layout()
    assert {spec.name: spec.shape for spec in layout[0]} == {name: tuple(t.shape) for name, t in stored.items()}
    assert sum(spec.numel for spec in layout[0]) == sum(t.numel() for t in stored.values())


def test_the_frozen_reference_stays_as_it_was():
    b = backend()
    reference = b.frozen()
    samples = siblings(1, 2)
    before = b.logprobs(samples, temperature=1.0)
    b.step(samples, inputs_for(samples), CLIP, denominator=1.0, lr=1e-2, temperature=1.0)
    for old, now, kept in zip(
        before, b.logprobs(samples, temperature=1.0), reference.logprobs(samples, temperature=1.0), strict=True
    ):
        assert torch.equal(old, kept)
        assert not torch.equal(old, now)


def test_dropout_is_off():
    model = tiny("llama").train()
    model.config.attention_dropout = 0.5
    for module in model.modules():
        if hasattr(module, "attention_dropout"):
            module.attention_dropout = 0.5
    b = backend(model)
    samples = siblings(1, 2)
    first, second = b.logprobs(samples, temperature=1.0), b.logprobs(samples, temperature=1.0)
    assert all(torch.equal(x, y) for x, y in zip(first, second, strict=True))


def test_a_gradient_that_is_not_finite_is_an_error_and_changes_nothing():
    b = backend()
    samples = siblings(1, 2)
    inputs = inputs_for(samples)
    inputs[0]["advantages"][0] = torch.nan
    before = [p.detach().clone() for p in b.model.parameters()]
    with pytest.raises(FloatingPointError):
        b.step(samples, inputs, CLIP, denominator=1.0, lr=1e-2, temperature=1.0)
    assert all(torch.equal(p, q) for p, q in zip(b.model.parameters(), before, strict=True))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s, x: x[0].update(advantages=torch.ones(1)), "shape"),
        (lambda s, x: x.pop(), "2 samples but inputs for 1"),
        (lambda s, x: x[1].pop("old_logprobs"), "has inputs"),
    ],
)
def test_lists_of_different_lengths_are_refused(change, message):
    samples = siblings(1, 2)
    inputs = inputs_for(samples)
    change(samples, inputs)
    with pytest.raises(ValueError, match=message):
        backend().step(samples, inputs, CLIP, denominator=1.0, lr=0.0, temperature=1.0)


def test_impossible_settings_are_refused():
    with pytest.raises(UsageError, match="'bfloat16'"):
        backend(dtype="bfloat61")
    for betas in ([0.9], [0.9, 0.95, 0.5], [0.9, 1.0]):
        with pytest.raises(UsageError, match="two numbers from 0 to below 1"):
            backend(betas=betas)
    with pytest.raises(ValueError, match="temperature"):
        backend().logprobs(siblings(1, 1), temperature=0.0)
    with pytest.raises(ValueError, match="denominator"):
        backend().step([], [], CLIP, denominator=0.0, lr=0.0, temperature=1.0)
