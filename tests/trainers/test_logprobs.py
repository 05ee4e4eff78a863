"""Chunked logprobs against the plain log_softmax of all logits, values, gradients and sizes."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from agentrl.trainers.logprobs import Head, chunked_logprobs, fused_loss, logprobs_of
from agentrl.trainers.losses import policy_loss

N, H, V = 23, 8, 31
HEADS = {
    "plain": {},
    "bias": {"bias": True},
    "scaled": {"scale": 0.3},
    "capped": {"softcap": 1.5},
    "banned": {"bias": True, "banned": [3, 17, V, -1]},  # the last two are no ids of the vocabulary
    "banned capped": {"softcap": 1.5, "banned": [3]},
}


def made(kind, dtype=torch.float64):
    g = torch.Generator().manual_seed(1)
    hidden = torch.randn(N, H, generator=g, dtype=dtype).requires_grad_()
    weight = torch.randn(V, H, generator=g, dtype=dtype).requires_grad_()
    bias = torch.randn(V, generator=g, dtype=dtype).requires_grad_()
    settings = dict(HEADS[kind])
    banned = settings.pop("banned", [])
    allowed = torch.tensor([i for i in range(V) if i not in banned])
    targets = allowed[torch.randint(0, len(allowed), (N,), generator=g)]
    head = Head(weight=weight, bias=bias if settings.pop("bias", False) else None, **settings).without(banned)
    return hidden, head, targets


def plain(hidden, head, targets, temperature):
    logits = hidden @ head.weight.T
    if head.bias is not None:
        logits = logits + head.bias
    if head.softcap is not None:
        logits = torch.tanh(logits / head.softcap) * head.softcap
    logits = logits * head.scale / temperature
    allowed = [i for i in range(V) if head.banned is None or i not in head.banned.tolist()]
    logprobs = logits[range(len(targets)), targets] - torch.logsumexp(logits[:, allowed], -1)
    table = torch.log_softmax(logits[:, allowed], -1)
    return logprobs, -(table.exp() * table).sum(-1)


def leaves(hidden, head):
    return [hidden, head.weight] + ([] if head.bias is None else [head.bias])


@pytest.mark.parametrize("kind", sorted(HEADS))
@pytest.mark.parametrize("chunk", [1, 5, 100])
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_values_and_gradients_equal_plain(kind, chunk, temperature):
    hidden, head, targets = made(kind)
    ours = chunked_logprobs(hidden, head, targets, temperature=temperature, chunk=chunk)
    theirs = plain(hidden, head, targets, temperature)
    g = torch.Generator().manual_seed(2)
    by = [torch.randn(N, generator=g) for _ in range(2)]
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a.double(), b, rtol=0, atol=1e-5)
    ours_by = torch.autograd.grad(ours, leaves(hidden, head), by)
    theirs_by = torch.autograd.grad(theirs, leaves(hidden, head), [x.double() for x in by])
    for a, b in zip(ours_by, theirs_by, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", sorted(HEADS))
@pytest.mark.parametrize("entropy_coef", [0.0, 0.1])
def test_fused_loss_equals_autograd_through_all_logits(kind, entropy_coef):
    hidden, head, targets = made(kind)
    g = torch.Generator().manual_seed(2)
    inputs = {
        "advantages": torch.randn(N, generator=g),
        "weights": torch.rand(N, generator=g),
        "old_logprobs": -3.0 + torch.randn(N, generator=g),
        "reference_logprobs": -3.0 + torch.randn(N, generator=g),
    }
    loss = policy_loss(clip_low=0.5, clip_high=0.5, kl="k3", kl_coef=0.1, entropy_coef=entropy_coef)
    by_weight, by_bias = torch.zeros(V, H), torch.zeros(V)
    gradient, value, sums = fused_loss(
        hidden, head, targets, inputs, loss, temperature=0.8, chunk=7, factor=0.25,
        add_weight=by_weight.add_, add_bias=by_bias.add_,
    )  # fmt: skip
    logprobs, entropy = plain(hidden, head, targets, 0.8)
    total, whole = loss(logprobs, entropy, inputs)
    expected = torch.autograd.grad(0.25 * total, leaves(hidden, head))
    assert value == pytest.approx(0.25 * total.item(), rel=1e-5)
    for a, b in zip([gradient, by_weight, by_bias], expected, strict=False):
        torch.testing.assert_close(a.double(), b, rtol=1e-4, atol=1e-5)
    assert sum(s["clipped"].item() for s in sums) == whole["clipped"].item() > 0


def test_without_gradient():
    hidden, head, targets = made("plain")
    logprobs, entropy = logprobs_of(hidden, head, targets, temperature=1.0, chunk=4)
    assert entropy is None
    assert not logprobs.requires_grad
    torch.testing.assert_close(logprobs.double(), plain(hidden, head, targets, 1.0)[0], rtol=0, atol=1e-5)


def test_softmax_is_in_float32_for_a_bfloat16_model():
    hidden, head, targets = made("plain", torch.bfloat16)
    logprobs, _ = logprobs_of(hidden, head, targets, temperature=1.0, chunk=4)
    exact, _ = plain(hidden, head, targets, 1.0)
    rounded = (hidden @ head.weight.T).float()  # the product itself is in bfloat16
    torch.testing.assert_close(logprobs, torch.log_softmax(rounded, -1)[range(N), targets])
    assert logprobs.dtype == torch.float32 != exact.dtype


class Largest(TorchDispatchMode):
    """Remembers the largest tensor that any operation gave."""

    elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for item in out if isinstance(out, (tuple, list)) else (out,):
            if isinstance(item, torch.Tensor):
                self.elements = max(self.elements, item.numel())
        return out


@pytest.mark.parametrize("way", ["fused", "recomputed"])
def test_the_matrix_of_logits_never_exists(way):
    n, h, v, chunk = 200, 4, 500, 16
    hidden = torch.randn(n, h, requires_grad=True)
    head = Head(weight=torch.randn(v, h, requires_grad=True))
    targets = torch.randint(0, v, (n,))
    inputs = {"advantages": torch.ones(n), "weights": torch.ones(n)}
    loss = policy_loss(clip_low=0.2, clip_high=0.2, entropy_coef=0.1)
    with Largest() as largest:
        if way == "fused":
            fused_loss(hidden, head, targets, inputs, loss, temperature=1.0, chunk=chunk, factor=1.0, add_weight=lambda g: None)
        else:
            logprobs, entropy = chunked_logprobs(hidden, head, targets, temperature=1.0, chunk=chunk)
            loss(logprobs, entropy, inputs)[0].backward()
    assert largest.elements <= chunk * v < n * v / 10
