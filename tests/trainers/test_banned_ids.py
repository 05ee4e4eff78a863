"""What the engine may not sample is outside the trainer's softmax, too: the first step's ratios are 1."""

import asyncio

import pytest
import torch

from agentrl.engine import GenerateRequest, Sampling
from agentrl.rollout.engines.torch_engine import TorchEngine
from agentrl.trainers.losses import policy_loss
from tests.trainers.builders import VOCABULARY, backend, distance, gradients, inputs_for, plain_logprobs, sample, siblings, tiny

PROMPT = (5, 9, 21, 33)
TEMPERATURE = 0.9
LOSS = policy_loss(clip_low=0.5, clip_high=0.6, kl="k3", kl_coef=0.05, entropy_coef=0.01)


def likely_ids(model):
    """Ids that hold a good part of what the model would say after the prompt."""
    with torch.no_grad():
        probabilities = torch.softmax(model(torch.tensor([PROMPT])).logits[0, -1] / TEMPERATURE, -1)
    banned = probabilities.topk(12).indices.tolist()
    assert probabilities[banned].sum() > 0.3
    return tuple(banned)


def sampled(model, banned):
    async def main():
        engine = TorchEngine(model, slots=1, max_context=64, threads=1, decode=str)
        try:
            rules = Sampling(temperature=TEMPERATURE, banned_ids=banned, seed=3)
            return await engine.generate(GenerateRequest(prompt_ids=PROMPT, sampling=rules, max_new_tokens=12))
        finally:
            await engine.aclose()

    return asyncio.run(main())


def test_the_trainers_logprobs_and_the_references_are_the_engines():
    model = tiny()
    banned = likely_ids(model)
    done = sampled(model, banned)
    assert not set(done.ids) & set(banned)
    s = sample(PROMPT + tuple(done.ids), (0,) * 4 + (1,) * len(done.ids), prompt=4)
    b = backend(model, banned_ids=banned)
    for source in (b, b.frozen()):
        (values,) = source.logprobs([s], temperature=TEMPERATURE)
        assert values[4:].tolist() == pytest.approx(list(done.logprobs), abs=1e-4)
    (whole,) = backend(tiny()).logprobs([s], temperature=TEMPERATURE)
    assert whole[4] < values[4] - 0.3  # the ban matters here


@pytest.mark.parametrize("family", ["llama-tied", "gemma2"])  # gemma2 caps its logits
def test_the_gradient_is_that_of_the_masked_softmax(family):
    samples = siblings(2, 3)
    used = {i for s in samples for i, m in zip(s.ids, s.mask, strict=True) if m}
    banned = [i for i in range(VOCABULARY) if i not in used]
    assert len(banned) > 3
    inputs = inputs_for(samples)
    model, total = tiny(family), 0.0
    model.register_forward_hook(lambda module, args, out: mask(out, banned))
    for s, x in zip(samples, inputs, strict=True):
        total = total + LOSS(*plain_logprobs(model, s, 0.8), x)[0]
    (total / 7.0).backward()
    ours, _ = gradients(backend(tiny(family), banned_ids=banned), samples, inputs, LOSS, temperature=0.8)
    assert distance(ours, {name: p.grad for name, p in model.named_parameters()}) < 1e-5


def mask(out, banned):
    out.logits = out.logits.index_fill(-1, torch.tensor(banned), -1e4)
    return out
