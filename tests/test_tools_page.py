"""docs/tools.md and its example: every block runs, every table says what is there."""

from __future__ import annotations

import asyncio
import inspect
import random
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

import agentrl as rl
from agentrl import registry
from agentrl.cli import main
from agentrl.messages import ToolCall
from agentrl.tool import FunctionTool, Limits, ToolResult
from agentrl.toolbox import toolbox
from tests.support import chromium
from tests.support.playing import played

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "tools.md").read_text().partition("\n## How calls are written")[0]
"""Without its last part, which the parsers' tests hold."""


@pytest.fixture
def names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the page's Python blocks define, in a folder that holds what they name."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (tmp_path / "facts.jsonl").write_text('{"text": "Bern is a city."}')
    monkeypatch.chdir(tmp_path)
    found: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(compile(block, "docs/tools.md", "exec"), found)
    return found


def call(env: rl.Env, *calls: tuple[str, dict[str, Any]]) -> list[ToolResult]:
    async def work() -> list[ToolResult]:
        box = toolbox(env)
        asked = [ToolCall(id=str(i), name=name, arguments=arguments) for i, (name, arguments) in enumerate(calls)]
        answers = await box.run(asked, {"env": env, "sandbox": None})
        await box.aclose()
        return [result for _, result in answers]

    return asyncio.run(work())


def texts(env: rl.Env, *calls: tuple[str, dict[str, Any]]) -> list[str]:
    return [result.text for result in call(env, *calls)]


def test_what_may_stand_in_tools(names: dict[str, Any]) -> None:
    env = names["Everything"]()
    assert [spec.name for spec in toolbox(env).specs] == ["calculator", "shell", "search", "word_count", "hint"]
    calls = [
        ("word_count", {"text": "a b c"}),
        ("hint", {}),
        ("search", {"query": "Bern"}),
        ("calculator", {"expression": "2*3"}),
    ]
    assert texts(env, *calls) == ["3", "Look it up.", "[1] 1\nBern is a city.", "6"]


def test_a_function_and_what_a_model_sees_of_its_mistakes(names: dict[str, Any]) -> None:
    tool = FunctionTool(names["weather"])
    assert (tool.spec.timeout, tool.spec.retries, tool.spec.parallel) == (10, 2, True)
    assert tool.spec.parameters["properties"]["days"]["description"] == "how many days, 1 to 7"
    assert asyncio.run(tool({"city": "Bern", "days": "2"}, {})).text == '{"city": "Bern", "rain": [false, false]}'
    assert asyncio.run(tool({"city": "Oz"}, {})).text == "Error: there is no city 'Oz'; there is Bern"


def test_the_answers_of_the_table_are_those_that_are_given(names: dict[str, Any]) -> None:
    env = names["Everything"]()
    unknown, wrong = texts(env, ("serch", {}), ("search", {"q": "tea"}))
    assert f"`{unknown}`" in PAGE
    assert f"`{wrong}`" in PAGE


def test_state_is_an_episodes_own(names: dict[str, Any]) -> None:
    env = names["Remembers"]()
    assert texts(env, ("note", {"line": "a"}), ("read", {})) == ["2 lines left", "a"]
    assert texts(names["Remembers"](), ("read", {})) == ["[no output]"]
    with pytest.raises(rl.UsageError, match="pages must be at least 1"):
        names["Notes"].prepare(pages=0)


def test_a_tool_ends_the_episode(names: dict[str, Any]) -> None:
    episode = asyncio.run(played(names["Auction"](), '<call>{"name": "sell", "arguments": {}}</call>'))
    assert episode.outcome is rl.Outcome.TERMINATED
    assert 1 / 9 <= episode.reward <= 1


def test_the_server_of_the_page_answers(names: dict[str, Any]) -> None:
    assert texts(names["Exchange"](), ("rate", {"currency": "krona"})) == ["7"]


def test_a_schema_is_a_tool(names: dict[str, Any]) -> None:
    booked, wrong = texts(names["Travel"](), ("book_flight", {"to": "Bern"}), ("book_flight", {"to": "Bern", "class": "first"}))
    assert booked == "booked: {'to': 'Bern'}"
    assert "class: 'first' is not one of ['economy', 'business']" in wrong


def test_the_table_of_bundled_tools_is_complete() -> None:
    part = PAGE[PAGE.index("## Bundled") : PAGE.index("## Writing one")]
    rows = [line.split("|")[1:-1] for line in part.splitlines() if line.startswith("| `")]
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row[0])} == set(registry.BUNDLED["tool"])
    for head, tools, needs, settings in rows:
        (name, *several) = re.findall(r"`(\w+)`", head)
        if several:
            continue
        if name == "browser":
            chromium.needed()
        env = rl.Env()
        env.tools, env.sandbox = [name], rl.SandboxSpec()
        box = toolbox(env)
        assert {spec.name for spec in box.specs} == set(re.findall(r"`(\w+)[(`]", tools)), name
        assert ("sandbox" in needs) == any("sandbox" in box.asks(spec.name) for spec in box.specs), name
        found = registry.find("tool", name)
        taken = set(inspect.signature(found).parameters) - {"env", "sandbox"} if inspect.isclass(found) else set()
        assert set(re.findall(r"`(\w+)`", settings)) == taken, name


def test_the_table_of_limits_is_that_of_the_decorator() -> None:
    rows = re.findall(
        r"^\| `(\w+)` \| `?(.*?)`? \| ", PAGE[PAGE.index("## Writing one") : PAGE.index("## State")], re.MULTILINE
    )
    defaults = {name: str(getattr(Limits(), name)) for name, _ in rows if name != "name"}
    assert {name: default.removesuffix(".0") for name, default in defaults.items()} == dict(rows[:-1])
    assert {name for name, _ in rows} == set(Limits.__dataclass_fields__)


def test_the_commands_of_the_page_run(names: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    (commands,) = re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL)
    for line in commands.splitlines():
        words = shlex.split(line)[1:]
        assert main([*words, *(["--sandbox", "scripted"] if "files" in words else [])]) == 0, line
    assert capsys.readouterr().out.endswith("7\n")


def test_the_example_is_server_and_environment_in_one() -> None:
    env = registry.find("env", f"{ROOT}/examples/mcp_tool.py:Exchange")()
    env.rng = random.Random(0)
    prompt = env.reset(rl.Task(id="t"))
    assert f"{env.amount} {env.currency}" in prompt
    rate = int(texts(env, ("rate", {"currency": env.currency}))[0])
    assert env.step(rl.Action(text=str(env.amount * rate))).reward == 1.0
    assert env.step(rl.Action(text="0")).reward == 0.0
    assert "there are dinar, krona" in texts(env, ("rate", {"currency": "gold"}))[0]
