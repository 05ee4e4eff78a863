"""The ledger: what it takes, what it refuses, what it says of itself."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentrl.transcript import NOT_SAMPLED, Media, Segment, Transcript, TranscriptError

PROMPT = Segment(role="prompt", ids=(1, 2, 3))
TURN = Segment(role="sampled", ids=(9, 4), logprobs=(-0.5, 0.0), versions=(0, 1))
ANSWER = Segment(role="observation", ids=(7,))


def test_lists_have_one_length_and_the_mask_is_one_where_sampled():
    transcript = Transcript([PROMPT, TURN, ANSWER])
    assert transcript.ids == (1, 2, 3, 9, 4, 7)
    assert transcript.mask == (0, 0, 0, 1, 1, 0)
    assert transcript.logprobs == (0.0, 0.0, 0.0, -0.5, 0.0, 0.0)
    assert transcript.versions == (-1, -1, -1, 0, 1, -1)
    assert (transcript.prompt_length, transcript.sampled_length, len(transcript)) == (3, 2, 6)
    assert list(transcript) == [PROMPT, TURN, ANSWER]


@pytest.mark.parametrize(
    ("segment", "message"),
    [
        ({"role": "sampled", "ids": (1, 2), "logprobs": (-1.0,), "versions": (0, 0)}, "2 ids, 1 logprobs, 2 versions"),
        ({"role": "sampled", "ids": (1,), "logprobs": (-1.0,), "versions": ()}, "1 ids, 1 logprobs, 0 versions"),
        ({"role": "sampled", "ids": (1,)}, "1 ids, 0 logprobs"),
        ({"role": "sampled", "ids": (1,), "logprobs": (0.1,), "versions": (0,)}, "logprob is above 0"),
        ({"role": "sampled", "ids": (1,), "logprobs": (float("nan"),), "versions": (0,)}, "logprob is above 0"),
        ({"role": "sampled", "ids": (1,), "logprobs": (float("-inf"),), "versions": (0,)}, "infinite"),
        ({"role": "sampled", "ids": (1,), "logprobs": (-1.0,), "versions": (-1,)}, "needs the version"),
        ({"role": "prompt", "ids": (1,), "logprobs": (-1.0,)}, "nothing sampled it"),
        ({"role": "observation", "ids": (1,), "versions": (2,)}, "nothing sampled it"),
        ({"role": "prompt", "ids": (-1,)}, "at least 0, not -1"),
        ({"role": "prompt", "ids": ("a",)}, "whole ids"),
        ({"role": "prompt", "ids": (1.5,)}, "whole ids"),
        ({"role": "assistant", "ids": (1,)}, "prompt, sampled, observation, not 'assistant'"),
        ({"role": "prompt", "ids": (1,), "media": (Media(start=0, stop=2, grid=(1, 1, 1), sha256="x"),)}, "media span"),
        ({"role": "prompt", "ids": (1,), "media": (Media(start=1, stop=1, grid=(1, 1, 1), sha256="x"),)}, "media span"),
        (
            {
                "role": "prompt",
                "ids": (1, 2, 3),
                "media": (
                    Media(start=0, stop=2, grid=(1, 1, 1), sha256="x"),
                    Media(start=1, stop=3, grid=(1, 1, 1), sha256="y"),
                ),
            },
            "over another one",
        ),
    ],
)
def test_a_segment_that_cannot_be_true_is_refused(segment, message):
    with pytest.raises(TranscriptError, match=message):
        Segment(**segment)


def test_ids_of_an_engine_become_plain_numbers():
    numpy = pytest.importorskip("numpy")
    segment = Segment(
        role="sampled",
        ids=numpy.array([3, 4]),
        logprobs=numpy.array([-1.5, -2.0], dtype=numpy.float32),
        versions=numpy.array([0, 0]),
    )
    assert json.loads(json.dumps(Transcript([PROMPT, segment]).to_list()))[1] == {
        "role": "sampled",
        "ids": [3, 4],
        "logprobs": [-1.5, -2.0],
        "versions": [0, 0],
    }


def test_order_of_segments():
    with pytest.raises(TranscriptError, match="starts with a prompt of at least one id, not with a sampled segment of 2"):
        Transcript([TURN])
    with pytest.raises(TranscriptError, match="starts with a prompt of at least one id, not with a prompt segment of 0"):
        Transcript([Segment(role="prompt", ids=())])
    with pytest.raises(TranscriptError, match="one prompt, at its start"):
        Transcript([PROMPT, PROMPT])
    assert Transcript([PROMPT, TURN, TURN]).mask == (0, 0, 0, 1, 1, 1, 1)  # a turn continued after an abort


def test_a_refused_segment_leaves_the_ledger_as_it_was():
    transcript = Transcript([PROMPT, TURN])
    with pytest.raises(TranscriptError):
        transcript.append(PROMPT)
    assert transcript.segments == (PROMPT, TURN)


def test_a_fork_shares_a_prefix_and_goes_its_own_way():
    transcript = Transcript([PROMPT, TURN, ANSWER])
    fork = transcript.fork(2)
    assert fork == Transcript([PROMPT, TURN])
    fork.append(TURN)
    assert len(transcript) == 6
    for wrong in (-1, 4):
        with pytest.raises(TranscriptError, match="of 3 segments"):
            transcript.fork(wrong)


def test_an_empty_transcript():
    assert (Transcript().ids, Transcript().prompt_length, len(Transcript())) == ((), 0, 0)


LOGPROBS = st.floats(min_value=-50, max_value=0, allow_nan=False)


@st.composite
def segments(draw):
    role = draw(st.sampled_from(["sampled", "observation"]))
    ids = draw(st.lists(st.integers(0, 200_000), min_size=1, max_size=6))
    if role == "observation":
        return Segment(role=role, ids=ids, media=(Media(start=0, stop=1, grid=(1, 2, 2), sha256="ab"),))
    logprobs = draw(st.lists(LOGPROBS, min_size=len(ids), max_size=len(ids)))
    versions = draw(st.lists(st.integers(0, 9), min_size=len(ids), max_size=len(ids)))
    return Segment(role=role, ids=ids, logprobs=logprobs, versions=versions)


@settings(max_examples=30, deadline=None)
@given(st.lists(segments(), max_size=6))
def test_written_down_and_read_again_it_is_equal(rest):
    transcript = Transcript([PROMPT, *rest])
    assert Transcript.from_list(json.loads(json.dumps(transcript.to_list()))) == transcript
    lengths = {len(x) for x in (transcript.ids, transcript.mask, transcript.logprobs, transcript.versions)}
    assert lengths == {len(transcript)}
    assert all((v == NOT_SAMPLED) == (m == 0) for v, m in zip(transcript.versions, transcript.mask, strict=True))
