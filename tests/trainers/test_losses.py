import math

import pytest
import torch

from agentrl.trainers.losses import importance_weights, kl_divergence, policy_loss

CLIP = {"clip_low": 0.2, "clip_high": 0.3}


def tensors(n=40, seed=0):
    g = torch.Generator().manual_seed(seed)
    logprobs = (-1.0 + 0.5 * torch.randn(n, generator=g)).requires_grad_()
    entropy = torch.rand(n, generator=g).requires_grad_()
    old = logprobs.detach() + 0.5 * torch.randn(n, generator=g)
    return (
        logprobs,
        entropy,
        {
            "advantages": torch.randn(n, generator=g),
            "weights": torch.rand(n, generator=g) + 0.5,
            "old_logprobs": old,
            "engine_logprobs": old + 0.5 * torch.randn(n, generator=g),
            "reference_logprobs": old + torch.randn(n, generator=g),
        },
    )


@pytest.mark.parametrize(
    ("ratio", "advantage", "expected", "clipped"),
    [
        (1.1, 2.0, -2.2, 0.0),  # inside
        (1.5, 2.0, -2.6, 1.0),  # gains stop at 1 + clip_high
        (0.5, 2.0, -1.0, 0.0),  # a loss is never clipped
        (0.5, -2.0, 1.6, 1.0),  # 1 - clip_low
        (1.5, -2.0, 3.0, 0.0),
    ],
)
def test_asymmetric_clip_by_hand(ratio, advantage, expected, clipped):
    loss = policy_loss(**CLIP)
    inputs = {"advantages": torch.tensor([advantage]), "weights": torch.ones(1), "old_logprobs": torch.tensor([-1.0])}
    logprobs = torch.tensor([-1.0 + math.log(ratio)], requires_grad=True)
    total, sums = loss(logprobs, None, inputs)
    total.backward()
    assert total.item() == pytest.approx(expected, rel=1e-6)
    assert sums["clipped"].item() == clipped
    # d(-A r) / d logprob = -A r inside, 0 where clipped
    assert logprobs.grad.item() == pytest.approx(0.0 if clipped else -advantage * ratio, rel=1e-6)


def test_dual_clip_bounds_the_loss_of_negative_advantages_only():
    loss = policy_loss(**CLIP, dual_clip=3.0)
    inputs = {"advantages": torch.tensor([-2.0, 2.0]), "weights": torch.ones(2), "old_logprobs": torch.tensor([-5.0, -5.0])}
    logprobs = torch.tensor([-5.0 + math.log(10.0)] * 2, requires_grad=True)
    total, sums = loss(logprobs, None, inputs)
    total.backward()
    assert total.item() == pytest.approx(2.0 * 3.0 - 2.0 * 1.3, rel=1e-6)
    assert logprobs.grad.tolist() == [0.0, 0.0]
    assert sums["clipped"].item() == 2.0


def naive(logprobs, entropy, x, *, kl_coef, entropy_coef, cap):
    """Token by token, in plain Python scalars of autograd, written from the papers' formulas."""
    total = 0.0
    for i in range(len(logprobs)):
        lp, old, ref, a = logprobs[i], x["old_logprobs"][i], x["reference_logprobs"][i], x["advantages"][i]
        r = torch.exp(lp - old)
        surrogate = torch.min(r * a, torch.clamp(r, 0.8, 1.3) * a)
        w = min(math.exp(old - x["engine_logprobs"][i]), cap)
        kl = r.detach() * 0.5 * (lp - ref) ** 2
        total = total + x["weights"][i] * (-w * surrogate + kl_coef * kl - entropy_coef * entropy[i])
    return total


def test_gradient_of_everything_together_equals_a_naive_formula():
    logprobs, entropy, inputs = tensors()
    loss = policy_loss(**CLIP, kl="k3", kl_coef=0.1, entropy_coef=0.02, correction="tis", correction_cap=1.5)
    total, _ = loss(logprobs, entropy, inputs)
    ours = torch.autograd.grad(total, [logprobs, entropy])
    theirs = torch.autograd.grad(naive(logprobs, entropy, inputs, kl_coef=0.1, entropy_coef=0.02, cap=1.5), [logprobs, entropy])
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


def test_sums_over_parts_are_the_sum_over_all():
    logprobs, entropy, inputs = tensors()
    loss = policy_loss(**CLIP, kl="k1", kl_coef=0.1, entropy_coef=0.02, correction="tis")
    whole, sums = loss(logprobs, entropy, inputs)
    parts = [loss(logprobs[s], entropy[s], {k: v[s] for k, v in inputs.items()}) for s in (slice(0, 7), slice(7, 40))]
    assert sum(p.item() for p, _ in parts) == pytest.approx(whole.item(), rel=1e-5)
    for name, value in sums.items():
        combine = max if name.endswith("_max") else sum
        assert combine(s[name].item() for _, s in parts) == pytest.approx(value.item(), rel=1e-5), name


