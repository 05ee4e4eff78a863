import math

import numpy as np
import pytest
import torch

from agentrl.engine import Sampling
from agentrl.rollout.engines.sampler import BLOCK, Draw, Sampler, uniforms


def draws(*samplings: Sampling, seed: int = 0, position: int = 0) -> list[Draw]:
    return [Draw(sampling=s, seed=seed, position=position) for s in samplings]


def drawn_ids(logits: torch.Tensor, sampling: Sampling, count: int) -> np.ndarray:
    """[count] ids drawn from one distribution, each with the next position of one seed."""
    rows = [Draw(sampling=sampling, seed=7, position=i) for i in range(count)]
    return np.array(Sampler().draw(logits.expand(count, -1).clone(), rows).ids)


def test_uniforms_are_splitmix64() -> None:
    # SplitMix64 with state 0 begins e220a8397b1dcdaf, 6e789e6aa1b965f4 (the test vector in Vigna's and Java's sources);
    # _mix(0) is 0, so that seed 0 is that stream, whose first number has position 1.
    got = uniforms([0, 0], [1, 2])
    assert got.tolist() == [(0xE220A8397B1DCDAF >> 11) / 2**53, (0x6E789E6AA1B965F4 >> 11) / 2**53]


def test_uniforms_fill_the_interval_and_do_not_repeat() -> None:
    many = uniforms([s for s in range(200) for _ in range(50)], list(range(50)) * 200)
    assert many.min() >= 0
    assert many.max() < 1
    assert len(set(many.tolist())) == 10_000
    counts = np.histogram(many, bins=20, range=(0, 1))[0]
    assert ((counts - 500) ** 2 / 500).sum() < 43.8  # chi-square, 19 degrees of freedom, p = 0.001


@pytest.mark.parametrize("temperature", [1.0, 0.5, 2.0])
@pytest.mark.parametrize("size", [6, BLOCK + 3])
def test_draws_follow_the_softmax(temperature: float, size: int) -> None:
    logits = torch.full((1, size), -9.0)
    logits[0, [0, 1, 2, 4, size - 1]] = torch.tensor([1.0, 0.0, 2.0, -1.0, 1.5])
    count = 4000
    expected = torch.softmax(logits[0].double() / temperature, 0).numpy() * count
    seen = np.bincount(drawn_ids(logits, Sampling(temperature=temperature), count), minlength=size)
    # Pool what is expected less than 5 times, as the chi-square test wants.
    rare = expected < 5
    pairs = [*zip(seen[~rare], expected[~rare], strict=True), (seen[rare].sum(), expected[rare].sum())]
    statistic = sum((s - e) ** 2 / e for s, e in pairs if e > 0)
    assert statistic < 27.9  # p = 0.001 at 9 degrees of freedom, here there are fewer


def test_logprob_is_that_of_the_tempered_distribution() -> None:
    # Two ids with logits 0 and log 3: at temperature 1/2 the odds are 1 : 9.
    logits = torch.tensor([[0.0, math.log(3)]]).repeat(40, 1)
    rows = [Draw(sampling=Sampling(temperature=0.5), seed=1, position=i) for i in range(40)]
    drawn = Sampler().draw(logits, rows)
    assert set(drawn.ids) == {0, 1}
    for token, logprob in zip(drawn.ids, drawn.logprobs, strict=True):
        assert logprob == pytest.approx(math.log(0.1 if token == 0 else 0.9), abs=1e-6)


def test_greedy_takes_the_best_with_the_logprob_of_temperature_one() -> None:
    logits = torch.tensor([[0.0, math.log(3), 0.0]])
    drawn = Sampler().draw(logits, draws(Sampling(temperature=0, top_k=1, top_p=0.1)))
    assert drawn.ids == [1]
    assert drawn.logprobs[0] == pytest.approx(math.log(3 / 5), abs=1e-6)


def test_banned_ids_are_left_out_of_draw_and_norm() -> None:
    logits = torch.tensor([[5.0, 0.0, 0.0, 0.0]]).repeat(64, 1)
    ban = Sampling(banned_ids=(0, 3, 99))  # 99 is no id of this vocabulary
    drawn = Sampler().draw(logits.clone(), [Draw(sampling=ban, seed=1, position=i) for i in range(64)])
    assert set(drawn.ids) == {1, 2}
    assert drawn.logprobs == pytest.approx([math.log(0.5)] * 64, abs=1e-6)
    greedy = Sampler().draw(logits[:1].clone(), draws(Sampling(temperature=0, banned_ids=(0,))))
    assert greedy.ids == [1]
    assert greedy.logprobs[0] == pytest.approx(math.log(1 / 3), abs=1e-6)


