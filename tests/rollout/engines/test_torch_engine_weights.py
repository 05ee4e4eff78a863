"""New weights for the embedded engine: what it samples from afterwards, and what is left of an update that fails."""

import pytest
import torch

from agentrl.engine import EngineError, EngineState
from agentrl.weights import WeightUpdate
from tests.support.tiny_models import hf_greedy, prompt, tiny
from tests.support.torch_engines import greedy, run, serving


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("family", ["llama", "llama-tied", "qwen3-moe"])
def test_an_update_gives_what_a_fresh_engine_of_these_weights_gives(family: str, packed: bool) -> None:
    model, other, ids = tiny(family), tiny(family, seed=5), prompt(40)
    pointers = [p.data_ptr() for p in model.parameters()]

    async def test() -> None:
        async with serving(model, packed=packed) as engine:
            await engine.generate(greedy(ids))
            await engine.pause("abort")
            await engine.update_weights(WeightUpdate(version=2, tensors=dict(other.named_parameters())))
            await engine.resume()
            done = await engine.generate(greedy(ids))
        assert (done.ids, done.versions, done.cached_tokens) == (hf_greedy(other, ids, 12), (2,) * 12, 0)
        assert [p.data_ptr() for p in model.parameters()] == pointers
        assert all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True))

    run(test)


def test_shared_weights_follow_the_trainer_and_packed_ones_only_an_update() -> None:
    ids = prompt(40)

    async def test() -> None:
        for packed in (True, False):
            model, other = tiny(), tiny(seed=5)
            before = hf_greedy(model, ids, 12)
            async with serving(model, packed=packed) as engine:
                with torch.no_grad():
                    for p, q in zip(model.parameters(), other.parameters(), strict=True):
                        p.copy_(q)
                assert (await engine.generate(greedy(ids))).ids == (before if packed else hf_greedy(other, ids, 12))
                await engine.pause("keep")
                await engine.update_weights(WeightUpdate(version=1))
                await engine.resume()
                assert (await engine.generate(greedy(ids))).ids == hf_greedy(other, ids, 12)

    run(test)


def test_refused_updates_change_nothing() -> None:
    model, ids = tiny(), prompt(20)
    good = {name: p.detach().clone() for name, p in model.named_parameters()}
    name = "model.layers.0.mlp.up_proj.weight"
    cases = [
        ({**good, "model.layers.0.mlp.up_prj.weight": good[name]}, "no parameter 'model.layers.0.mlp.up_prj.weight'"),
        ({k: v for k, v in good.items() if k != name}, f"1 parameters are missing from the update: {name}"),
        ({**good, name: good[name][:-1]}, r"has shape \(127, 64\), the model's is \(128, 64\)"),
        ({**good, name: good[name].to("meta")}, "no tensor with data"),
    ]

    async def test() -> None:
        async with serving(model) as engine:
            expected = await engine.generate(greedy(ids))
            await engine.pause("keep")
            for tensors, message in cases:
                with pytest.raises(EngineError, match=message):
                    await engine.update_weights(WeightUpdate(version=1, tensors=tensors))
                assert engine.state is EngineState.PAUSED
            with pytest.raises(EngineError, match="at least 0, got -1"):
                await engine.update_weights(WeightUpdate(version=-1))
            await engine.resume()
            assert engine.version == 0
            assert (await engine.generate(greedy(ids))).ids == expected.ids

    run(test)


def test_an_update_that_breaks_half_way_leaves_it_dirty_until_a_good_one(monkeypatch: pytest.MonkeyPatch) -> None:
    model, other, ids = tiny(), tiny(seed=5), prompt(20)

    async def test() -> None:
        async with serving(model) as engine:
            await engine.pause("keep")
            with monkeypatch.context() as patch:
                patch.setattr(engine._replica, "load", lambda tensors: 1 / 0)
                with pytest.raises(EngineError, match="broke half-way") as caught:
                    await engine.update_weights(WeightUpdate(version=1, tensors=dict(other.named_parameters())))
            assert isinstance(caught.value.__cause__, ZeroDivisionError)
            assert engine.state is EngineState.DIRTY
            for call in (engine.resume(), engine.generate(greedy(ids)), engine.sleep("cache")):
                with pytest.raises(EngineError, match="this one is dirty; legal now: update_weights"):
                    await call
            await engine.update_weights(WeightUpdate(version=1, tensors=dict(other.named_parameters())))
            await engine.resume()
            done = await engine.generate(greedy(ids))
            assert (done.ids, done.versions) == (hf_greedy(other, ids, 12), (1,) * 12)

    run(test)
