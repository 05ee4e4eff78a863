"""Nothing lost: the trainer is killed with SIGKILL at twenty random moments, and the run comes out as if it had not been."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from .support.nursery import ROOT, Nursery
from .support.runs import episode_keys, sampled_ids

KILLS = 20
KILLS_IN_FLIGHT = 5
STEPS, PROMPTS, SAMPLES = 8, 2, 3

SMALL = [
    f"env={ROOT}/tests/support/short_env.py:TwoTurns",
    "model=tiny",
    f"trainer.steps={STEPS}",
    f"trainer.prompts_per_step={PROMPTS}",
    f"trainer.samples_per_prompt={SAMPLES}",
    "trainer.lr=1e-3",
    "sampling.max_new_tokens=5",
    "sampling.max_episode_tokens=200",
    "engine.max_context=256",
    "engine.slots=8",
    "backend.threads=1",
    "eval.tasks=3",
    "eval.every=4",
    "checkpoint.every=3",
    "log.tensorboard=false",
    "log.report=false",
]

SAME = ("reward", "reward_std", "episodes", "sampled_tokens", "turns", "tokens_trained", "aborted", "truncated")
"""What each step's row says of its episodes: whole numbers, or sums of the same numbers in the same order."""


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery() as started:
        yield started


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_run_that_is_killed_at_twenty_random_moments_comes_out_the_same(nursery: Nursery, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    assert nursery.start(["train", *SMALL, f"out={tmp_path}", "run=plain"], tmp_path / "plain.log").wait() == 0
    rng = random.Random(20270101)
    kills, finished = 0, 0
    while kills < KILLS:
        name = f"killed{finished}"
        kills += run_with_kills(nursery, tmp_path, name, rng, most=KILLS - kills)
        finished += 1
        assert_same(tmp_path / name, plain)
    assert kills == KILLS


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("mode", ["keep", "abort"])
def test_with_episodes_in_flight_over_updates_none_is_lost_or_trained_twice(
    nursery: Nursery, tmp_path: Path, mode: str
) -> None:
    more = [*SMALL, "rollout.staleness=2", f"rollout.mode={mode}"]
    rng = random.Random(mode)
    kills, finished = 0, 0
    while kills < KILLS_IN_FLIGHT:  # on a fast machine a run may be over before its first kill
        name = f"killed{finished}"
        kills += run_with_kills(nursery, tmp_path, name, rng, most=KILLS_IN_FLIGHT - kills, begin=more)
        finished += 1
        assert_nothing_lost_or_trained_twice(tmp_path / name)
    assert kills == KILLS_IN_FLIGHT


def assert_nothing_lost_or_trained_twice(run: Path) -> None:
    groups = [number for batch in trained(run) for number in batch]
    assert len(groups) == len(set(groups)) == STEPS * PROMPTS
    keys = Counter(episode_keys(run))
    assert max(keys.values()) == 1
    assert all((number, index) in keys for number in groups for index in range(SAMPLES))
    assert [json.loads(line)["step"] for line in (run / "metrics.jsonl").read_text().splitlines()] == list(range(1, STEPS + 1))


def run_with_kills(nursery: Nursery, out: Path, name: str, rng: random.Random, most: int, begin: Sequence[str] = SMALL) -> int:
    """One run to its end, killed at random moments, at most `most` times. Returns how often it was."""
    kills = 0
    log = out / f"{name}.log"
    while True:
        begun = (out / name).exists()
        arguments = ["train", f"resume={name}"] if begun else ["train", *begin, f"run={name}"]
        child = nursery.start([*arguments, f"out={out}"], log)
        if kills < most:
            # One in five while it starts, the others once it plays: then a few steps pass in a second.
            playing = rng.random() < 0.8 and child.says(f"{name}: tiny")
            time.sleep(rng.uniform(0.0, 1.2 if playing else 0.4))
            if child.ended() is None:
                child.kill()
            if child.wait() == -9:
                kills += 1
                continue
        code = child.wait()
        if code == 2 and "has finished" in log.read_text():  # killed after the last thing was written
            return kills
        assert code == 0, log.read_text()
        return kills


def assert_same(killed: Path, plain: Path) -> None:
    """No group lost, none trained twice, each step's episodes and the policy that came of them as in the plain run."""
    assert trained(killed) == trained(plain) == [list(range(k, k + PROMPTS)) for k in range(0, STEPS * PROMPTS, PROMPTS)]
    assert ids_of_all(killed) == ids_of_all(plain)
    rows = [json.loads(line) for line in (killed / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == list(range(1, STEPS + 1))
    for row, other in zip(rows, map(json.loads, (plain / "metrics.jsonl").read_text().splitlines()), strict=True):
        assert {key: row[key] for key in SAME if key in row} == {key: other[key] for key in SAME if key in row}
    result, other = (json.loads((run / "result.json").read_text()) for run in (killed, plain))
    assert (result["status"], result["steps"]) == ("finished", STEPS)
    assert result["scores"] == other["scores"]
    weights, expected = (load_file(run / "checkpoints" / "last" / "model.safetensors") for run in (killed, plain))
    for tensor_name, tensor in expected.items():
        # A resumed step may have had fewer sequences in one matrix product, whose sums then round otherwise.
        assert (weights[tensor_name] - tensor).abs().max() < 1e-4, tensor_name


def trained(run: Path) -> list[list[int]]:
    """The groups of each step."""
    events = [json.loads(line)["record"] for line in (run / "episodes" / "groups.jsonl").read_text().splitlines()]
    batches = [event for event in events if event["event"] == "trained"]
    assert [batch["step"] for batch in batches] == list(range(1, STEPS + 1))
    return [batch["groups"] for batch in batches]


def ids_of_all(run: Path) -> dict[tuple[int, int], Any]:
    """(group, sibling) -> the ids of its transcript. Each episode stands in the file once."""
    keys = episode_keys(run)
    assert max(Counter(keys).values()) == 1
    assert len(keys) == STEPS * PROMPTS * SAMPLES
    return sampled_ids(run)