def test_top_k_and_top_p_by_hand() -> None:
    # Probabilities 0.5, 0.25, 0.15, 0.1.
    logits = torch.tensor([[0.15, 0.5, 0.1, 0.25]]).log()
    cases = [
        (Sampling(top_k=2), {1: 0.5 / 0.75, 3: 0.25 / 0.75}),
        (Sampling(top_p=0.74), {1: 0.5 / 0.75, 3: 0.25 / 0.75}),
        (Sampling(top_p=0.5 - 1e-4), {1: 1.0}),
        (Sampling(top_p=0.76), {1: 0.5 / 0.9, 3: 0.25 / 0.9, 0: 0.15 / 0.9}),
        # top-k first: of 0.5, 0.25, 0.15 renormalized, 0.6 of the mass needs two ids.
        (Sampling(top_k=3, top_p=0.6), {1: 0.5 / 0.75, 3: 0.25 / 0.75}),
        (Sampling(top_k=99), {1: 0.5, 3: 0.25, 0: 0.15, 2: 0.1}),
    ]
    for sampling, expected in cases:
        rows = [Draw(sampling=sampling, seed=3, position=i) for i in range(200)]
        drawn = Sampler().draw(logits.repeat(200, 1), rows)
        assert set(drawn.ids) == set(expected), sampling
        for token, logprob in zip(drawn.ids, drawn.logprobs, strict=True):
            assert logprob == pytest.approx(math.log(expected[token]), abs=1e-6)


def test_cut_draws_follow_the_renormalized_distribution() -> None:
    logits = torch.tensor([[0.15, 0.5, 0.1, 0.25]]).log()
    ids = drawn_ids(logits, Sampling(top_k=2), 3000)
    assert abs((ids == 1).mean() - 2 / 3) < 0.03  # more than three standard deviations


def test_top_p_looks_past_the_first_candidates_when_they_do_not_hold_enough() -> None:
    # 5,000 equal ids: 0.9 of the mass needs 4,500 of them, many more than are sorted at first.
    logits = torch.zeros(1, 5000)
    drawn = Sampler().draw(logits, draws(Sampling(top_p=0.9), seed=5))
    assert drawn.logprobs[0] == pytest.approx(math.log(1 / 4500), abs=1e-6)


def test_rules_of_one_row_do_not_reach_another() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(5, 700, generator=generator)
    rules = [
        Sampling(),
        Sampling(temperature=0),
        Sampling(temperature=0.7, banned_ids=(1, 2)),
        Sampling(top_k=5),
        Sampling(top_p=0.3, temperature=3.0),
    ]
    rows = [Draw(sampling=s, seed=i, position=2 * i) for i, s in enumerate(rules)]
    together = Sampler().draw(logits.clone(), rows)
    alone = [Sampler().draw(logits[i : i + 1].clone(), rows[i : i + 1]) for i in range(5)]
    assert together.ids == [a.ids[0] for a in alone]
    assert together.logprobs == [a.logprobs[0] for a in alone]


def test_one_sampler_serves_batches_of_changing_size() -> None:
    sampler, generator = Sampler(), torch.Generator().manual_seed(0)
    for rows in (3, 8, 1, 8):
        logits = torch.randn(rows, 300, generator=generator) * 3
        given = [Draw(sampling=Sampling(), seed=i, position=rows) for i in range(rows)]
        assert sampler.draw(logits.clone(), given) == Sampler().draw(logits.clone(), given)


def test_logits_are_left_as_they_were() -> None:
    logits = torch.randn(2, 10)
    before = logits.clone()
    Sampler().draw(logits, draws(Sampling(banned_ids=(1,)), Sampling(temperature=0.5)))
    assert torch.equal(logits, before)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=0), Sampling(top_p=0.5)])
def test_a_row_that_is_not_finite_is_told_and_harms_no_other(bad: float, sampling: Sampling) -> None:
    logits = torch.zeros(2, 300)
    logits[0, 17] = bad
    drawn = Sampler().draw(logits, draws(sampling, Sampling(temperature=0)))
    assert drawn.finite == [False, True]
    assert drawn.logprobs[1] == pytest.approx(-math.log(300), abs=1e-6)


def test_an_id_of_zero_probability_is_never_drawn() -> None:
    logits = torch.full((1, 600), float("-inf"))
    logits[0, [3, 500]] = 0.0
    assert set(drawn_ids(logits, Sampling(), 200).tolist()) == {3, 500}
