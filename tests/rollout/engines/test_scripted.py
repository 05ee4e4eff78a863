import asyncio
from typing import Any

import pytest

from agentrl.engine import Completion, EngineDead, EngineError, EngineState, GenerateRequest, Sampling
from agentrl.rollout.engines.conformance import check
from agentrl.rollout.engines.scripted import ScriptedEngine
from agentrl.weights import WeightUpdate
from tests.support.wait import until


class Letters:
    """One id per letter."""

    def encode(self, text: str, **kwargs: Any) -> list[int]:
        return [ord(c) for c in text]

    def decode(self, token_ids: list[int], **kwargs: Any) -> str:
        return "".join(chr(i % 0x10000) for i in token_ids)


def ask(new: int = 10, prompt: tuple[int, ...] = (1, 2), **sampling: Any) -> GenerateRequest:
    return GenerateRequest(prompt_ids=prompt, max_new_tokens=new, sampling=Sampling(**sampling))


def answer(engine: ScriptedEngine, *requests: GenerateRequest) -> list[Completion]:
    async def all_of_them() -> list[Completion]:
        return [await engine.generate(r) for r in requests]

    return asyncio.run(all_of_them())


def test_says_its_answers_in_order_and_then_no_more() -> None:
    engine = ScriptedEngine([(5, 6), (7,)], version=3, logprob=-0.25)
    first, second = answer(engine, ask(), ask())
    assert (first.ids, first.logprobs, first.versions, first.finish) == ((5, 6), (-0.25, -0.25), (3, 3), "stop")
    assert second.ids == (7,)
    with pytest.raises(EngineError, match="has 2 answers, this is request 3"):
        answer(engine, ask())
    assert [r.max_new_tokens for r in engine.requests] == [10, 10, 10]


def test_a_function_answers_with_text_closed_by_the_stop_id() -> None:
    engine = ScriptedEngine(lambda request: f"n={len(request.prompt_ids)}", tokenizer=Letters())
    done = answer(engine, ask(stop_ids=(9, 8)))[0]
    assert (done.ids, done.finish) == ((*map(ord, "n=2"), 9), "stop")
    with pytest.raises(EngineError, match="give the ScriptedEngine a tokenizer"):
        answer(ScriptedEngine(["text"]), ask())


def test_budget_stop_ids_stop_texts_and_bans() -> None:
    script = lambda request: (65, 66, 67, 68)  # noqa: E731
    engine = ScriptedEngine(script, tokenizer=Letters(), max_context=5)
    short, exact, stopped, text, context = answer(
        engine, ask(2), ask(4, prompt=(1,)), ask(stop_ids=(66,)), ask(stop=("BC",)), ask(9, prompt=(1, 2, 3, 4))
    )
    assert (short.ids, short.finish) == ((65, 66), "length")
    assert (exact.ids, exact.finish) == ((65, 66, 67, 68), "length")
    assert (stopped.ids, stopped.finish) == ((65, 66), "stop")
    assert (text.ids, text.finish) == ((65, 66, 67), "stop")
    assert (context.ids, context.finish) == ((65,), "length")
    with pytest.raises(EngineError, match="says id 66, which the request bans"):
        answer(engine, ask(banned_ids=(66,)))


def test_what_was_aborted_is_continued_by_whoever_asks() -> None:
    async def test() -> None:
        engine = ScriptedEngine(lambda request: range(50, 60), token_s=0.002)
        task = asyncio.create_task(engine.generate(ask()))
        await until(lambda: engine.metrics()["sampled_tokens"] > 0)
        await engine.pause("abort")
        part = await task
        assert part.finish == "abort"
        assert 0 < len(part.ids) < 10
        await engine.update_weights(WeightUpdate(version=2))
        await engine.resume()
        rest = await engine.generate(ask(20, prompt=(1, 2, *part.ids)))
        assert part.ids + rest.ids == tuple(range(50, 60))
        assert set(rest.versions) == {2}

    asyncio.run(test())


def test_it_dies_and_tells_everyone() -> None:
    async def test() -> None:
        engine = ScriptedEngine(lambda request: range(100), token_s=0.01)
        tasks = [asyncio.create_task(engine.generate(ask(100))) for _ in range(2)]
        await asyncio.sleep(0.02)
        await engine.die("out of memory")
        for task in tasks:
            with pytest.raises(EngineDead, match="out of memory"):
                await task
        with pytest.raises(EngineDead):
            await engine.generate(ask())
        with pytest.raises(EngineDead):
            await engine.pause("keep")
        await engine.aclose()
        assert engine.state is EngineState.CLOSED

    asyncio.run(test())


def test_it_conforms_where_a_script_can() -> None:
    async def test() -> None:
        script = lambda request: [(sum(request.prompt_ids) + 7 * i * i) % 300 for i in range(40)]  # noqa: E731
        engine = ScriptedEngine(script, tokenizer=Letters(), vocabulary=300, max_context=500, token_s=0.003)
        report = await check(engine, decode=Letters().decode, skip={"banned_ids"})
        assert report.passed, str(report)
        assert [f.name for f in report.findings if f.outcome == "skipped"] == ["banned_ids", "logprobs"]

    asyncio.run(test())
