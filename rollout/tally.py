"""What happens while playing, set back once a step: episodes (counted by `agentrl.record`), groups, staleness, waits.

And the share of episodes that come to nothing, above which a run is stopped.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from agentrl.advice import key_for
from agentrl.episode import Episode, EpisodeGroup, Outcome, RolloutError, as_cause
from agentrl.record import Stats

COUNTERS = ("groups", "retried", "dropped", "wait_s")
"""Always reported, also when 0, as the counts of `agentrl.record` are."""


class Tally:
    """Since the last `drain`. `dropped/<reason>` add up to `dropped`."""

    def __init__(self) -> None:
        self._stats = Stats()
        self._counts: defaultdict[str, float] = defaultdict(float)
        self._ages: Counter[int] = Counter()  # updates since it was sampled -> tokens

    def add(self, name: str, value: float = 1.0) -> None:
        self._counts[name] += value

    def episode(self, episode: Episode, *, final: bool) -> None:
        """One that ended. Those that are played again count as aborted and retried, not as episodes."""
        self._stats.add(episode, counted_as="episodes" if final else "retried")

    def dropped(self, reason: str) -> None:
        """A group that will not be trained."""
        self.add("dropped")
        self.add(f"dropped/{reason}")

    def handed(self, groups: Sequence[EpisodeGroup], version: int) -> None:
        """A batch goes to the trainer, which is at `version`: how old are its tokens?"""
        self.add("groups", len(groups))
        for group in groups:
            for episode in group.usable:
                self._ages.update(max(0, version - v) for t in episode.trained for v in t.versions if v >= 0)

    def drain(self) -> dict[str, float]:
        """All since the last call."""
        stats, self._stats = self._stats, Stats()
        counts, self._counts = self._counts, defaultdict(float)
        ages, self._ages = self._ages, Counter()
        return {
            **dict.fromkeys(COUNTERS, 0.0),
            **stats.row(),
            **counts,
            "staleness_mean": sum(age * tokens for age, tokens in ages.items()) / max(1, ages.total()),
            "staleness_max": float(max(ages, default=0)),
        }


class AbortRate:
    """Stops a run in which too many episodes break: what is left of them would be a biased sample.

    One that a deadline has cut counts as broken here. Its reward counts in training, as that of any that was cut; but where
    most are, it is the machine's speed that is trained on.
    """

    def __init__(self, most: float) -> None:
        self._most = most
        self._episodes = 0
        self._outcomes: Counter[str] = Counter()
        self._reasons: Counter[str] = Counter()
        self._examples: dict[str, Episode] = {}  # one of each reason

    def note(self, episode: Episode) -> None:
        self._episodes += 1
        if episode.outcome.is_aborted or episode.outcome is Outcome.DEADLINE:
            self._outcomes[episode.outcome.value] += 1
            self._reasons[episode.reason] += 1
            self._examples[episode.reason] = episode

    def check(self, at_least: int, *, then_reset: bool = False) -> None:
        """Raises RolloutError when the share is too high. Fewer than `at_least` episodes say nothing, and are kept."""
        if self._episodes < at_least:
            return
        broken = self._outcomes.total()
        if broken > self._most * self._episodes:
            reason, count = self._reasons.most_common(1)[0]  # one fault is behind nearly all of them, as a rule
            share = "each" if count == broken else f"{count} of them"
            counts = ", ".join(f"{count} {outcome}" for outcome, count in self._outcomes.most_common())
            example = self._examples[reason]
            key = key_for(example.outcome, example.error)
            raise RolloutError(
                f"{broken} of {self._episodes} episodes of this step broke ({counts}), more than "
                f"rollout.max_abort_rate={self._most:g}; {share} with {reason}" + (f"; raise {key}" if key else "")
            ) from as_cause(example)
        if then_reset:
            self._episodes = 0
            self._outcomes.clear()
            self._reasons.clear()
            self._examples.clear()
