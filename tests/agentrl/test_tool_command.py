"""`agentrl tool`: what it lists, tells and calls, and how it answers mistakes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agentrl import registry
from agentrl.cli import main
from tests.support import chromium

OWN = '''
import agentrl as rl

def double(x: int = 2) -> int:
    """Doubles."""
    return 2 * x

class Notes:
    """Keeps lines."""

    def __init__(self, mark: str = "-") -> None:
        self.mark = mark

    @rl.tool(parallel=True)
    def note(self, line: str) -> str:
        """Keeps a line.

        Args:
            line: what is kept
        """
        return f"{self.mark} {line}"

    @rl.tool
    def picture(self) -> rl.Image:
        """Draws."""
        return rl.Image(png=b"", sha256="", width=2, height=3)
'''


@pytest.fixture
def own(tmp_path: Path) -> str:
    file = tmp_path / "own.py"
    file.write_text(OWN)
    return str(file)


def out(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    assert main(["tool", *words]) == code
    captured = capsys.readouterr()
    return captured.err if code == 2 else captured.out


def test_every_registered_tool_is_listed_with_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    lines = out(capsys, "list").splitlines()
    assert [line.split()[0] for line in lines[: len(registry.BUNDLED["tool"])]] == sorted(registry.BUNDLED["tool"])
    assert not [line for line in lines if "no description" in line or "cannot be loaded" in line]


def test_one_that_cannot_be_loaded_says_so_in_the_list(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(registry.BUNDLED["tool"], "broken", "agentrl.no_such_module:x")
    assert "broken       cannot be loaded: " in out(capsys, "list")


def test_what_a_model_is_told(capsys: pytest.CaptureFixture[str], own: str) -> None:
    assert out(capsys, "info", f"{own}:Notes") == (
        "Keeps lines.\n\nsettings: mark='-'\n\nnote(line: string)\n  Keeps a line.\n  line: what is kept\n"
        "  [30 s, 4000 characters, may run beside others]\n\npicture()\n  Draws.\n  [30 s, 4000 characters]\n\n"
    )
    assert out(capsys, "info", f"{own}:double").startswith("double(x: integer = 2)\n  Doubles.\n")
    (schema,) = json.loads(out(capsys, "info", "calculator", "--json"))
    assert schema["function"]["parameters"]["required"] == ["expression"]


@pytest.mark.parametrize("name", sorted(registry.BUNDLED["tool"]))
def test_every_bundled_tool_can_be_described(capsys: pytest.CaptureFixture[str], name: str) -> None:
    if name == "browser":
        chromium.needed()
    assert len(out(capsys, "info", name)) > 50


def test_calls(capsys: pytest.CaptureFixture[str], own: str) -> None:
    assert out(capsys, "call", "calculator", '{"expression": "6 * 7"}') == "42\n"
    assert out(capsys, "call", f"{own}:double") == "4\n"
    assert out(capsys, "call", f"{own}:Notes", '{"line": "a"}', "--tool", "note", "--option", "mark=*") == "* a\n"
    assert out(capsys, "call", f"{own}:Notes", "--tool", "picture") == "[image, 2 x 3]\n"
    assert out(capsys, "call", "calculator", '{"expression": "1/0"}', code=1) == "Error: 1 / 0 divides by zero\n"
    assert "'expression' is missing" in out(capsys, "call", "calculator", code=1)


def test_a_tool_that_needs_a_sandbox_gets_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert out(capsys, "call", "python", '{"code": "print(1 + 1)"}', "--sandbox", "scripted") == "[no output]\n"
    assert "did you mean 'docker'" in out(capsys, "call", "python", "--sandbox", "dokcer", code=2)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["lst"], "there is no 'agentrl tool lst'; did you mean 'list'?"),
        (["info"], "agentrl tool info needs a name; "),
        (["info", "calcualtor"], "did you mean 'calculator'"),
        (["call", "calculator", "{"], "the arguments are no JSON: "),
        (["call", "calculator", "[1]"], "the arguments must be a JSON object"),
        (["call", "files", "{}"], "say which with --tool: create_file, insert_in_file, replace_in_file, view_file"),
        (["call", "files", "{}", "--tool", "view"], "there is no tool 'view'; did you mean 'view_file'"),
        (["call", "search", "{}", "--option", "corpsu=a"], "Search has no setting 'corpsu'; did you mean 'corpus'"),
        (["call", "mcp"], "an MCP server needs a command or a url"),
        (["info", "--mcp", "true", "--option", "shard=True"], "mcp has no setting 'shard'; did you mean 'shared'"),
        (["info", "--mcp", "no-such-program"], "the MCP server 'no-such-program' cannot be started"),
    ],
)
def test_mistakes_are_one_line(capsys: pytest.CaptureFixture[str], words: list[str], told: str) -> None:
    error = out(capsys, *words, code=2)
    assert told in error
    assert error.count("\n") == 1


def test_a_tool_that_breaks_is_shown_with_its_place(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("def bad() -> int:\n    'Divides.'\n    return 1 / 0\n")
    assert main(["tool", "call", f"{tmp_path}/bad.py:bad"]) == 1
    error = capsys.readouterr().err
    assert 'bad.py", line 3, in bad' in error
    assert error.endswith("agentrl: the run failed: tool bad raised ZeroDivisionError: division by zero\n")


def test_a_servers_tools(capsys: pytest.CaptureFixture[str]) -> None:
    server = f"python -P {Path(__file__).resolve().parents[1]}/support/mcp_server.py"
    assert "add(a: integer, b: integer = 1)\n  Adds two whole numbers." in out(capsys, "info", "--mcp", server)
    assert out(capsys, "info", "recall", "--mcp", server).startswith("recall()\n")
    assert out(capsys, "call", "add", '{"a": 2}', "--mcp", server) == "3\n"
    assert "did you mean 'add'" in out(capsys, "call", "ad", "--mcp", server, code=2)
