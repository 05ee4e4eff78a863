"""The process's own random generators belong to others: a run neither seeds them nor draws from them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from agentrl import run as runs
from tests.support.runs import Silent, sampled_ids, small

DISTURBING = """
import random

import numpy as np
import torch

from tests.support.short_env import TwoTurns as Quiet


class TwoTurns(Quiet):
    def reset(self, task):
        disturb()
        return super().reset(task)

    def step(self, action):
        disturb()
        return super().step(action)


def disturb():
    for seed, draw in ((random.seed, random.random), (np.random.seed, np.random.rand), (torch.manual_seed, torch.seed)):
        draw()
        seed(3)
"""


def seed_everything(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def states() -> list[Any]:
    """Of the generators that belong to the whole process."""
    kind, keys, *rest = np.random.get_state()
    return [random.getstate(), (kind, keys.tolist(), *rest), torch.get_rng_state().tolist()]


@pytest.fixture(autouse=True)
def given_back() -> Any:
    """Other tests go on with the generators as they were."""
    python, numpy, pytorch = random.getstate(), np.random.get_state(), torch.get_rng_state()
    yield
    random.setstate(python)
    np.random.set_state(numpy)
    torch.set_rng_state(pytorch)


def trained(out: Path, name: str, *more: str, **env: str) -> tuple[dict[tuple[int, int], Any], dict[str, torch.Tensor]]:
    """(sampled ids, weights) of a run of three steps with minibatches in an order that is drawn."""
    keys = ["trainer.steps=3", "trainer.minibatches=2", "trainer.epochs=2", *more]
    run = runs.train(small(out, f"run={name}", *keys, **env), watch=Silent()).folder
    return sampled_ids(run), load_file(run / "checkpoints" / "last" / "model.safetensors")


def assert_same(ours: Any, theirs: Any) -> None:
    assert ours[0] == theirs[0]
    for name, tensor in theirs[1].items():
        # Which sequences share a matrix product depends on the moment, and its sums round accordingly.
        assert (ours[1][name] - tensor).abs().max() < 1e-4, name


def test_a_run_leaves_the_global_generators_as_they_were_and_does_not_depend_on_them(tmp_path: Path) -> None:
    seed_everything(1)
    before = states()
    first = trained(tmp_path, "first")
    assert states() == before
    seed_everything(2)
    assert_same(trained(tmp_path, "second"), first)
    assert trained(tmp_path, "third", "seed=1")[0] != first[0]


def test_an_environment_that_seeds_and_draws_globally_disturbs_nobody(tmp_path: Path) -> None:
    file = tmp_path / "disturbing.py"
    file.write_text(DISTURBING)
    assert_same(trained(tmp_path, "disturbed", env=f"{file}:TwoTurns"), trained(tmp_path, "quiet"))
