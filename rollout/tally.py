"""What is counted while playing: episodes, tokens, failures, waits. Read and set back once a step."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Sequence

from agentrl.episode import Episode, EpisodeGroup, RolloutError, as_cause

COUNTERS = (
    "episodes",
    "groups",
    "retried",
    "sampled_tokens",
    "turns",
    "tool_calls",
    "tool_errors",
    "parse_errors",
    "sandbox_calls",
    "aborted",
    "truncated",
    "dropped",
    "wait_s",
)
"""Always reported, also when 0: a tool that is never called, or a grader that never runs, must be seen."""


class Tally:
    """Counters, and means over the episodes that are not aborted.

    `aborted/<outcome>`, `truncated/<outcome>` and `dropped/<reason>` add up to the number without a slash.
    """

    def __init__(self) -> None:
        self._counts: defaultdict[str, float] = defaultdict(float)
        self._values: defaultdict[str, list[float]] = defaultdict(list)
        self._ages: Counter[int] = Counter()  # updates since it was sampled -> tokens

    def add(self, name: str, value: float = 1.0) -> None:
        self._counts[name] += value

    def episode(self, episode: Episode, *, final: bool) -> None:
        """One that ended. Those that are played again count as aborted and retried, not as episodes."""
        self.add("episodes" if final else "retried")
        self.add("sampled_tokens", sum(t.sampled_length for t in episode.transcripts))
        self.add("turns", len(episode.turns))
        self.add("tool_calls", sum(turn.tool_calls for turn in episode.turns))
        self.add("tool_errors", sum(turn.tool_errors for turn in episode.turns))
        self.add("parse_errors", sum(bool(turn.parse_error) for turn in episode.turns))
        self.add("sandbox_calls", episode.metrics.get("sandbox_calls", 0.0))
        if episode.outcome.is_aborted:
            self._reason("aborted", episode.outcome.value)
            return
        if episode.outcome.is_truncated:
            self._reason("truncated", episode.outcome.value)
        self._values["reward"].append(episode.reward)
        self._values["episode_s"].append(episode.wall_s)
        for name, value in episode.rewards.items():
            self._values[f"reward/{name}"].append(value)
        for name, value in episode.metrics.items():
            self._values[f"metric/{name}"].append(value)

    def dropped(self, reason: str) -> None:
        """A group that will not be trained."""
        self._reason("dropped", reason)

    def handed(self, groups: Sequence[EpisodeGroup], version: int) -> None:
        """A batch goes to the trainer, which is at `version`: how old are its tokens?"""
        self.add("groups", len(groups))
        for group in groups:
            for episode in group.usable:
                self._ages.update(max(0, version - v) for t in episode.transcripts for v in t.versions if v >= 0)

    def drain(self) -> dict[str, float]:
        """All since the last call."""
        counts, self._counts = self._counts, defaultdict(float)
        means, self._values = self._values, defaultdict(list)
        ages, self._ages = self._ages, Counter()
        out = {**dict.fromkeys(COUNTERS, 0.0), **counts}
        for name, values in means.items():
            out[name if "/" in name else f"{name}_mean"] = statistics.fmean(values)
        if "reward" in means:
            out["reward_std"] = statistics.pstdev(means["reward"])
        out["staleness_mean"] = sum(age * tokens for age, tokens in ages.items()) / max(1, ages.total())
        out["staleness_max"] = float(max(ages, default=0))
        return out

    def _reason(self, name: str, reason: str) -> None:
        self.add(name)
        self.add(f"{name}/{reason}")


class AbortRate:
    """Stops a run in which too many episodes break: what is left of them would be a biased sample."""

    def __init__(self, most: float) -> None:
        self._most = most
        self._episodes = 0
        self._outcomes: Counter[str] = Counter()
        self._reasons: Counter[str] = Counter()
        self._examples: dict[str, Episode] = {}  # one of each reason

    def note(self, episode: Episode) -> None:
        self._episodes += 1
        if episode.outcome.is_aborted:
            self._outcomes[episode.outcome.value] += 1
            self._reasons[episode.reason] += 1
            self._examples[episode.reason] = episode

    def check(self, at_least: int, *, then_reset: bool = False) -> None:
        """Raises RolloutError when the share is too high. Fewer than `at_least` episodes say nothing, and are kept."""
        if self._episodes < at_least:
            return
        aborted = self._outcomes.total()
        if aborted > self._most * self._episodes:
            reason, count = self._reasons.most_common(1)[0]  # one fault is behind nearly all of them, as a rule
            share = "each" if count == aborted else f"{count} of them"
            counts = ", ".join(f"{count} {outcome}" for outcome, count in self._outcomes.most_common())
            raise RolloutError(
                f"{aborted} of {self._episodes} episodes of this step were aborted ({counts}), more than "
                f"max_abort_rate={self._most:g}; {share} with {reason}"
            ) from as_cause(self._examples[reason])
        if then_reset:
            self._episodes = 0
            self._outcomes.clear()
            self._reasons.clear()
            self._examples.clear()
