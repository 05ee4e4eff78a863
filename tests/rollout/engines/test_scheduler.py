"""The scheduler without its thread: each step is taken by hand, so that an abort can be put at every index."""

import pytest
import torch

from agentrl.engine import Completion, EngineError, GenerateRequest, Sampling
from agentrl.rollout.engines.generation import Generation
from agentrl.rollout.engines.replica import Replica
from agentrl.rollout.engines.scheduler import PROMPT_TOKENS, Scheduler
from tests.support.tiny_models import CONTEXT, hf_greedy, prompt, reference_logprobs, tiny


@pytest.fixture(autouse=True)
def _no_gradients():
    with torch.inference_mode():
        yield


def make(model: torch.nn.Module, *, slots: int = 8, store_tokens: int = 10_000, packed: bool | None = None) -> Scheduler:
    return Scheduler(Replica(model, packed=packed), slots=slots, store_tokens=store_tokens, version=0)


def add(scheduler: Scheduler, ids: tuple[int, ...], new: int = 12, **sampling: object) -> Generation:
    rules = Sampling(**{"temperature": 0.0, **sampling})
    request = GenerateRequest(prompt_ids=ids, max_new_tokens=new, sampling=rules)
    generation = Generation(request, max_context=CONTEXT)
    scheduler.add(generation)
    return generation


def run(scheduler: Scheduler, *generations: Generation) -> list[Completion]:
    for _ in range(2000):
        if all(g.done for g in generations):
            return [g.future.result() for g in generations]
        scheduler.step()
    raise AssertionError("not done after 2,000 steps")


def test_aborted_at_every_index_and_continued_gives_the_greedy_result() -> None:
    model, ids = tiny(), prompt(20)
    expected = hf_greedy(model, ids, 12)
    scheduler = make(model)
    for steps in range(12):
        first = add(scheduler, ids)
        for _ in range(steps):
            scheduler.step()
        scheduler.abort()
        part = first.future.result()
        assert (part.finish, part.ids) == ("abort", expected[:steps])
        rest = run(scheduler, add(scheduler, ids + part.ids, 12 - steps))[0]
        assert part.ids + rest.ids == expected


def test_seeded_and_cut_at_every_index_is_the_generation_that_was_not_cut() -> None:
    model, ids = tiny(), prompt(20)
    scheduler = make(model)
    whole = run(scheduler, add(scheduler, ids, temperature=1.0, seed=9))[0].ids
    assert whole != hf_greedy(model, ids, 12)
    for n in range(1, 12):
        rest = run(scheduler, add(scheduler, ids + whole[:n], 12 - n, temperature=1.0, seed=9))[0].ids
        assert whole[:n] + rest == whole


def test_siblings_share_one_reading_of_their_prompt() -> None:
    model, ids = tiny(), prompt(40)
    scheduler = make(model)
    group = [add(scheduler, ids, temperature=1.0, seed=i) for i in range(5)]
    done = run(scheduler, *group)
    assert [c.cached_tokens for c in done] == [0, 39, 39, 39, 39]
    counts = scheduler.metrics()
    assert (counts["prompt_tokens"], counts["cached_tokens"], counts["requests"]) == (200, 156, 5)
    assert counts["sampled_tokens"] == 60
    for i, completion in enumerate(done):
        alone = make(model)
        assert run(alone, add(alone, ids, temperature=1.0, seed=i))[0].ids == completion.ids


def test_a_next_turn_computes_only_what_is_new() -> None:
    model, first = tiny(), prompt(30)
    scheduler = make(model)
    answer = run(scheduler, add(scheduler, first))[0].ids
    second = first + answer + prompt(9, seed=1)
    done = run(scheduler, add(scheduler, second))[0]
    assert done.cached_tokens == 41  # all but the last sampled id, which was never fed back
    assert done.ids == hf_greedy(model, second, 12)


def test_a_prompt_that_is_all_known_still_computes_its_last_token() -> None:
    model, ids = tiny(), prompt(30)
    scheduler = make(model)
    run(scheduler, add(scheduler, ids))
    again = run(scheduler, add(scheduler, ids[:25]))[0]
    assert (again.cached_tokens, again.ids) == (24, hf_greedy(model, ids[:25], 12))


@pytest.mark.parametrize("packed", [True, False])
def test_after_an_update_nothing_of_the_old_cache_is_served(packed: bool) -> None:
    model, ids = tiny(seed=0), prompt(40)
    scheduler = make(model, packed=packed)
    old = run(scheduler, add(scheduler, ids))[0]
    running = add(scheduler, ids)
    scheduler.step()
    scheduler.step()
    model.load_state_dict(tiny(seed=1).state_dict())
    scheduler.replica.refresh()
    scheduler.updated(1)
    assert len(scheduler.store) == 0
    fresh = make(tiny(seed=1))
    expected = run(fresh, add(fresh, ids))[0]
    new = run(scheduler, add(scheduler, ids))[0]  # its sibling still runs on the old cache
    assert new.cached_tokens == 0
    assert (new.ids, new.versions) == (expected.ids, (1,) * 12)
    assert new.ids != old.ids
    run(scheduler, running)
    assert run(scheduler, add(scheduler, ids))[0].ids == expected.ids  # what the mixed one has left is not served either


