"""The table of docs/envs.md is what the environments say of themselves and what their policies get."""

from __future__ import annotations

import asyncio
import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from agentrl import registry
from agentrl.config import EnvConfig
from agentrl.envs.policies import POLICIES
from agentrl.world import build

ROOT = Path(__file__).resolve().parents[2]


def _benchmark() -> ModuleType:
    spec = importlib.util.spec_from_file_location("env_baselines", ROOT / "benchmarks" / "env_baselines.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


BENCHMARK = _benchmark()
ROWS = {row.split("`")[1]: row for row in BENCHMARK.table((ROOT / "docs" / "envs.md").read_text())}
PLAIN = sorted(name for name in ROWS if registry.find("env", name).sandbox is None)


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_rows_say_what_the_classes_say(name: str) -> None:
    described = " | ".join(BENCHMARK.described(name, registry.find("env", name)))
    assert ROWS[name].startswith(f"| {described} |"), "run: python benchmarks/env_baselines.py --write"


def test_what_does_not_exist_has_no_row() -> None:
    assert set(ROWS) == set(POLICIES)


@pytest.mark.slow
@pytest.mark.parametrize("name", PLAIN)
def test_figures_come_again(name: str) -> None:
    """Chance at the first level; what gold and silence get is shown for every level elsewhere."""
    world = build(EnvConfig(id=name, tasks=BENCHMARK.levels(registry.find("env", name))[0]), seed=0)
    chance = ROWS[name].split(" | ")[-2].split(" / ")[0]
    assert BENCHMARK.shown([asyncio.run(BENCHMARK.mean(name, "random", world, 100))]) == chance


def test_figures_are_one_for_each_level_or_one_for_all() -> None:
    assert BENCHMARK.shown([0.5, 0.251, 0.0]) == "0.50 / 0.25 / 0"
    assert BENCHMARK.shown([1.0, 1.0]) == "1"
    assert BENCHMARK.shown([-2.0]) == "-2"
