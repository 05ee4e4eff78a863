"""The table of docs/envs.md is what the environments say of themselves and what their policies get."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from agentrl import registry
from agentrl.envs.policies import POLICIES

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
    assert BENCHMARK.row(name, 100) == ROWS[name]