def test_without_old_logprobs_the_ratio_is_exactly_one():
    logprobs, _, inputs = tensors()
    del inputs["old_logprobs"]
    total, sums = policy_loss(**CLIP)(logprobs, None, inputs)
    (gradient,) = torch.autograd.grad(total, logprobs)
    assert sums["ratio"].item() == sums["tokens"].item() == 40.0
    assert sums["kl_old"].item() == 0.0
    assert sums["clipped"].item() == 0.0
    torch.testing.assert_close(gradient, -inputs["advantages"] * inputs["weights"])


def test_correction_compares_the_old_policy_with_the_engine_also_without_old_logprobs():
    logprobs = torch.tensor([-1.0, -1.0], requires_grad=True)
    inputs = {
        "advantages": torch.ones(2),
        "weights": torch.ones(2),
        "engine_logprobs": torch.tensor([-1.0 - math.log(1.5), -1.0 - math.log(5.0)]),
    }
    total, sums = policy_loss(**CLIP, correction="tis", correction_cap=2.0)(logprobs, None, inputs)
    assert total.item() == pytest.approx(-1.5 - 2.0)  # the second is cut off at the cap
    assert sums["correction_capped"].item() == 1.0
    assert torch.autograd.grad(total, logprobs)[0].tolist() == pytest.approx([-1.5, -2.0])  # no gradient through the weight


def distributions():
    g = torch.Generator().manual_seed(3)
    policy = torch.randn(7, generator=g, dtype=torch.float64).requires_grad_()
    old, reference = (torch.log_softmax(torch.randn(7, generator=g, dtype=torch.float64), 0) for _ in range(2))
    return policy, old, reference


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
@pytest.mark.parametrize("on_policy", [True, False])
def test_expected_kl_gradient_is_the_true_one_on_and_off_policy(estimator, on_policy):
    """Exactly: the expectation over all 7 tokens under the policy that sampled, against autograd of sum p log(p / q)."""
    logits, old, reference = distributions()
    logprobs = torch.log_softmax(logits, 0)
    true = (logprobs.exp() * (logprobs - reference)).sum()
    (expected,) = torch.autograd.grad(true, logits, retain_graph=True)
    behavior = logprobs.detach() if on_policy else old
    tokens = kl_divergence(estimator, logprobs, reference, (logprobs.detach() - behavior).exp())
    (ours,) = torch.autograd.grad((behavior.exp() * tokens).sum(), logits)
    torch.testing.assert_close(ours, expected, rtol=1e-10, atol=1e-12)


def test_kl_values_are_the_estimators_and_k1_and_k3_are_unbiased():
    logits, _, reference = distributions()
    logprobs = torch.log_softmax(logits, 0).detach()
    true = (logprobs.exp() * (logprobs - reference)).sum().item()
    one = torch.ones(7, dtype=torch.float64)
    d = logprobs - reference
    for estimator, value in {"k1": d, "k2": d * d / 2, "k3": (-d).exp() - 1 + d}.items():
        out = kl_divergence(estimator, logprobs, reference, one * 1.7)
        torch.testing.assert_close(out, value)
        if estimator != "k2":
            assert (logprobs.exp() * out).sum().item() == pytest.approx(true)


def test_differentiating_k3_itself_would_be_wrong():
    """Why the straight-through: the naive k3 loss has the gradient of KL(reference || policy), another one."""
    logits, _, reference = distributions()
    logprobs = torch.log_softmax(logits, 0)
    d = logprobs - reference
    naive_k3 = (logprobs.detach().exp() * ((-d).exp() - 1 + d)).sum()
    (wrong,) = torch.autograd.grad(naive_k3, logits, retain_graph=True)
    (right,) = torch.autograd.grad((logprobs.exp() * d).sum(), logits)
    (reverse,) = torch.autograd.grad((reference.exp() * (reference - torch.log_softmax(logits, 0))).sum(), logits)
    torch.testing.assert_close(wrong, reverse)
    assert (wrong - right).abs().max() > 0.04


def test_extreme_log_ratios_stay_finite():
    logprobs = torch.tensor([-1e4, 0.0, -80.0], requires_grad=True)
    inputs = {
        "advantages": torch.tensor([-1.0, -1.0, 1.0]),
        "weights": torch.ones(3),
        "old_logprobs": torch.tensor([0.0, -1e4, -1.0]),
        "engine_logprobs": torch.tensor([-1e4, 0.0, -1.0]),
        "reference_logprobs": torch.tensor([0.0, -1e4, 0.0]),
    }
    loss = policy_loss(**CLIP, kl="k3", kl_coef=0.1, correction="tis")
    total, sums = loss(logprobs, None, inputs)
    (gradient,) = torch.autograd.grad(total, logprobs)
    assert total.isfinite()
    assert gradient.isfinite().all()
    assert all(value.isfinite() for value in sums.values())
    assert importance_weights(torch.tensor([0.0]), torch.tensor([-1e6]), cap=2.0).item() == 2.0


def test_mismatch_is_against_the_engine():
    logprobs = torch.tensor([-1.0, -2.0], requires_grad=True)
    inputs = {"advantages": torch.ones(2), "weights": torch.ones(2), "engine_logprobs": torch.tensor([-1.25, -1.0])}
    _, sums = policy_loss(**CLIP)(logprobs, None, inputs)
    assert (sums["mismatch"].item(), sums["mismatch_max"].item()) == (1.25, 1.0)
