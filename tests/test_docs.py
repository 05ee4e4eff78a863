"""What the documentation says of config keys is true; and the check that holds it would catch an untruth."""

from __future__ import annotations

import asyncio
import importlib.util
import random
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from agentrl.messages import Action
from agentrl.sandbox import Call, Status
from agentrl.task import Task
from agentrl.tool import FunctionTool

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


def test_a_link_to_nowhere_is_found(check_docs: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(check_docs, "ROOT", tmp_path)
    page = tmp_path / "page.md"
    page.write_text("[here](page.md#part) [there](https://example.org/x)\n[gone](docs/gone.md)\n")
    assert check_docs.dead_links(page) == ["page.md:2: docs/gone.md does not exist"]


def test_the_page_of_keys_says_what_the_config_says(check_docs: ModuleType) -> None:
    page = check_docs.config_page()
    assert "| `trainer.lr` | `1e-05` |" in page
    assert "`trainer=rloo`" in page
    assert "| `seed` | `0` |" in page


def _code(page: str) -> dict[str, Any]:
    """What the Python blocks of a page define, one after the other."""
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL):
        exec(compile(block, page, "exec"), names)
    return names


def _begin(env: Any, task: Task) -> Any:
    env.task, env.rng = task, random.Random(0)
    return env.reset(task)


def test_the_environment_of_the_readme_plays() -> None:
    env = _code("README.md")["GuessNumber"]()
    assert "between 1 and 100" in _begin(env, Task(id="t"))
    assert env.step(Action(text=str(env.secret - 1))) == "Higher."
    assert env.step(Action(text=f"<{env.secret + 1}>")) == "Lower."
    step = env.step(Action(text=f"It is {env.secret}."))
    assert (step.terminated, step.reward) == (True, 1.0)


def test_the_environments_of_the_guide_play() -> None:
    names = _code("docs/environments.md")
    letters = names["CountLetters"]()
    assert _begin(letters, Task(id="t")).startswith("How often")
    assert letters.step(Action(text=str(letters.word.count(letters.letter)))).reward == 1.0
    assert letters.step(Action(text="99")).startswith("No.")

    shop = names["Shop"]()
    _begin(shop, Task(id="t"))
    assert shop.step(Action(text=str(2 * shop.price("tea")))).reward == 1.0
    spec = FunctionTool(shop.price).spec
    assert (spec.description, spec.parameters["properties"]["item"]["description"]) == (
        "The price of one pack.",
        "what is bought",
    )

    source = names["Riddles"].tasks(count=3)
    assert source.get(4) == source.get(1)
    riddle = names["Riddles"]()
    assert _begin(riddle, source.get(1)) == "What is 1 + 1?"
    assert riddle.step(Action(text="2")).reward == 1.0


def test_the_reward_of_the_guide_compares_on_the_host() -> None:
    """Two of three calls come back sorted, one raised."""
    values = [Call(status=Status.OK, value=[1, 2, 3]), Call(status=Status.OK, value=[]), Call(status=Status.ERROR, error="x")]

    class Fresh:
        async def call_many(self, code: str, function: str, inputs: Any, *, timeout: float) -> list[Call]:
            assert (code, function, [list(given) for (given,) in inputs]) == ("code", "f", [[3, 1, 2], [], [2, 2, 1]])
            return values

    env = _code("docs/environments.md")["Sorts"]()
    env.code = "code"
    assert asyncio.run(env.sorts(Fresh())) == pytest.approx(2 / 3)
