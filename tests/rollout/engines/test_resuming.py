"""The wrapper over an engine that is told where to abort."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from agentrl.engine import Completion, EngineError, EngineState, GenerateRequest, Sampling
from agentrl.rollout.engines.resuming import ResumingEngine
from agentrl.rollout.engines.scripted import ScriptedEngine
from agentrl.weights import WeightUpdate
from tests.support.wait import until

ANSWER = tuple(range(100, 120))


def letters(ids: Sequence[int]) -> str:
    return "".join(chr(ord("a") + i - 100) for i in ids)


class Aborting:
    """Says ANSWER from where the prompt left off, and aborts after cuts[k] ids of its k-th call. Its version is the call."""

    state = EngineState.RUNNING
    version = 0
    max_context = 1000

    def __init__(self, *cuts: int, stops_at: str = "") -> None:
        self.cuts, self.stops_at = list(cuts), stops_at
        self.requests: list[GenerateRequest] = []

    async def generate(self, request: GenerateRequest) -> Completion:
        call = len(self.requests)
        self.requests.append(request)
        rest = ANSWER[len(request.prompt_ids) - 2 :][: request.max_new_tokens]
        ids, finish = rest, "length"
        if call < len(self.cuts) and self.cuts[call] < len(rest):
            ids, finish = rest[: self.cuts[call]], "abort"
        for n in range(1, len(ids) + 1):  # as a real engine: it sees the text of this part alone
            if request.sampling.stop and any(s in letters(ids[:n]) for s in request.sampling.stop):
                ids, finish = ids[:n], "stop"
                break
        return Completion(
            ids=ids, logprobs=(-0.5,) * len(ids), versions=(call,) * len(ids), finish=finish, cached_tokens=call + 1
        )

    def metrics(self) -> dict[str, float]:
        return {"requests": 1.0}


def ask(new: int = 10, **sampling: Any) -> GenerateRequest:
    return GenerateRequest(prompt_ids=(1, 2), max_new_tokens=new, sampling=Sampling(**sampling), session_id="s")


def answer(engine: Any, request: GenerateRequest, **args: Any) -> Completion:
    return asyncio.run(ResumingEngine(engine, **args).generate(request))


def test_parts_are_joined_under_one_budget() -> None:
    engine = Aborting(3, 0, 4)
    done = answer(engine, ask(10))
    assert done.ids == ANSWER[:10]
    assert done.versions == (0,) * 3 + (2,) * 4 + (3,) * 3
    assert done.logprobs == (-0.5,) * 10
    assert (done.finish, done.cached_tokens) == ("length", 1)
    assert [r.max_new_tokens for r in engine.requests] == [10, 7, 7, 3]
    assert [r.prompt_ids for r in engine.requests] == [(1, 2), (1, 2, *ANSWER[:3]), (1, 2, *ANSWER[:3]), (1, 2, *ANSWER[:7])]
    assert {r.session_id for r in engine.requests} == {"s"}


@pytest.mark.parametrize("cut", range(10))
def test_cut_anywhere_it_is_the_whole_answer(cut: int) -> None:
    assert answer(Aborting(cut), ask(10)).ids == ANSWER[:10]


def test_an_abort_with_the_last_id_of_all_is_no_abort() -> None:
    class Late(Aborting):
        async def generate(self, request: GenerateRequest) -> Completion:
            done = await super().generate(request)
            return Completion(ids=done.ids, logprobs=done.logprobs, versions=done.versions, finish="abort")

    engine = Late()
    done = answer(engine, ask(4))
    assert (done.ids, done.finish, len(engine.requests)) == (ANSWER[:4], "length", 1)
    engine = Late(3)
    done = answer(engine, ask(8, stop_ids=(ANSWER[2],)))
    assert (done.ids, done.finish, len(engine.requests)) == (ANSWER[:3], "stop", 1)


def test_more_than_the_budget_is_an_error() -> None:
    class Generous(Aborting):
        async def generate(self, request: GenerateRequest) -> Completion:
            return Completion(ids=(1, 2, 3), logprobs=(0.0,) * 3, versions=(0,) * 3, finish="length")

    with pytest.raises(EngineError, match="3 ids for a budget of 2"):
        answer(Generous(), ask(2))


@pytest.mark.parametrize("cut", [1, 2, 3, 4, 5])
def test_a_stop_text_that_lies_across_the_cut_stops(cut: int) -> None:
    done = answer(Aborting(cut), ask(10, stop=("zz", "cde")), decode=letters)
    assert (letters(done.ids), done.finish) == ("abcde", "stop")
    assert len(done.logprobs) == len(done.versions) == 5


def test_stop_texts_need_a_decoder() -> None:
    with pytest.raises(EngineError, match=r"decode=tokenizer\.decode"):
        answer(Aborting(), ask(3, stop=("x",)))


def test_a_continuation_has_a_seed_of_its_own_unless_numbers_go_by_position() -> None:
    engine = Aborting(2, 2, 2)
    answer(engine, ask(10, seed=5))
    seeds = [r.sampling.seed for r in engine.requests]
    assert seeds[0] == 5
    assert len(set(seeds)) == 4
    assert all(s is not None and 0 <= s < 2**63 for s in seeds)
    again = Aborting(2, 2, 2)
    answer(again, ask(10, seed=5))
    assert [r.sampling.seed for r in again.requests] == seeds
    engine = Aborting(2)
    answer(engine, ask(10, seed=5), reseed=False)
    assert [r.sampling.seed for r in engine.requests] == [5, 5]
    engine = Aborting(2)
    answer(engine, ask(10))
    assert [r.sampling.seed for r in engine.requests] == [None, None]


def test_the_other_rules_stay_as_they_were() -> None:
    engine, rules = Aborting(2, 3), {"temperature": 0.7, "top_p": 0.9, "top_k": 5, "stop_ids": (7,), "banned_ids": (8,)}
    request = ask(10, **rules)
    answer(engine, request)
    assert [r.sampling for r in engine.requests] == [request.sampling] * 3


def test_across_a_pause_and_an_update() -> None:
    async def test() -> None:
        inner = ScriptedEngine([ANSWER], token_s=0.001)
        engine = ResumingEngine(inner)
        task = asyncio.create_task(engine.generate(ask(20)))
        await until(lambda: inner.metrics()["sampled_tokens"] > 0)
        await engine.pause("abort")
        await asyncio.sleep(0.01)
        assert not task.done()
        assert await engine.update_weights(WeightUpdate(version=4)) == engine.version == 4
        await engine.resume()
        done = await task
        assert (done.ids, done.finish) == (ANSWER, "length")
        assert set(done.versions) == {0, 4}
        assert list(done.versions) == sorted(done.versions)
        assert engine.metrics()["resumed"] == 1
        assert engine.metrics()["resumed"] == 0

    asyncio.run(test())


def test_the_deadline_covers_all_continuations() -> None:
    with pytest.raises(EngineError, match=r"more than 0\.1 s"):
        answer(Aborting(*[0] * 1000), ask(3), timeout=0.1)


def test_an_engine_that_aborts_at_once_is_not_asked_in_a_hot_loop() -> None:
    engine = Aborting(*[0] * 1000)
    with pytest.raises(EngineError):
        answer(engine, ask(3), timeout=0.3)
    assert len(engine.requests) < 10  # waits of 10, 20, 40, 80, 160 ms


def test_an_engines_own_timeout_is_not_taken_for_the_deadline() -> None:
    class Late(Aborting):
        async def generate(self, request: GenerateRequest) -> Completion:
            raise TimeoutError("mine")

    with pytest.raises(TimeoutError, match="mine"):
        answer(Late(), ask(3))


def test_cancelling_cancels_what_runs_inside() -> None:
    async def test() -> None:
        inner = ScriptedEngine([ANSWER], token_s=0.01)
        task = asyncio.create_task(ResumingEngine(inner).generate(ask(20)))
        await until(lambda: inner.metrics()["running"] > 0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert inner.metrics()["running"] == 0

    asyncio.run(test())


def test_it_passes_calls_on() -> None:
    async def test() -> None:
        engine = ResumingEngine(ScriptedEngine([(1,)], max_context=77))
        assert (engine.max_context, engine.version, engine.state) == (77, 0, EngineState.RUNNING)
        await engine.pause("keep")
        await engine.sleep("cache")
        assert engine.state is EngineState.ASLEEP
        await engine.wake()
        await engine.resume()
        await engine.aclose()
        assert engine.state is EngineState.CLOSED

    asyncio.run(test())
