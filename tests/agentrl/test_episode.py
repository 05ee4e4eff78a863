"""Episodes, outcomes and groups; the record on disk."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from agentrl.episode import Episode, EpisodeGroup, Outcome, Turn, as_cause, demonstrated, from_json, to_json
from agentrl.messages import Message, ToolCall
from agentrl.task import Task
from agentrl.transcript import Segment, Transcript


def transcript(*versions: int) -> Transcript:
    out = Transcript([Segment(role="prompt", ids=(1, 2))])
    if versions:
        out.append(Segment(role="sampled", ids=(3,) * len(versions), logprobs=(-0.1,) * len(versions), versions=versions))
    return out


EPISODE = Episode(
    id="g0-1",
    group="g0",
    index=1,
    task=Task(id="t", prompt="p", public={"level": 2}, secret={"answer": "swordfish"}),
    seed=7,
    transcripts=(transcript(3), transcript(4, 5)),
    messages=(
        Message(role="user", content="p"),
        Message(role="assistant", content="a", tool_calls=(ToolCall(id="call_0", name="f", arguments={"x": 1}),)),
        Message(role="tool", content="1", tool_call_id="call_0", name="f"),
    ),
    turns=(Turn(reward=0.5, started_s=0.1, sampled_s=0.2, ended_s=0.3, parse_error="", tool_calls=1),),
    outcome=Outcome.TERMINATED,
    rewards={"env": 0.5, "tests": 1.0},
    metrics={"passed": 2.0},
    wall_s=0.123456789,
)


@pytest.mark.parametrize("outcome", list(Outcome))
def test_each_outcome_is_exactly_one_of_three(outcome):
    assert outcome.is_terminated + outcome.is_truncated + outcome.is_aborted == 1


def test_what_is_trained_on():
    truncated = {Outcome.MAX_TURNS, Outcome.MAX_TOKENS, Outcome.DEADLINE}
    assert {o for o in Outcome if o.is_truncated} == truncated
    assert {o for o in Outcome if o.is_aborted} == set(Outcome) - truncated - {Outcome.TERMINATED}


def test_reward_and_versions():
    assert EPISODE.reward == 1.5
    assert EPISODE.transcript == transcript(4, 5)
    assert EPISODE.versions == (3, 5)
    assert replace(EPISODE, transcripts=(transcript(),)).versions == (-1, -1)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_reward_is_a_finite_number(value):
    with pytest.raises(ValueError, match=r"reward 'tests' of episode g0-1 is (nan|inf)"):
        replace(EPISODE, rewards={"tests": value})


def test_a_record_gives_the_episode_back_without_its_secret():
    record = json.dumps(to_json(EPISODE))
    assert "swordfish" not in record
    again = from_json(json.loads(record))
    assert again == replace(EPISODE, task=Task(id="t", prompt="p", public={"level": 2}))
    assert to_json(again) == to_json(EPISODE)


def test_a_group_leaves_out_what_broke():
    broken = replace(EPISODE, id="g0-2", index=2, outcome=Outcome.SANDBOX_LOST, error="gone")
    cut = replace(EPISODE, id="g0-3", index=3, outcome=Outcome.MAX_TOKENS)
    group = EpisodeGroup(id="g0", number=0, task=EPISODE.task, episodes=(EPISODE, broken, cut))
    assert group.usable == (EPISODE, cut)


def test_the_reason_names_the_place_in_one_line():
    place = "mine.py:4 in Mine.step"
    broken = replace(
        EPISODE, outcome=Outcome.ENV_ERROR, error="ValueError: two\nlines", trace=("a.py:1", f"{place}\n    x = 1 / 0")
    )
    assert broken.reason == f"ValueError: two lines ({place})"
    assert from_json(to_json(broken)).trace == broken.trace
    assert replace(EPISODE, error="gone").reason == "gone"
    assert as_cause(replace(EPISODE, error="gone")) is None
    assert str(as_cause(broken)) == f"episode {broken.id}\n  a.py:1\n  {place}\n    x = 1 / 0\n  ValueError: two\nlines"


def test_a_record_of_before_has_no_trace():
    data = {name: value for name, value in to_json(EPISODE).items() if name not in ("trace", "opening")}
    assert (from_json(data).trace, from_json(data).opening) == ((), 0)


@pytest.mark.parametrize(
    ("roles", "shown"),
    [
        ([], []),
        (["system", "user"], []),
        (["user", "assistant", "user"], [0, 1]),
        (["system", "user", "assistant", "tool", "assistant", "user"], [1, 2, 3, 4]),
        (["user", "tool", "user", "user"], [0, 1]),
    ],
)
def test_a_demonstration_ends_with_its_last_answer(roles, shown):
    assert list(demonstrated([Message(role=role, content="x") for role in roles])) == shown
