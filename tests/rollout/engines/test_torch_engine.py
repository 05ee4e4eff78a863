"""The embedded engine as its callers see it: against transformers' own results, and through every state."""

import asyncio
import contextlib
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import Any

import pytest
import torch
from transformers import Llama4TextConfig, LlamaConfig, LlamaForCausalLM

from agentrl.engine import Completion, EngineDead, EngineError, EngineState, GenerateRequest, Sampling
from agentrl.errors import UsageError
from agentrl.rollout.engines.conformance import check
from agentrl.rollout.engines.replica import check_supported
from agentrl.rollout.engines.torch_engine import TorchEngine
from agentrl.rollout.engines.worker import SWITCH_S
from agentrl.weights import WeightUpdate
from tests.support.tiny_models import CONTEXT, FAMILIES, VOCABULARY, hf_greedy, prompt, reference_logprobs, tiny


def greedy(ids: tuple[int, ...], new: int = 12, **sampling: Any) -> GenerateRequest:
    return GenerateRequest(prompt_ids=ids, max_new_tokens=new, sampling=Sampling(**{"temperature": 0.0, **sampling}))


def letters(ids: list[int]) -> str:
    """A decoder in which each id is one letter."""
    return "".join(chr(ord("a") + i % 26) for i in ids)


@contextlib.asynccontextmanager
async def serving(model: torch.nn.Module | None = None, **args: Any) -> AsyncIterator[TorchEngine]:
    engine = TorchEngine(model if model is not None else tiny(), **{"slots": 8, "max_context": CONTEXT, "threads": 1, **args})
    try:
        yield engine
    finally:
        await engine.aclose()


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 280))  # a hang; a busy machine takes its time


class Gate:
    """Holds the engine's thread before each step until the test lets it take one."""

    def __init__(self, engine: TorchEngine, monkeypatch: pytest.MonkeyPatch) -> None:
        self._permits, self._taken = threading.Semaphore(0), threading.Semaphore(0)
        original = engine._scheduler.step

        def step(**args: Any) -> None:
            # Bounded, so that commands get their turn between two steps that are not taken.
            if not self._permits.acquire(timeout=0.005):
                return
            original(**args)
            self._taken.release()

        monkeypatch.setattr(engine._scheduler, "step", step)

    async def steps(self, count: int) -> None:
        for _ in range(count):
            self._permits.release()
            assert await asyncio.to_thread(self._taken.acquire, timeout=30)

    def open(self) -> None:
        self._permits.release(10**6)


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


# States


def test_pause_abort_gives_what_there_is_to_each(monkeypatch: pytest.MonkeyPatch) -> None:
    model, ids = tiny(), prompt(20)
    expected = hf_greedy(model, ids, 12)

    async def test() -> None:
        async with serving(model, slots=1) as engine:
            gate = Gate(engine, monkeypatch)
            running = asyncio.create_task(engine.generate(greedy(ids)))
            queued = asyncio.create_task(engine.generate(greedy(ids)))
            await gate.steps(4)
            await engine.pause("abort")
            first, second = await running, await queued
            assert (first.ids, first.finish, first.versions) == (expected[:4], "abort", (0,) * 4)
            assert (second.ids, second.finish) == ((), "abort")
            assert engine.metrics()["running"] == engine.metrics()["queued"] == 0

    run(test)


def test_pause_keep_holds_and_goes_on_under_new_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    model, ids = tiny(), prompt(20)

    async def test() -> None:
        async with serving(model, slots=1) as engine:
            gate = Gate(engine, monkeypatch)
            running = asyncio.create_task(engine.generate(greedy(ids)))
            await gate.steps(4)
            await engine.pause("keep")
            gate.open()
            late = asyncio.create_task(engine.generate(greedy(ids, 2)))
            assert await engine.update_weights(WeightUpdate(version=7)) == 7
            await asyncio.sleep(0.05)
            assert not running.done()
            assert not late.done()
            await engine.resume()
            done = await running
            assert (done.ids, done.versions) == (hf_greedy(model, ids, 12), (0,) * 4 + (7,) * 8)
            assert (await late).versions == (7, 7)

    run(test)


