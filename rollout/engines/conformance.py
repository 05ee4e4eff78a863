"""One suite that every engine passes: what a trainer relies on when it talks to an engine it does not know.

`check` runs named checks, one after the other, against a running engine, and reports on each. It changes nothing but the
engine's version. Greedy decoding must be repeatable: check servers in float32.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from agentrl.engine import Completion, Engine, EngineError, EngineState, GenerateRequest, PauseMode, Sampling
from agentrl.weights import WeightUpdate

from .generation import Decode
from .resuming import ResumingEngine

Reference = Callable[[Sequence[int]], Sequence[Sequence[float]]]
"""ids [n] -> logprobs [n][vocabulary] of temperature 1: row i speaks of the id that follows ids[i]."""

DEADLINE_S = 120.0
"""For one check."""

TOLERANCE = 1e-4
"""Of logprobs in float32."""

TRIES, LONGER = 3, 4
"""For the check that must catch a generation in its middle: how often it tries, with how many times `new_tokens`."""

POLL_S = 0.001
"""Between two looks at whether something runs. A loop without a pause would hold up an engine in the same process."""

GRACE_S = 0.05
"""How long an answer that must not come is waited for."""

OUTSIDE = 2**31 - 2
"""An id that no vocabulary holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """How one check went."""

    name: str
    outcome: str
    """passed | failed | skipped."""
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """[checks] findings, in the order they were made.

    >>> str(Report(findings=(Finding(name="budget", outcome="failed", detail="9 ids for a budget of 8"),)))
    'failed   budget: 9 ids for a budget of 8'
    """

    findings: tuple[Finding, ...]

    @property
    def failed(self) -> tuple[Finding, ...]:
        return tuple(f for f in self.findings if f.outcome == "failed")

    @property
    def passed(self) -> bool:
        return not self.failed

    def __str__(self) -> str:
        return "\n".join(f"{f.outcome:8} {f.name}{': ' if f.detail else ''}{f.detail}" for f in self.findings)


