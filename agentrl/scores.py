"""Evaluations of a run: their scores, and the episodes behind them, in `evals/` of its folder.

A score is worked out from the episodes, so one file for each evaluation is all there is to keep.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from agentrl.advice import commonest, example
from agentrl.episode import Episode, RolloutError, as_cause, from_json, to_json
from agentrl.errors import Damaged
from agentrl.record import Z95, Stats, deviation, mean, sampled, wilson
from agentrl.whole_write import replace_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """An evaluation on held-out tasks. Intervals are of 95%.

    >>> Score(step=0, episodes=10, passed=5, reward=0.5, reward_half=0.31, counts={"aborted": 2}).pass_interval[0] > 0.23
    True
    """

    step: int
    """Training steps that the policy had seen."""
    episodes: int
    """That count: not aborted."""
    passed: int
    reward: float
    reward_half: float
    """Half the interval of the mean reward."""
    counts: Mapping[str, float]
    """Of all episodes, as in `agentrl.record.Stats.counts`."""

    @property
    def aborted(self) -> int:
        return int(self.counts.get("aborted", 0))

    @property
    def pass_rate(self) -> float:
        return self.passed / self.episodes if self.episodes else 0.0

    @property
    def pass_interval(self) -> tuple[float, float]:
        """Wilson's. It takes episodes as independent: with several samples of a task it is too narrow."""
        return wilson(self.passed, self.episodes)

    def metrics(self) -> dict[str, float]:
        """For a step's row."""
        low, high = self.pass_interval
        counted = ("aborted", "truncated", "turns", "answers_cut", "parse_errors", "sampled_tokens")
        return {
            "eval/pass_rate": self.pass_rate,
            "eval/pass_rate_low": low,
            "eval/pass_rate_high": high,
            "eval/reward": self.reward,
            "eval/episodes": float(self.episodes),
            **{f"eval/{name}": float(self.counts.get(name, 0)) for name in counted},
        }

    def __str__(self) -> str:
        low, high = self.pass_interval
        lost = f", {self.aborted} aborted" if self.aborted else ""
        return (
            f"pass rate {100 * self.pass_rate:.1f}% [{100 * low:.1f}, {100 * high:.1f}], "
            f"reward {self.reward:.3f} ± {self.reward_half:.3f} ({self.episodes} episodes{lost})"
        )


def score(step: int, episodes: Sequence[Episode]) -> Score:
    """The score of finished evaluation episodes; aborted ones are left out and counted."""
    stats = Stats(episodes)
    rewards = stats.values["reward"]
    spread = deviation(rewards) * (len(rewards) / (len(rewards) - 1)) ** 0.5 if len(rewards) > 1 else 0.0
    return Score(
        step=step,
        episodes=len(rewards),
        passed=int(sum(stats.values["pass_rate"])),
        reward=mean(rewards),
        reward_half=Z95 * spread / len(rewards) ** 0.5 if rewards else 0.0,
        counts=dict(sorted(stats.counts.items())),
    )


def check_measured(episodes: Sequence[Episode]) -> None:
    """Raises RolloutError when they say nothing about the policy: all were aborted, or not a token was sampled in those that
    were not. That is no pass rate of 0."""
    usable = [e for e in episodes if not e.outcome.is_aborted]
    if not usable:
        text = f"all {len(episodes)} episodes of the evaluation were aborted: {commonest(episodes)}"
        raise RolloutError(text) from (as_cause(example(episodes)) if episodes else None)
    if not any(map(sampled, usable)):
        raise RolloutError(f"nothing was sampled in the {len(episodes)} episodes of the evaluation: {commonest(episodes)}")


class Evaluations:
    """The evaluations of one run, by the step they were done after.

    >>> evaluations = Evaluations(Path("runs/try/evals"))        # doctest: +SKIP
    >>> evaluations.add(0, episodes).pass_rate                   # doctest: +SKIP
    0.31
    """

    def __init__(self, folder: Path) -> None:
        """Raises Damaged."""
        self._folder = folder
        self._scores = {step: score(step, self.episodes(step)) for step in self._steps()}

    @property
    def scores(self) -> list[Score]:
        """In the order of steps."""
        return [self._scores[step] for step in sorted(self._scores)]

    def get(self, step: int) -> Score | None:
        return self._scores.get(step)

    def add(self, step: int, episodes: Sequence[Episode]) -> Score:
        """Keeps an evaluation; on disk, whole or not at all, when this returns. Raises WriteError."""
        self._folder.mkdir(parents=True, exist_ok=True)
        replace_text(self._file(step), to_lines(episodes))
        self._scores[step] = score(step, episodes)
        return self._scores[step]

    def episodes(self, step: int) -> list[Episode]:
        """As they were kept: tasks without their secret. Raises Damaged."""
        return [_read(self._file(step), n, line) for n, line in enumerate(self._file(step).read_bytes().splitlines(), 1)]

    def _file(self, step: int) -> Path:
        return self._folder / f"step-{step:06d}.jsonl"

    def _steps(self) -> list[int]:
        return [int(file.stem.removeprefix("step-")) for file in sorted(self._folder.glob("step-*.jsonl"))]


def to_lines(episodes: Sequence[Episode]) -> str:
    """One JSON object a line, without secrets."""
    return "".join(json.dumps(to_json(episode)) + "\n" for episode in episodes)


def _read(file: Path, number: int, line: bytes) -> Episode:
    try:
        return from_json(json.loads(line))
    except (ValueError, KeyError, TypeError) as error:
        raise Damaged(f"{file}, line {number}: no episode ({error}); take the file away to go on without it") from error
