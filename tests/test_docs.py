"""What the documentation says of config keys is true; and the check that holds it would catch an untruth."""

from __future__ import annotations

import asyncio
import importlib.util
import random
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import fields
from inspect import signature
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from agentrl.cli import main
from agentrl.config import EnvConfig
from agentrl.engine import Sampling
from agentrl.episode import Episode
from agentrl.messages import Action
from agentrl.person import Person, PlainRenderer, script
from agentrl.rollout.limits import Limits
from agentrl.rollout.loop import play
from agentrl.sandbox import Call, Exec, Sandbox, Status
from agentrl.task import Task
from agentrl.tool import FunctionTool
from agentrl.world import build
from agentrl.wrappers import WRAPPERS

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
    for block in _blocks(page, "python"):
        exec(compile(block, page, "exec"), names)
    return names


def _blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)


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

    tasks = names["Riddles"].tasks(count=3)
    riddle = names["Riddles"]()
    assert _begin(riddle, tasks[1]) == "What is 1 + 1?"
    assert riddle.step(Action(text=names["gold"](tasks[1], random.Random(0))([]))).reward == 1.0
    assert riddle.step(Action(text="1")).reward == 0.0

    source = names["Adds"].tasks(digits=1, seed=3)
    assert source.get(4) == source.get(4) != source.get(5)
    assert source.held_out(2) == names["Adds"].tasks(seed=4, digits=1).held_out(2)
    sums = names["Adds"]()
    assert _begin(sums, source.get(4)).startswith("What is ")
    assert sums.step(Action(text=source.get(4).secret["answer"])).reward == 1.0


def _played(cls: Any, answers: Mapping[str, Sequence[str]]) -> Episode:
    """By `main` and the others, each saying its own lines."""
    renderer = PlainRenderer()
    main, *others = (script("\n---\n".join(lines)) for lines in answers.values())
    person = Person(main, renderer, dict(zip(list(answers)[1:], others, strict=True)))
    limits = Limits(max_new_tokens=999, max_episode_tokens=9999, episode_timeout=60.0, turn_timeout=60.0)
    task = Task(id="t")
    return asyncio.run(play(cls(), person, renderer, task, seed=0, sampling=Sampling(), limits=limits))


def test_the_agents_of_the_guide_talk() -> None:
    names = _code("docs/environments.md")
    sold = _played(names["Haggle"], {"main": ["Ninety", "90", "20"]})
    assert [m.text for m in sold.messages][1::2][:2] == ["A customer comes in.", "Your answer must hold a whole number."]
    assert (sold.messages[-1].text, [side.name for side in sold.others]) == ("Sold.", ["customer"])
    assert 20 / 80 <= sold.reward <= 1.0
    bids = _played(names["HigherWins"], {"main": ["7"], "right": ["11"]})
    assert (bids.reward, bids.others[0].reward) == (1.0, 0.0)


def test_the_wrappers_of_the_guide_wrap_and_are_all_named() -> None:
    page = (ROOT / "docs" / "environments.md").read_text()
    table = page[page.index("## Wrappers") : page.index("## gymnasium")]
    for name, wrapper in WRAPPERS.items():
        told = re.search(rf"\| `{name}\((.*?)\)` \|", table)
        assert told is not None, name
        assert [p.partition("=")[0] for p in re.split(r", (?=\w+(?:=|$))", told[1])] == list(signature(wrapper).parameters)[1:]
    strict = _code("docs/environments.md")["Strict"]
    assert (strict.max_turns, strict.history_window) == (1, 1)
    assert _played(strict, {"main": ["99"]}).rewards == {"format": 0.2}


def test_gymnasium_both_ways_as_in_the_guide() -> None:
    names = _code("docs/environments.md")
    lake = _played(names["Lake"], {"main": ["down", "down", "right", "right", "down", "right"]})
    assert (lake.reward, lake.messages[0].text.startswith("Walk to G")) == (1.0, True)
    outcome, reward = names["guesses"](seed=1)
    assert (outcome, reward) in (("terminated", 1.0), ("max_turns", 0.0))
    assert names["total"](lambda seen: "5") == names["total"](lambda seen: "5") < 40


def test_the_program_of_the_guide_is_run_and_its_output_goes_back() -> None:
    given = [Exec(status=Status.ERROR, exit_code=1, stderr="NameError"), Exec(status=Status.OK, stdout="rat\n")]

    class Own:
        async def python(self, code: str, *, timeout: float) -> Exec:
            assert (code, timeout) == ("print(1)", 2.0)
            return given.pop(0)

    env = _code("docs/environments.md")["Backwards"]()
    _begin(env, Task(id="t"))
    env.word, env.sandbox = "tar", Own()
    answer = Action(text="```python\nprint(1)\n```")
    assert asyncio.run(env.step(answer)) == "NameError"
    assert asyncio.run(env.step(answer)).reward == 1.0


def test_the_guide_names_what_a_sandbox_offers() -> None:
    page = (ROOT / "docs" / "environments.md").read_text()
    part = page[page.index("## The sandbox") : page.index("## Tasks")]
    calls = re.findall(r"`(\w+)\(([^)`]*)\)`", "".join(re.findall(r"^\|.*\|$", part, re.MULTILINE)))
    for name, parameters in calls:
        real = signature(getattr(Sandbox, name)).parameters
        assert [p.partition("=")[0].strip() for p in parameters.split(",") if p] == [n for n in real if n != "self"], name
    offered = {name for name, thing in vars(Sandbox).items() if not name.startswith("_") and callable(thing)}
    assert {name for name, _ in calls} == offered - {"aclose"}
    for record in (Exec, Call):
        assert all(f"`{field.name}`" in part for field in fields(record))
    assert all(f"`{status.name}`" in part for status in Status if status is not Status.LOST)


def test_the_task_file_of_the_guide_is_read(tmp_path: Path) -> None:
    (rows,) = _blocks("docs/environments.md", "json")
    (tmp_path / "tasks.jsonl").write_text(rows)
    tasks = build(EnvConfig(id="code_sandbox", tasks={"source": str(tmp_path / "tasks.jsonl")}), seed=0).tasks
    assert tasks.get(0).public["function"] in ("double", "area")


def test_the_commands_of_the_guide_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The page's own environments in the file, its own script as the answers."""
    file = tmp_path / "mine.py"
    file.write_text("\n".join(_blocks("docs/environments.md", "python")))
    (script,) = _blocks("docs/environments.md", "text")
    (tmp_path / "answers.txt").write_text(script)
    (commands,) = _blocks("docs/environments.md", "bash")
    ran = 0
    for line in commands.splitlines():
        words = shlex.split(line, comments=True)[1:]
        words = [w.replace("path/to/file.py", str(file)).replace("answers.txt", str(tmp_path / "answers.txt")) for w in words]
        if words[0] == "play" and "--policy" not in words:
            words += ["--policy", "noop"]
        assert main([*words, *(["--dry-run"] if words[0] == "train" else [])]) == 0, line
        out = capsys.readouterr().out
        if "gold" in line:
            assert "; reward 1 (env 1)" in out
        ran += 1
    assert ran == 8


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