class ConformanceError(AssertionError):
    """An engine does not do what its contract says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kit:
    """What the checks work with."""

    engine: Engine
    reference: Reference | None
    prompts: tuple[tuple[int, ...], ...]
    new_tokens: int
    decode: Decode | None
    update: Callable[[int], WeightUpdate]
    greedy_results: dict[tuple[int, ...], Completion] = field(default_factory=dict)

    def request(self, prompt: Sequence[int], **sampling: Any) -> GenerateRequest:
        rules = Sampling(**{"temperature": 0.0, **sampling})
        return GenerateRequest(prompt_ids=tuple(prompt), max_new_tokens=self.new_tokens, sampling=rules)

    async def greedy(self, prompt: tuple[int, ...]) -> Completion:
        """The undisturbed greedy result, made once."""
        if prompt not in self.greedy_results:
            self.greedy_results[prompt] = await self.engine.generate(self.request(prompt))
        return self.greedy_results[prompt]


async def check(
    engine: Engine,
    reference: Reference | None = None,
    *,
    prompts: Sequence[Sequence[int]] = ((5, 6, 7), tuple(range(5, 45)), tuple(range(5, 45)), tuple(range(7, 27))),
    new_tokens: int = 12,
    decode: Decode | None = None,
    update: Callable[[int], WeightUpdate] = lambda version: WeightUpdate(version=version),
    skip: Collection[str] = (),
) -> Report:
    """Runs all checks and raises nothing: see `Report`.

    reference: an independent forward pass of the same weights; without it logprobs are not compared. prompts: at least two,
    better some that share a beginning. new_tokens: for each, at least 4; all must fit the context. decode: as the engine's
    own, for stop texts. update: the same weights again under a new version. skip: names of checks that do not apply.
    """
    kit = Kit(
        engine=engine,
        reference=reference,
        prompts=tuple(map(tuple, prompts)),
        new_tokens=new_tokens,
        decode=decode,
        update=update,
    )
    if len(kit.prompts) < 2 or new_tokens < 4:
        raise ValueError(f"the checks need at least 2 prompts and 4 new tokens; got {len(kit.prompts)} and {new_tokens}")
    if unknown := set(skip) - set(CHECKS):
        raise ValueError(f"there is no check {sorted(unknown)[0]!r}; valid: {', '.join(CHECKS)}")
    findings = []
    for name, test in CHECKS.items():
        findings.append(Finding(name=name, outcome="skipped") if name in skip else await _run(name, test, kit))
        if engine.state is not EngineState.RUNNING:
            findings.append(Finding(name="left running", outcome="failed", detail=f"{name} left the engine {engine.state}"))
            break
    return Report(findings=tuple(findings))


async def _run(name: str, test: Callable[[Kit], Awaitable[str | None]], kit: Kit) -> Finding:
    try:
        async with asyncio.timeout(DEADLINE_S):
            skipped = await test(kit)
    except Exception as error:  # a failed check is a finding; the suite goes on
        return Finding(name=name, outcome="failed", detail=f"{type(error).__name__}: {error}")
    return Finding(name=name, outcome="skipped" if skipped else "passed", detail=skipped or "")


def _ensure(condition: bool, message: str) -> None:
    if not condition:
        raise ConformanceError(message)


def _same(got: Completion, expected: Completion, what: str) -> None:
    _ensure(got.ids == expected.ids, f"{what}: {list(got.ids)} instead of {list(expected.ids)}")


async def _fails(call: Callable[[], Awaitable[object]], what: str) -> None:
    try:
        await call()
    except EngineError:
        return
    raise ConformanceError(f"{what} was not refused")


# The checks. Each returns None, or why it was skipped.


async def well_formed(kit: Kit) -> None:
    for prompt in kit.prompts:
        done = await kit.greedy(prompt)
        _ensure(0 < len(done.ids) <= kit.new_tokens, f"{len(done.ids)} ids for a budget of {kit.new_tokens}")
        _ensure(all(x <= 1e-6 for x in done.logprobs), "a logprob is above 0 or not a number")
        _ensure(set(done.versions) == {kit.engine.version}, f"versions {set(done.versions)}, not {kit.engine.version}")
        _ensure(0 <= done.cached_tokens <= len(prompt), f"{done.cached_tokens} cached tokens of {len(prompt)}")


async def repeatable(kit: Kit) -> None:
    for prompt in kit.prompts:
        _same(await kit.engine.generate(kit.request(prompt)), await kit.greedy(prompt), "the same request again")


async def budget(kit: Kit) -> None:
    whole = await kit.greedy(kit.prompts[0])
    for n in range(1, len(whole.ids)):
        done = await kit.engine.generate(replace(kit.request(kit.prompts[0]), max_new_tokens=n))
        _ensure(done.ids == whole.ids[:n], f"budget {n}: {list(done.ids)}, not the first {n} of {list(whole.ids)}")
        _ensure(done.finish == "length", f"budget {n} used up, but it finished {done.finish!r}")


async def stop_ids(kit: Kit) -> None:
    whole = await kit.greedy(kit.prompts[0])
    for stop in set(whole.ids):
        done = await kit.engine.generate(kit.request(kit.prompts[0], stop_ids=(stop,)))
        expected = whole.ids[: whole.ids.index(stop) + 1]
        _ensure(done.ids == expected, f"stop id {stop}: {list(done.ids)} instead of {list(expected)}")
        _ensure(done.finish == "stop", f"stopped by id {stop}, but it finished {done.finish!r}")


async def stop_texts(kit: Kit) -> str | None:
    if kit.decode is None:
        return "no decode"
    whole = await kit.greedy(kit.prompts[0])
    text = kit.decode(list(whole.ids))
    stop = text[len(text) // 2 :][:3]
    if not stop:
        return "the greedy result has no text"
    length = next(n for n in range(1, len(whole.ids) + 1) if stop in kit.decode(list(whole.ids[:n])))
    done = await kit.engine.generate(kit.request(kit.prompts[0], stop=(stop,)))
    _ensure(done.ids == whole.ids[:length], f"stop text {stop!r}: {list(done.ids)} instead of {list(whole.ids[:length])}")
    _ensure(done.finish == "stop", f"stopped by a text, but it finished {done.finish!r}")
    return None


async def banned_ids(kit: Kit) -> None:
    banned = (await kit.greedy(kit.prompts[0])).ids[:2]
    for temperature in (0.0, 1.0):
        done = await kit.engine.generate(kit.request(kit.prompts[0], banned_ids=banned, temperature=temperature, seed=1))
        _ensure(not set(banned) & set(done.ids), f"banned {banned}, sampled {list(done.ids)}")


async def frozen_parameters(kit: Kit) -> None:
    request = kit.request(kit.prompts[0], stop_ids=(OUTSIDE,), seed=3)
    before = copy.deepcopy(request)
    for _ in range(2):
        await kit.engine.generate(request)
        _ensure(request == before, "the request was changed")


async def logprobs(kit: Kit) -> str | None:
    """Of the distribution really drawn from: at temperature 1, and greedy (defined as those of temperature 1)."""
    if kit.reference is None:
        return "no reference"
    for prompt in kit.prompts:
        for rules in ({"temperature": 0.0}, {"temperature": 1.0, "seed": 5}):
            done = await kit.engine.generate(kit.request(prompt, **rules))
            rows = kit.reference(prompt + done.ids)
            for index, (i, logprob) in enumerate(zip(done.ids, done.logprobs, strict=True)):
                expected = float(rows[len(prompt) + index - 1][i])
                _ensure(abs(logprob - expected) <= TOLERANCE, f"id {index}: logprob {logprob:.6f}, reference {expected:.6f}")
    return None


async def batch_mates(kit: Kit) -> None:
    """Together gives what each gives alone, drawn with a seed or greedy."""
    requests = [kit.request(p, **rules) for p in kit.prompts for rules in ({}, {"temperature": 1.0, "seed": 11})]
    alone = [await kit.engine.generate(r) for r in requests]
    together = await asyncio.gather(*(kit.engine.generate(r) for r in requests))
    for one, many in zip(alone, together, strict=True):
        _same(many, one, "with others in the batch")


async def pause_keep(kit: Kit) -> None:
    prompt = kit.prompts[1]
    expected, first = await kit.greedy(prompt), (await kit.greedy(kit.prompts[0])).ids[:1]
    task = asyncio.create_task(kit.engine.generate(kit.request(prompt)))
    try:
        await _underway(kit.engine, task)
        await kit.engine.pause("keep")
        late = asyncio.create_task(kit.engine.generate(replace(kit.request(kit.prompts[0]), max_new_tokens=1)))
        await asyncio.sleep(GRACE_S)
        _ensure(not late.done(), "a request that came while the engine was paused did not wait")
    finally:
        await _resume(kit.engine)
    _same(await task, expected, "paused with its cache")
    _ensure((await late).ids == first, f"asked for in a pause: {list((await late).ids)} instead of {list(first)}")


async def pause_wait(kit: Kit) -> None:
    prompt = kit.prompts[1]
    task = asyncio.create_task(kit.engine.generate(kit.request(prompt)))
    await _underway(kit.engine, task)
    try:
        await kit.engine.pause("wait")
        _ensure(kit.engine.metrics()["running"] == 0, "something still runs after the engine has paused")
    finally:
        await _resume(kit.engine)
    _same(await task, await kit.greedy(prompt), "waited for by a pause")


async def abort_and_resume(kit: Kit) -> None:
    """However often it is cut, the continued greedy result is the undisturbed one, and not a token longer."""
    resuming = ResumingEngine(kit.engine, decode=kit.decode)
    for prompt in kit.prompts[:2]:
        task = asyncio.create_task(resuming.generate(kit.request(prompt)))
        for _ in range(4 * kit.new_tokens):
            if not await _underway(kit.engine, task):
                break
            await kit.engine.pause("abort")
            await kit.engine.resume()
        _same(await task, await kit.greedy(prompt), "aborted and continued")


async def versions(kit: Kit) -> str | None:
    """An update in the middle: each id bears the version that sampled it, whether its cache was kept or not."""
    caught = {mode: any([await _update_in_the_middle(kit, mode) for _ in range(TRIES)]) for mode in ("keep", "abort")}
    missed = [mode for mode, seen in caught.items() if not seen]
    return f"no generation was caught in the middle with pause {missed}: ask for more new_tokens" if missed else None


async def _update_in_the_middle(kit: Kit, mode: PauseMode) -> bool:
    """Whether the generation was caught: ids of both versions."""
    prompt, old = kit.prompts[1], kit.engine.version
    longer = min(LONGER * kit.new_tokens, kit.engine.max_context - len(prompt))
    request = replace(kit.request(prompt), max_new_tokens=longer)
    task = asyncio.create_task(ResumingEngine(kit.engine, decode=kit.decode).generate(request))
    await _underway(kit.engine, task)
    await kit.engine.pause(mode)
    try:
        new = await kit.engine.update_weights(kit.update(old + 1))
    finally:
        await kit.engine.resume()
    done = await task
    kit.greedy_results.clear()  # they bear the old version
    _ensure(new == kit.engine.version == old + 1, f"updated to {old + 1}, the engine says {new}")
    _ensure(list(done.versions) == sorted(done.versions), f"{mode}: versions go back: {done.versions}")
    _ensure(set(done.versions) <= {old, new}, f"{mode}: versions {set(done.versions)}, not {old} and {new}")
    _same(done, await kit.engine.generate(request), f"{mode}: the same weights under a new version")
    return set(done.versions) == {old, new}


async def transitions(kit: Kit) -> None:
    engine = kit.engine
    illegal = {
        "resume": engine.resume,
        "wake": engine.wake,
        "update_weights": lambda: engine.update_weights(kit.update(engine.version)),
        "sleep": lambda: engine.sleep("cache"),
    }
    for name, call in illegal.items():
        await _fails(call, f"{name} while running")
    await engine.pause("keep")
    try:
        await _fails(engine.wake, "wake while paused")
        await _fails(lambda: engine.pause("keep"), "a second pause")
    finally:
        await engine.resume()


async def malformed(kit: Kit) -> None:
    prompt, engine = kit.prompts[0], kit.engine
    await _fails(lambda: engine.generate(kit.request((*prompt, OUTSIDE))), "an id outside the vocabulary")
    if engine.max_context <= 2**16:
        await _fails(lambda: engine.generate(kit.request(prompt[:1] * (engine.max_context + 1))), "a prompt too long")
    _same(await engine.generate(kit.request(prompt)), await kit.greedy(prompt), "after malformed requests")


async def cancellation(kit: Kit) -> None:
    task = asyncio.create_task(kit.engine.generate(kit.request(kit.prompts[1])))
    await _underway(kit.engine, task)
    task.cancel()
    await asyncio.wait({task})
    while True:  # until the check's deadline
        counts = kit.engine.metrics()
        if counts["running"] + counts["queued"] == 0:
            break
        await asyncio.sleep(0.01)
    _same(await kit.engine.generate(kit.request(kit.prompts[1])), await kit.greedy(kit.prompts[1]), "after a cancelled one")


async def sleeping(kit: Kit) -> None:
    engine, prompt = kit.engine, kit.prompts[1]
    task = asyncio.create_task(engine.generate(kit.request(prompt)))
    await _underway(engine, task)
    await engine.pause("keep")
    await engine.sleep("cache")
    await engine.wake()
    await engine.resume()
    _same(await task, await kit.greedy(prompt), "held while the cache was given back")


async def _underway(engine: Engine, task: asyncio.Task[Completion]) -> bool:
    """Waits until `task` runs and an id has been sampled from now on; False when it is done before that is seen."""
    engine.metrics()
    sampled = 0.0
    while not task.done():
        counts = engine.metrics()
        sampled += counts["sampled_tokens"]
        if counts["running"] and sampled:
            return True
        await asyncio.sleep(POLL_S)  # an engine tells no one when it samples; the check's deadline ends this
    return False


async def _resume(engine: Engine) -> None:
    if engine.state is EngineState.PAUSED:
        await engine.resume()


CHECKS: dict[str, Callable[[Kit], Awaitable[str | None]]] = {
    test.__name__: test
    for test in (
        well_formed,
        repeatable,
        budget,
        stop_ids,
        stop_texts,
        banned_ids,
        frozen_parameters,
        logprobs,
        batch_mates,
        pause_keep,
        pause_wait,
        abort_and_resume,
        versions,
        transitions,
        malformed,
        cancellation,
        sleeping,
    )
}
