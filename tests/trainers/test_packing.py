import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from agentrl.trainers.packing import Segment, pack
from tests.trainers.builders import sample, siblings


def test_a_row_by_hand():
    """The example of the module's docstring: prompt 1 2 3; a: 4 5 6, b: 7 8(observed) 9, c: another prompt 50, 51 52."""
    a = sample([1, 2, 3, 4, 5, 6], [0, 0, 0, 1, 1, 1], prompt=3)
    b = sample([1, 2, 3, 7, 8, 9, 10], [0, 0, 0, 1, 0, 1, 0], prompt=3)  # 10: an observation after the last action
    c = sample([50, 51, 52], [0, 1, 1], prompt=1)
    (row,) = pack([a, b, c], tokens=100)
    assert row.ids.tolist() == [1, 2, 3, 4, 5, 7, 8, 50, 51]  # neither 6, 9, 52 (predicted only) nor 10 (irrelevant)
    assert row.position_ids.tolist() == [0, 1, 2, 3, 4, 3, 4, 0, 1]
    assert row.segments == (
        Segment(start=0, stop=3),
        Segment(start=3, stop=5, prefix=0),
        Segment(start=5, stop=7, prefix=0),
        Segment(start=7, stop=9),
    )
    # 4 and 7 are both predicted at the prompt's last token
    assert row.sources.tolist() == [2, 3, 4, 2, 6, 7, 8]
    assert row.targets.tolist() == [4, 5, 6, 7, 9, 51, 52]
    assert (row.samples, row.counts) == ((0, 1, 2), (3, 2, 2))


def test_without_sharing_each_sample_is_a_plain_segment():
    a = sample([1, 2, 3, 4], [0, 0, 1, 1], prompt=2)
    b = sample([1, 2, 5, 6], [0, 0, 1, 1], prompt=2)
    (row,) = pack([a, b], tokens=100, share_prefix=False)
    assert row.ids.tolist() == [1, 2, 3, 1, 2, 5]
    assert all(segment.prefix is None for segment in row.segments)


def test_a_sibling_with_one_sampled_token_adds_no_input():
    a = sample([1, 2, 3], [0, 0, 1], prompt=2)
    b = sample([1, 2, 4, 5], [0, 0, 1, 1], prompt=2)
    (row,) = pack([a, b], tokens=100)
    assert row.ids.tolist() == [1, 2, 4]
    assert row.samples == (1, 0)
    assert row.sources.tolist() == [1, 2, 1]
    assert row.targets.tolist() == [4, 5, 3]


def test_only_equal_prompts_are_shared():
    a = sample([1, 2, 3, 4], [0, 0, 1, 1], prompt=2)
    b = sample([1, 9, 3, 4], [0, 0, 1, 1], prompt=2)  # same group, another prompt: a fork, for one
    c = sample([1, 2, 5, 6], [0, 1, 1, 1], prompt=2)  # a trained token inside the prompt
    (row,) = pack([a, b, c], tokens=100)
    assert all(segment.prefix is None for segment in row.segments)
    assert sorted(row.targets.tolist()) == sorted([3, 4, 3, 4, 2, 5, 6])


def test_a_family_too_large_for_a_row_takes_its_prompt_along():
    family = [sample([1, 2, 3, 10 + i, 20 + i, 30 + i], [0, 0, 0, 1, 1, 1], prompt=3) for i in range(4)]
    rows = pack(family, tokens=7)  # prompt 3 + two siblings of 2
    assert [row.tokens for row in rows] == [7, 7]
    assert [row.ids[:3].tolist() for row in rows] == [[1, 2, 3], [1, 2, 3]]


def test_one_above_the_budget_has_a_row_to_itself():
    long = sample(range(20), [0] * 10 + [1] * 10, prompt=10)
    short = [sample([40, 41 + i], [0, 1], prompt=1) for i in range(3)]
    rows = pack([*short, long], tokens=4)
    assert [row.samples for row in rows if 3 in row.samples] == [(3,)]
    assert all(row.tokens <= 4 for row in rows if 3 not in row.samples)


def test_nothing_to_train_is_in_no_row():
    assert pack([], tokens=10) == []
    assert pack([sample([1, 2], [0, 0])], tokens=10) == []


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="first id is trained"):
        pack([sample([1, 2], [1, 1])], tokens=10)
    with pytest.raises(ValueError, match="at least 1"):
        pack([], tokens=0)


def test_the_same_rows_every_time():
    samples = siblings(4, 4)
    first, second = pack(samples, tokens=30), pack(samples, tokens=30)
    assert [row.samples for row in first] == [row.samples for row in second]


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 10**6), tokens=st.integers(1, 60), share=st.booleans(), groups=st.integers(1, 4))
def test_every_trained_token_once_with_its_whole_context(seed, tokens, share, groups):
    """Rebuilds from each row what every target's source may look at, and compares with the sample's own ids."""
    samples = siblings(groups, 3, seed)
    rows = pack(samples, tokens=tokens, share_prefix=share)
    seen = []
    for row in rows:
        assert row.tokens <= tokens or len(row.samples) == 1
        offset = 0
        for i, count in zip(row.samples, row.counts, strict=True):
            s = samples[i]
            positions = [k for k, m in enumerate(s.mask) if m]
            assert count == len(positions)
            for k, position in enumerate(positions):
                assert row.targets[offset + k] == s.ids[position]
                context, order = visible(row, int(row.sources[offset + k]))
                assert tuple(context) == s.ids[:position]
                assert order == list(range(position))
            offset += count
            seen.append(i)
    assert sorted(seen) == list(range(len(samples)))


def visible(row, position):
    """(ids, position ids) that the token at `position` attends to."""
    segment = next(s for s in row.segments if s.start <= position < s.stop)
    where = list(range(segment.start, position + 1))
    if segment.prefix is not None:
        prefix = row.segments[segment.prefix]
        where = [*range(prefix.start, prefix.stop), *where]
    return row.ids[where].tolist(), row.position_ids[where].tolist()


def test_segments_cover_the_row_without_gaps():
    for row in pack(siblings(3, 4), tokens=40):
        assert [s.start for s in row.segments] == [0, *(s.stop for s in row.segments[:-1])]
        assert row.segments[-1].stop == row.tokens == len(row.position_ids)
        assert row.ids.dtype == row.sources.dtype == torch.int64
