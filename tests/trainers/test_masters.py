import math

import pytest
import torch
from torch import nn

from agentrl.trainers.masters import MasterAdamW


def parameters(dtype=torch.float32):
    g = torch.Generator().manual_seed(0)
    return {
        "w": nn.Parameter(torch.randn(4, 3, generator=g).to(dtype)),
        "norm": nn.Parameter(torch.randn(4, generator=g).to(dtype)),
        "frozen": nn.Parameter(torch.randn(2, generator=g).to(dtype), requires_grad=False),
    }


def optimizer(ps, dtype=torch.float32, **settings):
    defaults = {"betas": (0.9, 0.95), "weight_decay": 0.0, "max_grad_norm": 0.0}
    return MasterAdamW(ps, dtype=dtype, **(defaults | settings))


def loss(ps, scale=1.0):
    return scale * ((ps["w"].float() ** 2).sum() + (3.0 * ps["norm"].float()).sum())


def test_float32_parameters_are_their_own_masters_and_follow_plain_adamw():
    ours, theirs = parameters(), parameters()
    o = optimizer(ours, weight_decay=0.1)
    plain = torch.optim.AdamW(
        [{"params": [theirs["w"]], "weight_decay": 0.1}, {"params": [theirs["norm"]], "weight_decay": 0.0}], betas=(0.9, 0.95)
    )
    for step in range(3):
        loss(ours).backward()
        o.step(0.01 * (step + 1))
        loss(theirs).backward()
        for group in plain.param_groups:
            group["lr"] = 0.01 * (step + 1)
        plain.step()
        plain.zero_grad()
    for name in ours:
        torch.testing.assert_close(ours[name], theirs[name], rtol=1e-6, atol=1e-7)


def test_updates_too_small_for_bfloat16_are_not_lost():
    """A step of 1e-4 on a weight near 1 rounds to nothing in bfloat16 (its spacing there is 2^-7); 100 of them do not."""
    p = nn.Parameter(torch.full((1, 1), 1.0))
    o = optimizer({"w": p}, torch.bfloat16)
    seen = set()
    for _ in range(100):
        p.sum().backward()
        o.step(1e-4)
        seen.add(p.item())
    assert p.dtype == torch.bfloat16
    assert o._masters["w"].item() == pytest.approx(0.99, abs=1e-4)
    assert p.item() == torch.tensor(0.99).bfloat16().item()
    assert 1.0 in seen


def test_masters_keep_what_the_cast_of_a_float32_model_loses():
    p = nn.Parameter(torch.tensor([[1.001]]))
    o = optimizer({"w": p}, torch.bfloat16)
    assert p.item() == 1.0
    assert o._masters["w"].item() == pytest.approx(1.001)


def test_parameters_are_updated_in_place_and_equal_the_rounded_masters():
    ps = parameters(torch.bfloat16)
    o = optimizer(ps, torch.bfloat16)
    address = ps["w"].data_ptr()
    loss(ps).backward()
    o.step(0.1)
    assert ps["w"].data_ptr() == address
    for name in ("w", "norm"):
        assert torch.equal(ps[name], o._masters[name].bfloat16())
        assert ps[name].grad is None


def test_gradients_of_microbatches_are_added_in_float32():
    """256 + 1 is 256 in bfloat16: added up in it, the small gradients would be lost."""
    p = nn.Parameter(torch.zeros(1, 1, dtype=torch.bfloat16))
    o = optimizer({"w": p}, torch.bfloat16)
    for g in [256.0, *[1.0] * 4]:
        (p * g).sum().backward()
    o.add_gradient(p, torch.ones(1, 1, dtype=torch.bfloat16))
    assert o._masters["w"].grad.item() == 261.0


