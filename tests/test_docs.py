"""What the documentation says of config keys is true; and the check that holds it would catch an untruth."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def check_docs() -> ModuleType:
    spec = importlib.util.spec_from_file_location("check_docs", ROOT / ".ci" / "check_docs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_page_is_true(check_docs: ModuleType) -> None:
    assert check_docs.main([]) == 0
    assert ROOT / "README.md" in check_docs.pages()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("```\nagentrl train trainer.lrr=1e-5\n```", "text:2: agentrl train"),
        ("```\nagentrl train \\\n  trainer=groo\n```", "text:2: "),
        ("`agentrl train trainer.steps=many`", "text:1: "),
        ("`.venv/bin/agentrl train envv=code_sandbox`", "text:1: "),
        ('`make train ARGS="x"` then `agentrl eval runs/x eval.taskss=2`', "text:1: "),
        ("Set `trainer.lrr`.", "text:1: trainer.lrr is no config key"),
        ("Set `trainer.lrr=3`.", "text:1: trainer.lrr is no config key"),
    ],
)
def test_an_untruth_is_found(check_docs: ModuleType, text: str, problem: str) -> None:
    found = check_docs.check(text)
    assert len(found) == 1, found
    assert found[0].startswith(problem)


@pytest.mark.parametrize(
    "text",
    [
        "`agentrl train env=code_sandbox trainer.steps=50 env.args.max_turns=2  # more steps`",
        "`agentrl train resume=<run>` and `agentrl train ...` and `agentrl train env=path/to/file.py:Name`",
        "Call `env.step()`; set `trainer.lr` or `env.args.anything=1`.",
        "```\nagentrl train env=code_sandbox | tee log x=1\n```",
    ],
)
def test_the_truth_passes(check_docs: ModuleType, text: str) -> None:
    assert check_docs.check(text) == []


def test_the_page_of_keys_says_what_the_config_says(check_docs: ModuleType) -> None:
    page = check_docs.config_page()
    assert "| `trainer.lr` | `1e-05` |" in page
    assert "`trainer=rloo`" in page
    assert "| `seed` | `0` |" in page
