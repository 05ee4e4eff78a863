"""Packed rows against transformers, one sequence at a time: values and gradients."""

import pytest
import torch
import transformers as hf

from agentrl.errors import UsageError
from agentrl.trainers.attention import NAME, PackedAttentionError, RowPlan, causal_bias, packed_attention
from agentrl.trainers.backends.local import packed_logprobs
from agentrl.trainers.packed_model import PackedModel
from agentrl.trainers.packing import Segment
from tests.trainers.builders import FAMILIES, HEADS, MOE, SIZE, plain_logprobs, sample, siblings, tiny


@pytest.mark.parametrize("family", sorted(FAMILIES))
@pytest.mark.parametrize("share", [True, False])
def test_packed_logprobs_equal_one_by_one(family, share):
    """Sequences of up to 20 ids with windows of 5, so that windows reach back into the shared prompt and beyond."""
    model = tiny(family)
    samples = siblings(3, 3)
    out = packed_logprobs(PackedModel(model), samples, temperature=0.7, tokens=45, chunk=7, share_prefix=share)
    for s, ours in zip(samples, out, strict=True):
        with torch.no_grad():
            plain, _ = plain_logprobs(model, s, 0.7)
        trained = torch.tensor(s.mask, dtype=torch.bool)
        torch.testing.assert_close(ours[trained], plain, rtol=0, atol=1e-5)
        assert not ours[~trained].any()
        assert ours.shape == (len(s),)


@pytest.mark.parametrize("family", ["mistral", "gemma2", "gpt-oss"])
def test_windows_and_caps_matter_in_these_tests(family):
    """The models above are such that a forgotten window, cap or sink would show."""
    model = tiny(family)
    s = siblings(1, 1)[0]
    right, _ = plain_logprobs(model, s)
    for layer in model.modules():
        if hasattr(layer, "attn_logit_softcapping"):
            layer.attn_logit_softcapping = None
        elif hasattr(layer, "sinks"):
            layer.sinks.data.fill_(-30.0)
    if family == "mistral":
        model.config.sliding_window = 100
    wrong, _ = plain_logprobs(model, s)
    assert (right - wrong).abs().max() > 1e-3


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_the_first_token_of_every_sibling_is_predicted_from_the_prompt(temperature):
    model = tiny()
    samples = [sample([7, 8, 9, t], [0, 0, 0, 1], prompt=3) for t in (11, 12, 13)]
    out = packed_logprobs(PackedModel(model), samples, temperature=temperature, tokens=50, chunk=2, share_prefix=True)
    logits = model(torch.tensor([[7, 8, 9]])).logits[0, -1] / temperature
    expected = torch.log_softmax(logits, -1)[[11, 12, 13]]
    torch.testing.assert_close(torch.stack([o[3] for o in out]), expected, rtol=0, atol=1e-5)


def test_bias_by_hand():
    # 2 queries after 3 earlier keys, window 3: the first (position 3) sees 1, 2, 3; the second 2, 3, 4
    seen = causal_bias(2, 3, 3, torch.zeros(())).exp().int().tolist()
    assert seen == [[0, 1, 1, 1, 0], [0, 0, 1, 1, 1]]


def test_nothing_of_size_row_by_row_and_masks_are_made_once():
    plan = RowPlan([Segment(start=0, stop=3), Segment(start=3, stop=5, prefix=0), Segment(start=5, stop=7, prefix=0)])
    like = torch.zeros(())
    assert plan.bias(0, None, like) is None  # plain causal
    assert plan.bias(1, None, like).shape == (2, 5)
    assert plan.bias(2, None, like) is plan.bias(1, None, like)
    assert plan.bias(0, 3, like) is None  # a window as long as the segment cuts nothing
    assert plan.bias(0, 2, like) is not None


class Layer(torch.nn.Module):
    is_causal = True


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"position_bias": torch.zeros(1)}, "position_bias"),
        ({"dropout": 0.1}, "dropout"),
        ({"is_causal": False}, "looks ahead"),
        ({"packed": None}, "plan is missing"),
    ],
)
def test_what_it_cannot_do_is_refused(arguments, message):
    x = torch.zeros(1, 2, 3, 4)
    with pytest.raises(PackedAttentionError, match=message):
        packed_attention(Layer(), x, x, x, None, **({"packed": RowPlan([Segment(start=0, stop=3)])} | arguments))
    with pytest.raises(PackedAttentionError, match="mask of its own"):
        packed_attention(Layer(), x, x, x, torch.zeros(1, 1, 3, 3), packed=RowPlan([Segment(start=0, stop=3)]))


def test_the_view_shares_parameters_and_leaves_the_model_as_it_is():
    model = tiny("llama-tied")
    before = model.config._attn_implementation
    packed = PackedModel(model)
    assert model.config._attn_implementation == before != NAME
    assert packed.head.weight is model.lm_head.weight
    assert {id(p) for p in packed._view.parameters()} == {id(p) for p in model.parameters()}
    assert {id(b) for b in packed._view.buffers()} == {id(b) for b in model.buffers()}


def test_models_whose_layers_carry_state_are_refused():
    model = hf.MambaForCausalLM(hf.MambaConfig(vocab_size=61, hidden_size=32, num_hidden_layers=1))
    with pytest.raises(UsageError, match=r"linear_attention|layers"):
        PackedModel(model)
    shared = {"shared_expert_intermediate_size": 16}
    model = hf.Qwen3NextForCausalLM(hf.Qwen3NextConfig(**(SIZE | HEADS | MOE | shared)))
    with pytest.raises(UsageError, match="linear_attention"):
        PackedModel(model)


def test_a_model_that_differs_in_packed_rows_is_refused():
    """Position ids ignored: the continuation of a sibling would stand in the wrong place."""
    model = tiny()
    model.model.rotary_emb.forward = lambda x, position_ids: type(model.model.rotary_emb).forward(
        model.model.rotary_emb, x, torch.arange(x.shape[1])[None]
    )
    with pytest.raises(UsageError, match="hidden states differ"):
        PackedModel(model)


def test_an_output_layer_that_does_more_than_multiply_is_refused():
    model = tiny()
    model.lm_head.register_forward_hook(lambda module, args, out: out * 2.0)
    with pytest.raises(UsageError, match="logits differ"):
        PackedModel(model)
