"""The embedded engine's results against transformers' own, what it refuses, and what ends a completion."""

import asyncio
from collections.abc import Sequence

import pytest
import torch
from transformers import Llama4TextConfig, LlamaConfig, LlamaForCausalLM

from agentrl.engine import EngineError, GenerateRequest
from agentrl.errors import UsageError
from agentrl.rollout.engines.conformance import check
from agentrl.rollout.engines.replica import check_supported
from agentrl.rollout.engines.torch_engine import TorchEngine
from tests.support.tiny_models import CONTEXT, FAMILIES, VOCABULARY, hf_greedy, prompt, reference_logprobs, tiny
from tests.support.torch_engines import greedy, letters, run, serving

# Against transformers


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("family", FAMILIES)
def test_greedy_is_what_generate_gives_and_logprobs_are_a_plain_forwards(family: str, packed: bool) -> None:
    model = tiny(family)
    prompts = [prompt(3), prompt(17), prompt(40), prompt(40), prompt(70)]

    async def test() -> None:
        async with serving(model, packed=packed) as engine:
            results = await asyncio.gather(*(engine.generate(greedy(p, 16)) for p in prompts))
        for ids, done in zip(prompts, results, strict=True):
            assert done.ids == hf_greedy(model, ids, 16)
            expected = reference_logprobs(model, ids + done.ids)[len(ids) - 1 : -1].gather(1, torch.tensor(done.ids)[:, None])
            assert done.logprobs == pytest.approx(expected[:, 0].tolist(), abs=1e-4)

    run(test)


@pytest.mark.parametrize("temperature", [0.6, 1.7])
def test_logprobs_of_sampled_ids_are_of_the_tempered_distribution(temperature: float) -> None:
    model, ids = tiny(), prompt(20)

    async def test() -> None:
        async with serving(model) as engine:
            done = await engine.generate(greedy(ids, 30, temperature=temperature, seed=4))
        rows = reference_logprobs(model, ids + done.ids, temperature)
        expected = [float(rows[19 + i, token]) for i, token in enumerate(done.ids)]
        assert done.logprobs == pytest.approx(expected, abs=1e-4)

    run(test)


def test_bfloat16_stays_near_a_plain_forward() -> None:
    model, ids = tiny(dtype=torch.bfloat16, initializer_range=0.05), prompt(30)

    async def test() -> None:
        async with serving(model) as engine:
            done = await engine.generate(greedy(ids, 40, temperature=1.0, seed=4))
        rows = reference_logprobs(model, ids + done.ids)
        expected = torch.tensor([float(rows[29 + i, token]) for i, token in enumerate(done.ids)])
        assert (torch.tensor(done.logprobs) - expected).abs().mean() < 0.03

    run(test)


@pytest.mark.parametrize("family", ["llama", pytest.param("gemma3", marks=pytest.mark.slow)])
def test_it_conforms(family: str) -> None:
    model = tiny(family)

    def reference(ids: Sequence[int]) -> list[list[float]]:
        return reference_logprobs(model, tuple(ids)).tolist()

    async def test() -> None:
        async with serving(model, decode=letters) as engine:
            report = await check(engine, reference, decode=letters, new_tokens=8)
        assert report.passed, str(report)
        assert [f.name for f in report.findings if f.outcome == "skipped"] == []

    run(test)


def test_the_trainers_forward_is_untouched_while_the_engine_runs() -> None:
    model, ids = tiny(), prompt(30)
    model.train()
    before = model(torch.tensor([ids])).logits

    async def test() -> None:
        async with serving(model) as engine:
            await engine.generate(greedy(ids))
            after = model(torch.tensor([ids]))
            after.logits.sum().backward()
            assert torch.equal(before, after.logits)
            assert model.training
            assert model.config._attn_implementation == "eager"
            assert all(p.requires_grad and p.grad is not None for p in model.parameters())

    run(test)


# What is refused


