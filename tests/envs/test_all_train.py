"""Every bundled environment that needs no sandbox trains: two steps of a tiny random model, with nothing broken."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentrl import registry
from agentrl import run as runs
from agentrl.run_files import read_metrics
from tests.support.runs import Silent, episode_records, small

NAMES = sorted(name for name in registry.BUNDLED["env"] if registry.find("env", name).sandbox is None)
ROOM = ["sampling.max_episode_tokens=900", "engine.max_context=960", "sampling.max_new_tokens=6", "env.args.max_turns=2"]
"""A tiny tokenizer makes many tokens of a prompt with tools in it."""


def test_there_are_some() -> None:
    assert len(NAMES) >= 9


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_two_steps(name: str, tmp_path: Path) -> None:
    resolved = small(tmp_path, "run=a", "trainer.steps=2", "trainer.samples_per_prompt=2", *ROOM, env=name)
    watch = Silent()
    result = runs.train(resolved, watch=watch)
    assert (result.status, result.steps) == ("finished", 2)
    rows = read_metrics(tmp_path / "a" / "metrics.jsonl")
    assert [row["episodes"] for row in rows] == [4, 4]
    assert [row["aborted"] for row in rows] == [0, 0]
    assert not [text for text in watch.said if "leave no room" in text]
    records = episode_records(tmp_path / "a")
    assert all(record["episode"]["outcome"] in ("terminated", "max_turns") for record in records)
    assert '"secret"' not in (tmp_path / "a" / "episodes" / "episodes.jsonl").read_text()
