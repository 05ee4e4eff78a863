"""How much better than expected each episode went: rewards and groups in, advantages out.

Pure functions of arrays, named in the config (`trainer.advantage`). They know nothing of tokens: the trainer gives every
trained token of an episode the episode's advantage. S: episodes of a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Advantage = Callable[[Sequence[float], Sequence[str]], Floats]
"""(rewards [S], groups [S]) -> advantages [S]. groups[i] names the group that episode i belongs to."""

STD_EPS = 1e-6  # keeps a nearly uniform group's advantages finite; far below any spread of real rewards


def group_norm(rewards: Sequence[float], groups: Sequence[str]) -> Floats:
    """GRPO (arXiv 2402.03300): (reward - mean of its group) / (std of its group + 1e-6).

    The std is the sample's one (divisor n - 1), as in verl and TRL. Groups whose rewards are all equal, and groups of
    one, say nothing about what was better: their advantages are exactly 0.

    >>> group_norm([1, 0, 5, 5], ["a", "a", "b", "b"]).round(3).tolist()
    [0.707, -0.707, 0.0, 0.0]
    """

    def norm(values: Floats) -> Floats:
        return (values - values.mean()) / (values.std(ddof=1) + STD_EPS)

    return _per_group(rewards, groups, norm)


def group_mean(rewards: Sequence[float], groups: Sequence[str]) -> Floats:
    """Dr. GRPO (arXiv 2503.20783): reward - mean of its group, not divided by a std, which favors too easy and too hard tasks.

    >>> group_mean([1, 0, 0, 0], ["a", "a", "a", "a"]).tolist()
    [0.75, -0.25, -0.25, -0.25]
    """
    return _per_group(rewards, groups, lambda values: values - values.mean())


def leave_one_out(rewards: Sequence[float], groups: Sequence[str]) -> Floats:
    """RLOO (arXiv 2402.14740): reward - mean of its siblings. A group of one has no siblings: 0.

    >>> leave_one_out([1, 0, 0], ["a", "a", "a"]).tolist()
    [1.0, -0.5, -0.5]
    """

    def against_siblings(values: Floats) -> Floats:
        return (values - values.mean()) * (len(values) / (len(values) - 1))

    return _per_group(rewards, groups, against_siblings)


def batch_mean(rewards: Sequence[float], groups: Sequence[str]) -> Floats:
    """REINFORCE++ (arXiv 2501.03262): (reward - mean of the batch) / (std of the batch + 1e-6); groups do not matter.

    >>> batch_mean([1, 0, 0, 1], ["a", "a", "b", "c"]).round(3).tolist()
    [0.866, -0.866, -0.866, 0.866]
    """
    return group_norm(rewards, [""] * len(groups))


def _per_group(rewards: Sequence[float], groups: Sequence[str], f: Callable[[Floats], Floats]) -> Floats:
    """`f` on each group's rewards; exactly 0 where all of them are equal (so a group of one, too)."""
    if len(rewards) != len(groups):
        raise ValueError(f"{len(rewards)} rewards but {len(groups)} group names; there must be one for each episode")
    values = np.asarray(rewards, dtype=np.float64)
    if not np.isfinite(values).all():
        raise ValueError(f"reward {int(np.flatnonzero(~np.isfinite(values))[0])} of the batch is not a finite number")
    names = np.asarray(groups, dtype=object)
    out = np.zeros(len(values))
    for name in dict.fromkeys(groups):
        members = names == name
        if values[members].min() != values[members].max():
            out[members] = f(values[members])
    return out


ADVANTAGES: dict[str, Advantage] = {
    "group_norm": group_norm,
    "group_mean": group_mean,
    "leave_one_out": leave_one_out,
    "batch_mean": batch_mean,
}
"""By the names of `trainer.advantage`."""