def test_pause_wait_lets_running_ones_finish_and_starts_none(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with serving(slots=1) as engine:
            gate = Gate(engine, monkeypatch)
            running = asyncio.create_task(engine.generate(greedy(prompt(20))))
            await gate.steps(2)
            queued = asyncio.create_task(engine.generate(greedy(prompt(9))))
            pausing = asyncio.create_task(engine.pause("wait"))
            await gate.steps(1)
            assert not pausing.done()
            with pytest.raises(EngineError, match="about to pause"):
                await engine.pause("keep")
            gate.open()
            await pausing
            assert running.done()
            assert not queued.done()
            assert engine.state is EngineState.PAUSED
            await engine.resume()
            assert (await queued).finish == "length"

    run(test)


def test_a_pause_that_is_given_up_does_not_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with serving(slots=1) as engine:
            gate = Gate(engine, monkeypatch)
            running = asyncio.create_task(engine.generate(greedy(prompt(20))))
            await gate.steps(2)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(engine.pause("wait"), 0.05)
            gate.open()
            await running
            assert (await engine.generate(greedy(prompt(9)))).finish == "length"
            await engine.pause("keep")

    run(test)


def test_illegal_transitions_name_state_and_what_is_legal() -> None:
    async def test() -> None:
        async with serving() as engine:
            with pytest.raises(EngineError, match=r"resume needs .* paused, this one is running; legal now: pause"):
                await engine.resume()
            with pytest.raises(EngineError, match="wake needs an engine that is asleep"):
                await engine.wake()
            with pytest.raises(EngineError, match="update_weights needs an engine that is paused or dirty"):
                await engine.update_weights(WeightUpdate(version=1))
            with pytest.raises(EngineError, match="no pause mode 'now'"):
                await engine.pause("now")
            await engine.pause("keep")
            with pytest.raises(EngineError, match="pause needs an engine that is running, this one is paused"):
                await engine.pause("abort")
            with pytest.raises(EngineError, match="shared with the trainer"):
                await engine.sleep("weights")
            await engine.sleep("cache")
            assert engine.state is EngineState.ASLEEP
            with pytest.raises(EngineError, match="resume needs an engine that is paused, this one is asleep; legal now: wake"):
                await engine.resume()
            await engine.wake()
            await engine.resume()
            assert engine.state is EngineState.RUNNING

    run(test)


# Weights


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


# Failure


def test_a_crash_fails_everyone_with_its_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with serving(slots=1) as engine:
            monkeypatch.setattr(engine._replica, "forward", lambda *args: 1 / 0)
            calls = [asyncio.create_task(engine.generate(greedy(prompt(9)))) for _ in range(3)]
            results = await asyncio.gather(*calls, return_exceptions=True)
            assert [type(r) for r in results] == [EngineDead] * 3
            assert all(isinstance(r.__cause__, ZeroDivisionError) for r in results)
            assert engine.state is EngineState.CLOSED
            for later in (engine.generate(greedy((1,))), engine.pause("keep"), engine.pause("wait"), engine.resume()):
                with pytest.raises(EngineDead, match="ZeroDivisionError") as caught:
                    await later
                assert isinstance(caught.value.__cause__, ZeroDivisionError)

    run(test)


def test_closing_fails_what_runs_and_may_be_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with serving(slots=1) as engine:
            gate = Gate(engine, monkeypatch)
            calls = [asyncio.create_task(engine.generate(greedy(prompt(9)))) for _ in range(2)]
            await gate.steps(1)
            await engine.aclose()
            for call in calls:
                with pytest.raises(EngineDead, match="closed"):
                    await call
            await engine.aclose()
            assert engine.state is EngineState.CLOSED
            assert not engine._worker._thread.is_alive()

    run(test)


def test_cancelling_frees_the_slot_even_in_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with serving(slots=1) as engine:
            gate = Gate(engine, monkeypatch)
            running = asyncio.create_task(engine.generate(greedy(prompt(9), 200)))
            queued = asyncio.create_task(engine.generate(greedy(prompt(20), 200)))
            await gate.steps(2)
            await engine.pause("keep")
            running.cancel()
            queued.cancel()
            await asyncio.wait({running, queued})
            await engine.update_weights(WeightUpdate(version=1))  # a command later, the thread has seen it
            counts = engine.metrics()
            assert (counts["running"], counts["queued"]) == (0, 0)
            gate.open()
            await engine.resume()
            assert (await engine.generate(greedy(prompt(9)))).finish == "length"

    run(test)


def test_a_slow_generation_fails_alone_and_a_hung_step_is_death(monkeypatch: pytest.MonkeyPatch) -> None:
    hang = threading.Event()

    async def test() -> None:
        async with serving(slots=2, request_timeout=0.3) as engine:
            with monkeypatch.context() as patch:
                Gate(engine, patch)  # no step is ever taken, but the thread lives
                with pytest.raises(EngineError, match="of an engine that lives") as caught:
                    await engine.generate(greedy(prompt(9)))
                assert not isinstance(caught.value, EngineDead)
            assert (await engine.generate(greedy(prompt(9)))).finish == "length"
            monkeypatch.setattr(engine._replica, "forward", lambda *args: hang.wait(30))
            stuck = asyncio.create_task(engine.generate(greedy(prompt(9))))
            await asyncio.sleep(0.1)
            waiting = asyncio.create_task(engine.pause("keep"))  # the thread will never come to it
            for call in (stuck, waiting):
                with pytest.raises(EngineDead, match="not come back from one step"):
                    await call
            with pytest.raises(EngineDead):
                await engine.generate(greedy(prompt(9)))
            hang.set()

    run(test)


def test_time_in_a_pause_does_not_count_against_the_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with serving(slots=1, request_timeout=0.5) as engine:
            gate = Gate(engine, monkeypatch)
            running = asyncio.create_task(engine.generate(greedy(prompt(9))))
            await gate.steps(1)
            await engine.pause("keep")
            await asyncio.sleep(0.8)
            assert not running.done()
            gate.open()
            await engine.resume()
            assert len((await running).ids) == 12

    run(test)


def test_the_event_loop_is_never_blocked(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with serving() as engine:
            entered, release = threading.Event(), threading.Event()
            original = engine._replica.forward

            def slow(*args: Any) -> torch.Tensor:
                entered.set()
                assert release.wait(30)
                return original(*args)

            monkeypatch.setattr(engine._replica, "forward", slow)
            running = asyncio.create_task(engine.generate(greedy(prompt(9))))
            assert await asyncio.to_thread(entered.wait, 30)  # a pause before the step would have nothing to wait for
            pausing = asyncio.create_task(engine.pause("keep"))
            for _ in range(100):
                await asyncio.sleep(0)
            assert not pausing.done()
            release.set()
            await pausing
            await engine.resume()
            await running

    run(test)


def test_busy_python_threads_are_kept_from_starving_it() -> None:
    before = sys.getswitchinterval()

    async def test() -> None:
        for own, expected in ((0.005, SWITCH_S), (SWITCH_S / 5, SWITCH_S / 5)):
            sys.setswitchinterval(own)
            async with serving():
                assert sys.getswitchinterval() == pytest.approx(expected, abs=2e-6)  # Python cuts it to whole microseconds

    try:
        run(test)
    finally:
        sys.setswitchinterval(before)


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


def test_one_engine_serves_several_event_loops() -> None:
    model = tiny()
    engine = TorchEngine(model, slots=4, max_context=CONTEXT, threads=1)
    results: list[Completion] = []

    def loop() -> None:
        results.append(asyncio.run(engine.generate(greedy(prompt(9)))))

    threads = [threading.Thread(target=loop) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    asyncio.run(engine.aclose())
    assert [r.ids for r in results] == [hf_greedy(model, prompt(9), 12)] * 3