def test_malformed_requests_are_refused_by_name() -> None:
    cases = [
        (greedy((1, VOCABULARY)), rf"id {VOCABULARY} at index 1 lies outside the vocabulary of {VOCABULARY}"),
        (greedy((1, -1)), "id -1 at index 1"),
        (greedy((1, 2.5)), "id 2.5 at index 1 is no integer"),
        (greedy((*prompt(CONTEXT), 1)), f"{CONTEXT + 1} ids is longer than max_context={CONTEXT}"),
        (greedy((1,), stop=("x",)), "decode=tokenizer.decode"),
        (greedy((1,), banned_ids=tuple(range(VOCABULARY + 5))), "every id of the vocabulary is banned"),
        (GenerateRequest(prompt_ids=(1,), max_new_tokens=1, media=("picture",)), "text only"),
    ]

    async def test() -> None:
        async with serving() as engine:
            for request, message in cases:
                with pytest.raises(EngineError, match=message):
                    await engine.generate(request)
            assert (await engine.generate(greedy((1, 2)))).finish == "length"

    run(test)


def test_models_that_would_be_wrong_are_refused() -> None:
    shape = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    with pytest.raises(UsageError, match="not Linear"):
        check_supported(torch.nn.Linear(2, 2))
    model = LlamaForCausalLM(LlamaConfig(**shape))
    model.config.layer_types = Llama4TextConfig(num_hidden_layers=4).layer_types
    with pytest.raises(UsageError, match="chunked_attention"):
        check_supported(model)
    del model.config.layer_types
    check_supported(model)
    model._supports_attention_backend = False
    with pytest.raises(UsageError, match="exchangeable attention"):
        check_supported(model)
    with pytest.raises(UsageError, match="max_context=300 is more than this model's 256 positions"):
        TorchEngine(tiny(), max_context=300)
    with pytest.raises(UsageError, match="slots=0"):
        TorchEngine(tiny(), slots=0)


# Ends


def test_stop_ids_and_texts_are_kept_and_end_it() -> None:
    model, ids = tiny(), prompt(20)
    whole = hf_greedy(model, ids, 12)
    text = letters(list(whole))

    async def test() -> None:
        async with serving(model, decode=letters) as engine:
            at = whole.index(whole[4])
            done = await engine.generate(greedy(ids, stop_ids=(whole[4],)))
            assert (done.ids, done.finish) == (whole[: at + 1], "stop")
            done = await engine.generate(greedy(ids, stop=("never seen", text[3:6])))
            assert (done.ids, done.finish) == (whole[: text.index(text[3:6]) + 3], "stop")
            # The last id of the budget is a stop id as well: it stopped.
            done = await engine.generate(greedy(ids, new=at + 1, stop_ids=(whole[4],)))
            assert done.finish == "stop"

    run(test)


def test_the_context_ends_a_completion() -> None:
    model, ids = tiny(), prompt(20)

    async def test() -> None:
        async with serving(model, max_context=25) as engine:
            done = await engine.generate(greedy(ids, 100))
            assert (done.ids, done.finish) == (hf_greedy(model, ids, 5), "length")
            full = await engine.generate(greedy(prompt(25), 100))
            assert (full.ids, full.finish) == ((), "length")

    run(test)


def test_no_seed_means_another_result_each_time() -> None:
    async def test() -> None:
        async with serving() as engine:
            request = GenerateRequest(prompt_ids=prompt(5), max_new_tokens=20)
            results = [(await engine.generate(request)).ids for _ in range(3)]
            assert len(set(results)) == 3

    run(test)


def test_metrics_count_since_the_last_call() -> None:
    async def test() -> None:
        async with serving() as engine:
            await asyncio.gather(*(engine.generate(greedy(prompt(20))) for _ in range(3)))
            await engine.pause("keep")  # once it is paused the last step is over
            counts = engine.metrics()
            assert counts["requests"] == 3
            assert counts["prompt_tokens"] == 60
            assert counts["cached_tokens"] == 38
            assert counts["sampled_tokens"] == 36
            assert counts["busy_s"] > 0
            assert set(engine.metrics().values()) == {0.0}

    run(test)
