import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentrl.trainers.advantages import ADVANTAGES, batch_mean, group_mean, group_norm, leave_one_out

GROUPS = ["a", "b", "a", "b", "a"]  # interleaved
REWARDS = [1.0, 10.0, 0.0, 30.0, 0.5]


def test_group_norm_by_hand():
    # a: 1, 0, 0.5: mean 0.5, sample std 0.5; b: 10, 30: mean 20, sample std sqrt(200)
    b = 10 / (math.sqrt(200) + 1e-6)
    expected = [0.5 / (0.5 + 1e-6), -b, -0.5 / (0.5 + 1e-6), b, 0.0]
    assert group_norm(REWARDS, GROUPS) == pytest.approx(expected, abs=1e-12)


def test_group_mean_by_hand():
    assert group_mean(REWARDS, GROUPS).tolist() == [0.5, -10.0, -0.5, 10.0, 0.0]


def test_leave_one_out_by_hand():
    # a: 1 - (0 + 0.5) / 2, 0 - (1 + 0.5) / 2, 0.5 - (1 + 0) / 2; b: 10 - 30, 30 - 10
    assert leave_one_out(REWARDS, GROUPS) == pytest.approx([0.75, -20.0, -0.75, 20.0, 0.0])


def test_batch_mean_by_hand():
    # mean 1, sample std of 0, 2, 0, 2 is sqrt(4 / 3); whose group is whose does not matter
    a = 1 / (math.sqrt(4 / 3) + 1e-6)
    for groups in (["a", "a", "b", "b"], ["a", "b", "c", "d"]):
        assert batch_mean([0, 2, 0, 2], groups) == pytest.approx([-a, a, -a, a])


@pytest.mark.parametrize("name", ["group_norm", "group_mean", "leave_one_out"])
def test_equal_rewards_and_groups_of_one_give_exactly_zero(name):
    # 0.1 + 0.2 is not 0.3: the mean of three of them is off by rounding, which a division by a tiny std would blow up
    equal = 0.1 + 0.2
    out = ADVANTAGES[name]([equal, equal, equal, 7.0, 1.0, 0.0], ["a", "a", "a", "one", "b", "b"])
    assert out[:4].tolist() == [0.0, 0.0, 0.0, 0.0]
    assert out[4] > 0 > out[5]


@pytest.mark.parametrize("name", sorted(ADVANTAGES))
def test_empty_batch(name):
    assert ADVANTAGES[name]([], []).shape == (0,)


rewards_lists = st.lists(
    st.tuples(st.floats(-100, 100).map(lambda x: round(x, 2)), st.sampled_from("abc")), min_size=1, max_size=12
)


@settings(max_examples=50, deadline=None)
@given(rewards_lists, st.randoms())
def test_sum_to_zero_in_each_group_and_follow_a_permutation(batch, random):
    rewards, groups = [r for r, _ in batch], [g for _, g in batch]
    order = list(range(len(batch)))
    random.shuffle(order)
    for name in ("group_norm", "group_mean", "leave_one_out"):
        out = ADVANTAGES[name](rewards, groups)
        shuffled = ADVANTAGES[name]([rewards[i] for i in order], [groups[i] for i in order])
        assert shuffled == pytest.approx(out[order], abs=1e-9)
        for g in set(groups):
            assert out[np.array(groups) == g].sum() == pytest.approx(0.0, abs=1e-6)


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="2 rewards but 1 group"):
        group_mean([1.0, 2.0], ["a"])
    with pytest.raises(ValueError, match=r"reward 1 .* finite"):
        group_mean([1.0, math.nan], ["a", "a"])
