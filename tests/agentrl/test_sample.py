"""Samples: what a trainer sees of episodes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agentrl.episode import Episode, EpisodeGroup, Outcome, Turn
from agentrl.sample import Sample, runs, samples_of
from agentrl.task import Task
from agentrl.transcript import Segment, Transcript


def sampled(*ids: int) -> Segment:
    return Segment(role="sampled", ids=ids, logprobs=tuple(-i / 10 for i in ids), versions=(2,) * len(ids))


def transcript(*segments: Segment) -> Transcript:
    return Transcript([Segment(role="prompt", ids=(1, 2)), *segments])


TWO_TURNS = transcript(sampled(5, 6), Segment(role="observation", ids=(3,)), sampled(7))


def episode(*transcripts: Transcript, rewards: tuple[float, ...] = (), outcome=Outcome.TERMINATED, index: int = 0) -> Episode:
    return Episode(
        id=f"g-{index}",
        group="g",
        index=index,
        task=Task(id="t"),
        seed=0,
        transcripts=transcripts,
        turns=tuple(Turn(reward=r) for r in rewards),
        outcome=outcome,
        rewards={"env": 1.5},
    )


def of(*episodes: Episode) -> list[Sample]:
    return samples_of([EpisodeGroup(id="g", number=0, task=Task(id="t"), episodes=episodes)])


def test_a_sample_is_the_transcript_position_by_position():
    (sample,) = of(episode(TWO_TURNS, rewards=(0.5, 1.0)))
    assert sample == Sample(
        episode="g-0",
        group="g",
        ids=(1, 2, 5, 6, 3, 7),
        mask=(0, 0, 1, 1, 0, 1),
        logprobs=(0.0, 0.0, -0.5, -0.6, 0.0, -0.7),
        versions=(-1, -1, 2, 2, -1, 2),
        reward=1.5,
        turn_rewards=(0.5, 1.0),
        prompt_length=2,
    )
    assert (sample.trained_tokens, sample.trained_runs, len(sample)) == (3, 2, 6)


def test_forks_of_an_episode_count_as_one():
    samples = of(episode(TWO_TURNS, transcript(sampled(9)), transcript(), rewards=(0.5, 1.0)))
    assert [s.ids for s in samples] == [(1, 2, 5, 6, 3, 7), (1, 2, 9)]  # the third has sampled nothing
    assert [s.weight for s in samples] == [0.5, 0.5]
    assert [s.turn_rewards for s in samples] == [(), ()]


def test_only_turns_that_pair_up_with_runs_get_rewards():
    assert of(episode(TWO_TURNS, rewards=(0.5, 1.0, 2.0)))[0].turn_rewards == ()
    assert of(episode(TWO_TURNS, rewards=(0.0, 0.0)))[0].turn_rewards == ()


def test_broken_episodes_give_none_and_cut_ones_say_so():
    broken = episode(TWO_TURNS, outcome=Outcome.ENGINE_ERROR, index=0)
    cut = episode(TWO_TURNS, outcome=Outcome.MAX_TOKENS, index=1)
    assert [(s.episode, s.truncated) for s in of(broken, cut, episode(transcript(), index=2))] == [("g-1", True)]


GOOD = Sample(episode="e", group="g", ids=(1, 2), mask=(0, 1), logprobs=(0.0, -1.0), versions=(-1, 0), reward=0.0)


@pytest.mark.parametrize("field", ["ids", "mask", "logprobs", "versions"])
def test_lists_of_different_lengths_are_refused(field):
    with pytest.raises(ValueError, match=r"sample of episode e: .*must be as many"):
        replace(GOOD, **{field: (1, 1, 1)})


def test_rewards_of_turns_must_fit_the_mask():
    with pytest.raises(ValueError, match="2 rewards of turns for 1 turns"):
        replace(GOOD, turn_rewards=(1.0, 2.0))


@pytest.mark.parametrize(("mask", "count"), [((), 0), ((0, 0), 0), ((1,), 1), ((1, 1, 0, 1), 2), ((1, 0, 1, 0, 1), 3)])
def test_runs(mask, count):
    assert runs(mask) == count
