"""Evaluations of a run: their scores, and the episodes behind them, in `evals/` of its folder.

A score is worked out from the episodes, so one file for each evaluation is all there is to keep.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from agentrl.episode import Episode, from_json, to_json
from agentrl.record import Z95, deviation, mean, passed, wilson


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """An evaluation on held-out tasks. Intervals are of 95%.

    >>> Score(step=0, episodes=10, passed=5, reward=0.5, reward_half=0.31, aborted=0).pass_interval[0] > 0.23
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
    aborted: int

    @property
    def pass_rate(self) -> float:
        return self.passed / self.episodes if self.episodes else 0.0

    @property
    def pass_interval(self) -> tuple[float, float]:
        """Wilson's."""
        return wilson(self.passed, self.episodes)

    def metrics(self) -> dict[str, float]:
        """For a step's row."""
        low, high = self.pass_interval
        return {
            "eval/pass_rate": self.pass_rate,
            "eval/pass_rate_low": low,
            "eval/pass_rate_high": high,
            "eval/reward": self.reward,
            "eval/episodes": float(self.episodes),
            "eval/aborted": float(self.aborted),
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
    usable = [e for e in episodes if not e.outcome.is_aborted]
    rewards = [e.reward for e in usable]
    spread = deviation(rewards) * (len(rewards) / (len(rewards) - 1)) ** 0.5 if len(rewards) > 1 else 0.0
    return Score(
        step=step,
        episodes=len(usable),
        passed=sum(map(passed, usable)),
        reward=mean(rewards),
        reward_half=Z95 * spread / len(rewards) ** 0.5 if rewards else 0.0,
        aborted=len(episodes) - len(usable),
    )


class Evaluations:
    """The evaluations of one run, by the step they were done after.

    >>> evaluations = Evaluations(Path("runs/try/evals"))        # doctest: +SKIP
    >>> evaluations.add(0, episodes).pass_rate                   # doctest: +SKIP
    0.31
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._scores = {step: score(step, self.episodes(step)) for step in self._steps()}

    @property
    def scores(self) -> list[Score]:
        """In the order of steps."""
        return [self._scores[step] for step in sorted(self._scores)]

    def get(self, step: int) -> Score | None:
        return self._scores.get(step)

    def add(self, step: int, episodes: Sequence[Episode]) -> Score:
        """Keeps an evaluation; on disk, whole or not at all, when this returns."""
        self._folder.mkdir(parents=True, exist_ok=True)
        file = self._file(step)
        aside = file.with_name(f".{file.name}")
        with open(aside, "w") as out:
            out.writelines(json.dumps(to_json(episode)) + "\n" for episode in episodes)
            out.flush()
            os.fsync(out.fileno())
        aside.replace(file)
        self._scores[step] = score(step, episodes)
        return self._scores[step]

    def episodes(self, step: int) -> list[Episode]:
        """As they were kept: tasks without their secret."""
        return [from_json(json.loads(line)) for line in self._file(step).read_text().splitlines()]

    def _file(self, step: int) -> Path:
        return self._folder / f"step-{step:06d}.jsonl"

    def _steps(self) -> list[int]:
        return [int(file.stem.removeprefix("step-")) for file in sorted(self._folder.glob("step-*.jsonl"))]
