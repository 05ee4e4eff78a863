"""What episodes come to, in plain numbers: the one place where they are counted, for training, playing and evaluation alike.

A row is flat (name -> number), the same in metrics.jsonl, TensorBoard and on the terminal. It is derived from episodes
alone, so a step that is replayed after a crash gets the same numbers.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from agentrl.episode import Episode, EpisodeGroup

FULL = 1.0 - 1e-9
"""An episode passes when its reward is at least this, a rounding short of 1, where its environment has no metric `passed`."""

Z95 = 1.959964
"""Standard normal quantile of a two-sided interval of 95%."""

COUNTS = (
    "episodes",
    "aborted",
    "truncated",
    "turns",
    "answers_cut",
    "parse_errors",
    "tool_calls",
    "tool_errors",
    "sandbox_calls",
    "sampled_tokens",
)
"""Always there, also when 0: a tool that is never called, or a grader that never runs, must be seen."""


def passed(episode: Episode) -> bool:
    """Did it do the whole task? The environment's metric `passed` says so, or else a reward of 1."""
    return episode.metrics.get("passed", episode.reward) >= FULL


class Stats:
    """Takes episodes one by one. Counts are over all; means are over those that are not aborted.

    >>> stats = Stats([episode, another])            # doctest: +SKIP
    >>> stats.counts["aborted"], stats.mean("reward")   # doctest: +SKIP
    (0, 0.5)
    """

    def __init__(self, episodes: Iterable[Episode] = ()) -> None:
        self.counts: defaultdict[str, float] = defaultdict(int)
        """The names of COUNTS, and of each outcome that was met: aborted/<outcome>, truncated/<outcome>."""
        self.values: defaultdict[str, list[float]] = defaultdict(list)
        """Of each episode that is not aborted: what `row` takes the mean of."""
        for episode in episodes:
            self.add(episode)

    def add(self, episode: Episode, *, counted_as: str = "episodes") -> None:
        self.counts[counted_as] += 1
        for name, value in _counts(episode).items():
            self.counts[name] += value
        if not episode.outcome.is_aborted:
            for name, value in _values(episode).items():
                self.values[name].append(value)

    def mean(self, name: str) -> float:
        """0 when there is none."""
        return mean(self.values.get(name, ()))

    def row(self) -> dict[str, float]:
        """All counts; reward_std and the means, where an episode counts."""
        out: dict[str, float] = {**dict.fromkeys(COUNTS, 0), **self.counts}
        if "reward" in self.values:
            out["reward_std"] = deviation(self.values["reward"])
        return out | {name: mean(values) for name, values in sorted(self.values.items())}


def _counts(episode: Episode) -> dict[str, float]:
    """What adds up."""
    out: dict[str, float] = {
        "turns": len(episode.turns),
        "answers_cut": sum(turn.answer_cut for turn in episode.turns),
        "parse_errors": sum(bool(turn.parse_error) for turn in episode.turns),
        "tool_calls": sum(turn.tool_calls for turn in episode.turns),
        "tool_errors": sum(turn.tool_errors for turn in episode.turns),
        "sandbox_calls": episode.metrics.get("sandbox_calls", 0.0),
        "sampled_tokens": sampled(episode),
    }
    for name, holds in (("aborted", episode.outcome.is_aborted), ("truncated", episode.outcome.is_truncated)):
        if holds:
            out |= {name: 1, f"{name}/{episode.outcome}": 1}
    return out


def _values(episode: Episode) -> dict[str, float]:
    """What is averaged."""
    return {
        "reward": episode.reward,
        "pass_rate": float(passed(episode)),
        "turns_per_episode": float(len(episode.turns)),
        "tokens_per_episode": float(sampled(episode)),
        "episode_s": episode.wall_s,
        **{f"reward/{name}": value for name, value in episode.rewards.items()},
        **{f"metric/{name}": value for name, value in episode.metrics.items()},
        **{f"agent/{side.name}/reward": side.reward for side in episode.others if side.trained},
    }


def of_groups(groups: Iterable[EpisodeGroup]) -> dict[str, float]:
    """The row of a step, as in `Stats.row`, and of its groups: `equal_groups` is the share of those whose rewards are all
    equal, which a group baseline learns nothing from.

    >>> sorted(of_groups([]))[:3]
    ['aborted', 'answers_cut', 'episodes']
    """
    groups = list(groups)
    out = {"groups": float(len(groups)), **Stats(e for group in groups for e in group.episodes).row()}
    if "reward" in out:
        out["equal_groups"] = mean([float(len({e.all_rewards for e in group.usable}) <= 1) for group in groups])
    return out


def sampled(episode: Episode) -> int:
    """Tokens that were sampled in it."""
    return sum(transcript.sampled_length for transcript in episode.sampled)


def aborted(row: Mapping[str, float]) -> int:
    """Episodes that broke in a step's time, those included that were played again or dropped, and never reached the batch.

    >>> aborted({"aborted": 0, "rollout/aborted": 2.0}), aborted({"aborted": 1}), aborted({})
    (2, 1, 0)
    """
    return int(row.get("rollout/aborted", row.get("aborted", 0)))


def wilson(successes: int, count: int) -> tuple[float, float]:
    """The 95% interval of a share (Wilson 1927): sound for few trials and for shares near 0 and 1.

    >>> [round(x, 3) for x in wilson(5, 10)]
    [0.237, 0.763]
    """
    if count == 0:
        return 0.0, 1.0
    share, z2 = successes / count, Z95**2
    center = (share + z2 / (2 * count)) / (1 + z2 / count)
    half = Z95 * math.sqrt(share * (1 - share) / count + z2 / (4 * count**2)) / (1 + z2 / count)
    return max(0.0, center - half), min(1.0, center + half)


def mean(values: Sequence[float]) -> float:
    """0 for none."""
    return sum(values) / len(values) if values else 0.0


def deviation(values: Sequence[float]) -> float:
    """Population standard deviation."""
    center = mean(values)
    return math.sqrt(mean([(value - center) ** 2 for value in values]))
