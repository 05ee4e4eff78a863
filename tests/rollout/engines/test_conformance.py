"""The suite must find what it looks for: each engine below breaks one promise, and the right check says so by itself."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from agentrl.engine import Completion, EngineError, GenerateRequest, PauseMode
from agentrl.rollout.engines.conformance import CHECKS, Report, check
from agentrl.rollout.engines.scripted import ScriptedEngine
from agentrl.weights import WeightUpdate

PROMPTS = ((5, 6, 7), (5, 6, 7, 8, 9))


class Letters:
    def encode(self, text: str, **kwargs: Any) -> list[int]:
        return [ord(c) for c in text]

    def decode(self, token_ids: list[int], **kwargs: Any) -> str:
        return "".join(chr(ord("a") + i % 26) for i in token_ids)


def answer_to(request: GenerateRequest) -> list[int]:
    """An id is a function of what stands before it, as greedy decoding is; bans are kept."""
    ids, out = list(request.prompt_ids), []
    for _ in range(request.max_new_tokens):
        nxt = (7 * sum(ids[-3:]) + len(ids)) % 97
        while nxt in request.sampling.banned_ids:
            nxt = (nxt + 1) % 97
        ids.append(nxt)
        out.append(nxt)
    return out


class Good(ScriptedEngine):
    def __init__(self) -> None:
        super().__init__(answer_to, tokenizer=Letters(), vocabulary=100, max_context=200, token_s=0.003)


def flat(ids: Sequence[int]) -> list[list[float]]:
    return [[0.0] * 100 for _ in ids]


def report_on(engine: ScriptedEngine, *only: str) -> Report:
    """Of the checks called `only`; of all when none is named."""
    skip = set(CHECKS).difference(only) if only else ()
    return asyncio.run(check(engine, flat, prompts=PROMPTS, decode=Letters().decode, new_tokens=8, skip=skip))


def test_a_good_engine_passes_everything() -> None:
    report = report_on(Good())
    assert report.passed, str(report)
    assert [f.outcome for f in report.findings] == ["passed"] * len(CHECKS)


class FreshBudget(Good):
    async def generate(self, request: GenerateRequest) -> Completion:
        return await super().generate(replace(request, max_new_tokens=8))


class IgnoresStopIds(Good):
    async def generate(self, request: GenerateRequest) -> Completion:
        return await super().generate(replace(request, sampling=replace(request.sampling, stop_ids=())))


class DropsTheStopId(Good):
    async def generate(self, request: GenerateRequest) -> Completion:
        done = await super().generate(request)
        n = len(done.ids) - (done.finish == "stop" and len(done.ids) > 1)
        return replace(done, ids=done.ids[:n], logprobs=done.logprobs[:n], versions=done.versions[:n])


class IgnoresStopTexts(Good):
    async def generate(self, request: GenerateRequest) -> Completion:
        return await super().generate(replace(request, sampling=replace(request.sampling, stop=())))


class SamplesBannedIds(Good):
    async def generate(self, request: GenerateRequest) -> Completion:
        return await super().generate(replace(request, sampling=replace(request.sampling, banned_ids=())))


class WrongLogprobs(Good):
    async def generate(self, request: GenerateRequest) -> Completion:
        done = await super().generate(request)
        return replace(done, logprobs=tuple(x - 0.001 for x in done.logprobs))


class StampsWhenItAnswers(Good):
    """The version at the end for all ids: what a client would stamp."""

    async def generate(self, request: GenerateRequest) -> Completion:
        done = await super().generate(request)
        return replace(done, versions=(self.version,) * len(done.ids))


class LosesAnIdWhenResumed(Good):
    def _answer(self, request: GenerateRequest) -> tuple[int, ...]:
        resumed = request.prompt_ids in self._rest
        return super()._answer(request)[int(resumed) :]


class AbortsOnKeep(Good):
    async def pause(self, mode: PauseMode) -> None:
        await super().pause("abort" if mode == "keep" else mode)


class AnswersInAPause(Good):
    async def pause(self, mode: PauseMode) -> None:
        pass

    async def resume(self) -> None:
        pass


class DoesNotWait(Good):
    async def pause(self, mode: PauseMode) -> None:
        await super().pause("keep" if mode == "wait" else mode)


class AcceptsAnyId(Good):
    def _check(self, request: GenerateRequest) -> None:
        pass


class UpdatesWhileRunning(Good):
    async def update_weights(self, update: WeightUpdate) -> int:
        self._version = update.version
        return update.version


class LosesItsSlot(Good):
    """A cancelled generation is counted as running for ever."""

    async def generate(self, request: GenerateRequest) -> Completion:
        try:
            return await super().generate(request)
        except asyncio.CancelledError:
            self._running += 1
            raise


class DependsOnMates(Good):
    async def generate(self, request: GenerateRequest) -> Completion:
        crowd = self._running
        done = await super().generate(request)
        return replace(done, ids=(*done.ids[:-1], (done.ids[-1] + min(crowd, 1)) % 97)) if done.ids else done


@pytest.mark.parametrize(
    ("engine", "found_by"),
    [
        (FreshBudget, "budget"),
        (IgnoresStopIds, "stop_ids"),
        (DropsTheStopId, "stop_ids"),
        (IgnoresStopTexts, "stop_texts"),
        (SamplesBannedIds, "banned_ids"),
        (WrongLogprobs, "logprobs"),
        (LosesAnIdWhenResumed, "abort_and_resume"),
        (AbortsOnKeep, "pause_keep"),
        (AnswersInAPause, "pause_keep"),
        (DoesNotWait, "pause_wait"),
        (AcceptsAnyId, "malformed"),
        (UpdatesWhileRunning, "transitions"),
        (DependsOnMates, "batch_mates"),
    ],
)
def test_a_broken_engine_is_found_out(engine: type[ScriptedEngine], found_by: str) -> None:
    report = report_on(engine(), found_by)
    assert [f.name for f in report.failed if f.name != "left running"] == [found_by], str(report)
    assert all(f.detail for f in report.failed)


def test_versions_stamped_at_the_answer_are_found_out() -> None:
    """They never show two versions in one completion: the suite says that it has caught none."""
    (finding,) = (f for f in report_on(StampsWhenItAnswers(), "versions").findings if f.name == "versions")
    assert finding.outcome == "skipped"
    assert "no generation was caught" in finding.detail


def test_a_lost_slot_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentrl.rollout.engines.conformance.DEADLINE_S", 0.5)
    assert [f.name for f in report_on(LosesItsSlot(), "cancellation").failed] == ["cancellation"]


def test_an_engine_that_is_left_paused_ends_the_suite() -> None:
    class NeverResumes(Good):
        async def resume(self) -> None:
            raise EngineError("no")

    report = report_on(NeverResumes())
    assert report.findings[-1].name == "left running"
    assert "pause_keep left the engine paused" in report.findings[-1].detail


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="there is no check 'budgets'"):
        asyncio.run(check(Good(), skip={"budgets"}))
    with pytest.raises(ValueError, match="at least 2 prompts"):
        asyncio.run(check(Good(), prompts=[(1, 2)]))