def test_an_update_in_the_middle_keeps_the_cache_and_stamps_each_id() -> None:
    model, ids = tiny(), prompt(20)
    scheduler = make(model)
    generation = add(scheduler, ids)
    for _ in range(5):
        scheduler.step()
    scheduler.updated(3)  # the same weights: with its cache kept, the result is the undisturbed one
    done = run(scheduler, generation)[0]
    assert done.versions == (0,) * 5 + (3,) * 7
    assert done.ids == hf_greedy(model, ids, 12)


def test_an_aborted_generation_resumes_from_its_cache() -> None:
    scheduler = make(tiny())
    ids = prompt(20)
    first = add(scheduler, ids)
    for _ in range(6):
        scheduler.step()
    scheduler.abort()
    part = first.future.result().ids
    assert run(scheduler, add(scheduler, ids + part))[0].cached_tokens == 25


def test_dropped_caches_are_computed_again() -> None:
    model, ids = tiny(), prompt(20)
    scheduler = make(model)
    generations = [add(scheduler, ids), add(scheduler, prompt(33))]
    for _ in range(4):
        scheduler.step()
    assert scheduler.cache.bytes > 0
    scheduler.drop_cache()
    assert (scheduler.cache.bytes, len(scheduler.active), len(scheduler.waiting)) == (0, 0, 2)
    done = run(scheduler, *generations)
    assert [d.ids for d in done] == [hf_greedy(model, ids, 12), hf_greedy(model, prompt(33), 12)]


def test_more_requests_than_slots_and_changing_lengths() -> None:
    """Joins, leaves, rows that move and a cache that grows and shrinks: each gets what transformers gives it alone."""
    model = tiny()
    scheduler = make(model, slots=3)
    sizes = [(3, 9), (70, 2), (5, 40), (20, 1), (33, 17), (120, 5), (4, 60), (1, 3)]
    generations = []
    for index, (length, new) in enumerate(sizes):
        generations.append(add(scheduler, prompt(length, seed=index), new))
        scheduler.step()
        assert len(scheduler.active) <= 3
    for (length, new), (index, done) in zip(sizes, enumerate(run(scheduler, *generations)), strict=True):
        ids = prompt(length, seed=index)
        assert done.ids == hf_greedy(model, ids, new)
        expected = reference_logprobs(model, ids + done.ids)
        for i, (token, logprob) in enumerate(zip(done.ids, done.logprobs, strict=True)):
            assert logprob == pytest.approx(float(expected[length - 1 + i, token]), abs=1e-4)


def test_a_long_prompt_is_read_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentrl.rollout.engines.scheduler.PROMPT_TOKENS", 16)
    assert PROMPT_TOKENS > 16
    model = tiny()
    scheduler = make(model)
    short, long = add(scheduler, prompt(5)), add(scheduler, prompt(100))
    done = run(scheduler, short, long)
    assert done[0].ids == hf_greedy(model, prompt(5), 12)
    assert done[1].ids == hf_greedy(model, prompt(100), 12)


def test_a_cancelled_generation_leaves_its_row() -> None:
    model = tiny()
    scheduler = make(model, slots=1)
    first, second = add(scheduler, prompt(5), 100), add(scheduler, prompt(9))
    scheduler.step()
    assert first.future.cancel()
    assert run(scheduler, second)[0].ids == hf_greedy(model, prompt(9), 12)


def test_weights_that_are_not_finite_fail_their_requests_and_poison_no_later_one() -> None:
    model, ids = tiny(), prompt(20)
    expected = hf_greedy(model, ids, 12)
    scheduler = make(model, packed=False)
    good = {name: p.clone() for name, p in model.state_dict().items()}
    for p in model.parameters():
        p.fill_(float("nan"))
    broken = add(scheduler, ids)
    scheduler.step()
    with pytest.raises(EngineError, match="not finite"):
        broken.future.result(timeout=0)
    model.load_state_dict(good)
    scheduler.updated(1)
    assert run(
        scheduler,
        add(scheduler, ids[:3]),
    )[0].ids == hf_greedy(model, ids[:3], 12)
    assert run(scheduler, add(scheduler, ids))[0].ids == expected


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rows_without_a_token_in_this_step_do_not_disturb(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a prompt is read over several steps, its row lies below one that decodes."""
    monkeypatch.setattr("agentrl.rollout.engines.scheduler.PROMPT_TOKENS", 8)
    model = tiny("mistral", dtype=dtype)
    scheduler = make(model)
    known, long = prompt(20), prompt(90)
    expected = run(scheduler, add(scheduler, known, 16))[0].ids
    reading = add(scheduler, long)
    scheduler.step()
    decoding = add(scheduler, known, 16)  # all but its last token is in the store: it decodes in row 1 at once
    scheduler.step()
    assert [g.length - g.computed > 1 for g in scheduler.active] == [True, False]
    done = run(scheduler, reading, decoding)
    assert done[1].ids == expected
    if dtype == torch.float32:
        assert expected == hf_greedy(model, known, 16)
        assert done[0].ids == hf_greedy(model, long, 12)
