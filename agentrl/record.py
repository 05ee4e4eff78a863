"""What one step's row says of its episodes: plain numbers, worked out from the groups that were trained on.

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


def passed(episode: Episode) -> bool:
    """Did it do the whole task? The environment's metric `passed` says so, or else a reward of 1."""
    return episode.metrics.get("passed", episode.reward) >= FULL


def of_groups(groups: Iterable[EpisodeGroup]) -> dict[str, float]:
    """The row of a step. Means are over episodes that are not aborted; counts are over all.

    >>> sorted(of_groups([]))[:3]
    ['aborted', 'episodes', 'groups']
    """
    groups = list(groups)
    episodes = [e for group in groups for e in group.episodes]
    usable = [e for group in groups for e in group.usable]
    out: dict[str, float] = {
        "groups": len(groups),
        "episodes": len(episodes),
        "aborted": len(episodes) - len(usable),
        "truncated": sum(e.outcome.is_truncated for e in usable),
        "tool_calls": sum(turn.tool_calls for e in episodes for turn in e.turns),
        "tool_errors": sum(turn.tool_errors for e in episodes for turn in e.turns),
        "parse_errors": sum(bool(turn.parse_error) for e in episodes for turn in e.turns),
        "sandbox_calls": sum(e.metrics.get("sandbox_calls", 0.0) for e in episodes),
        "sampled_tokens": sum(t.sampled_length for e in episodes for t in e.transcripts),
    }
    if usable:
        out |= {
            "reward": mean([e.reward for e in usable]),
            "reward_std": deviation([e.reward for e in usable]),
            "pass_rate": mean([float(passed(e)) for e in usable]),
            "turns": mean([float(len(e.turns)) for e in usable]),
            "tokens_per_episode": mean([float(sum(t.sampled_length for t in e.transcripts)) for e in usable]),
            "equal_groups": mean([float(len({e.reward for e in g.usable}) <= 1) for g in groups]),
        }
    out |= {f"reward/{name}": value for name, value in _means(e.rewards for e in usable).items()}
    return out | {f"metric/{name}": value for name, value in _means(e.metrics for e in usable).items()}


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


def _means(dicts: Iterable[Mapping[str, float]]) -> dict[str, float]:
    found: dict[str, list[float]] = defaultdict(list)
    for one in dicts:
        for name, value in one.items():
            found[name].append(value)
    return {name: mean(values) for name, values in sorted(found.items())}