def test_clipping_by_the_global_norm():
    ps = {"a": nn.Parameter(torch.zeros(1, 1)), "b": nn.Parameter(torch.zeros(1))}
    o = optimizer(ps, max_grad_norm=1.0)
    (3 * ps["a"].sum() + 4 * ps["b"].sum()).backward()
    seen = {}
    o._adam.step = lambda: seen.update({name: m.grad.item() for name, m in o._masters.items()})
    assert o.step(0.1) == pytest.approx(5.0)
    assert seen == pytest.approx({"a": 0.6, "b": 0.8})


def test_a_gradient_below_the_bound_is_left_alone():
    p = nn.Parameter(torch.zeros(1, 1))
    o = optimizer({"p": p}, max_grad_norm=1.0)
    (0.5 * p).sum().backward()
    seen = []
    o._adam.step = lambda: seen.append(p.grad.item())
    assert o.step(0.1) == 0.5
    assert seen == [0.5]


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_gradient_that_is_not_finite_changes_nothing(bad, dtype):
    ps, same = parameters(), parameters()
    o, undisturbed = optimizer(ps, dtype), optimizer(same, dtype)
    for params, opt in ((ps, o), (same, undisturbed)):
        loss(params).backward()
        opt.step(0.1)
    before = {name: p.clone() for name, p in ps.items()}
    loss(ps, bad).backward()
    with pytest.raises(FloatingPointError, match="first in w"):
        o.step(0.1)
    assert all(torch.equal(ps[name], before[name]) for name in ps)
    for params, opt in ((ps, o), (same, undisturbed)):  # and the next step is as if nothing had been
        loss(params).backward()
        opt.step(0.1)
    assert all(torch.equal(ps[name], same[name]) for name in ps)


def test_no_gradient_is_gradient_zero():
    """Momentum goes on, as it would with a computed gradient of 0."""
    a, b = nn.Parameter(torch.ones(1, 1)), nn.Parameter(torch.ones(1, 1))
    first, second = optimizer({"p": a}), optimizer({"p": b})
    for p, o in ((a, first), (b, second)):
        p.sum().backward()
        o.step(0.1)
    first.step(0.1)
    (0.0 * b).sum().backward()
    second.step(0.1)
    assert a.item() == b.item() != pytest.approx(0.9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_save_and_load_go_on_bit_for_bit(tmp_path, dtype):
    ps = parameters()
    o = optimizer(ps, dtype, weight_decay=0.1)

    def advance(params, opt, steps):
        for _ in range(steps):
            loss(params).backward()
            opt.step(0.05)

    advance(ps, o, 2)
    o.save(tmp_path)
    other = {name: nn.Parameter(torch.zeros_like(p), requires_grad=p.requires_grad) for name, p in parameters().items()}
    loaded = optimizer(other, dtype, weight_decay=0.1)
    address = other["w"].data_ptr()
    loaded.load(tmp_path)
    assert other["w"].data_ptr() == address
    advance(ps, o, 2)
    advance(other, loaded, 2)
    assert all(torch.equal(o._masters[name], loaded._masters[name]) for name in o._masters)
    assert all(torch.equal(ps[name], other[name]) for name in ("w", "norm"))


def test_another_models_file_is_refused(tmp_path):
    optimizer(parameters()).save(tmp_path)
    with pytest.raises(ValueError, match="another model"):
        optimizer({"x": nn.Parameter(torch.zeros(1))}).load(tmp_path)
    wrong = parameters()
    wrong["w"] = nn.Parameter(torch.zeros(2, 3))
    with pytest.raises(ValueError, match=r"w is \(4, 3\)"):
        optimizer(wrong).load(tmp_path)


def test_nothing_to_train_is_refused():
    with pytest.raises(ValueError, match="nothing to train"):
        optimizer({"p": nn.Parameter(torch.zeros(1), requires_grad=False)})


def test_moving_there_and_back_changes_nothing():
    ps = parameters()
    o = optimizer(ps, torch.bfloat16)
    loss(ps).backward()
    o.step(0.1)
    before = o._masters["w"].clone()
    o.move(torch.device("cpu"))
    loss(ps).backward()
    o.step(0.1)
    assert not torch.equal(o._masters["w"], before)
