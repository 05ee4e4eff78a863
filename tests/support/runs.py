"""Whole training runs of a few seconds in this process: a tiny model in a tiny world, and a watch that remembers."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agentrl.compose import compose
from agentrl.live import PlainWatch
from agentrl.run_files import read_metrics

SHORT_ENV = Path(__file__).resolve().parent / "short_env.py"

SMALL = [
    "model=tiny",
    "trainer.prompts_per_step=2",
    "trainer.samples_per_prompt=3",
    "trainer.lr=1e-3",
    "sampling.max_new_tokens=5",
    "sampling.max_episode_tokens=200",
    "engine.max_context=256",
    "engine.slots=8",
    "backend.threads=1",
    "checkpoint.every=2",
    "eval.tasks=0",
    "log.tensorboard=false",
    "log.report=false",
]


class Silent(PlainWatch):
    """Remembers what was said; `after` steps it sends this process signals."""

    def __init__(self, *, after: int = 0, times: int = 1, number: int = signal.SIGINT) -> None:
        super().__init__()
        self.said: list[str] = []
        self._after, self._times, self._number = after, times, number

    def note(self, text: str) -> None:
        self.said.append(text)

    def step(self, row: Mapping[str, Any]) -> None:
        super().step(row)
        if row["step"] == self._after:
            for _ in range(self._times):
                os.kill(os.getpid(), self._number)


def small(out: Path, *more: str, env: str = f"{SHORT_ENV}:TwoTurns") -> Any:
    return compose([f"env={env}", *SMALL, f"out={out}", *more])


def steps_of(run: Path) -> list[int]:
    return [row["step"] for row in read_metrics(run / "metrics.jsonl")]


def episode_records(run: Path) -> list[dict[str, Any]]:
    """All lines of the episodes file, in the order in which they were written."""
    return [json.loads(line)["record"] for line in (run / "episodes" / "episodes.jsonl").read_text().splitlines()]


def episode_keys(run: Path) -> list[tuple[int, int]]:
    """(group, sibling) of each of them."""
    return [(record["number"], record["index"]) for record in episode_records(run)]


def sampled_ids(run: Path) -> dict[tuple[int, int], Any]:
    """(group, sibling) -> the ids of its transcripts, segment by segment."""
    ids = [[s["ids"] for t in record["episode"]["transcripts"] for s in t] for record in episode_records(run)]
    return dict(zip(episode_keys(run), ids, strict=True))
