"""The shell, in a real sandbox: what is kept between calls, and what a model sees."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agentrl.registry import find
from agentrl.sandbox import SandboxLost
from agentrl.tool import FunctionTool, ToolResult
from agentrl.tools.sandboxes.scripted import ScriptedPool
from agentrl.tools.shell import LONGEST, shell


def run(best: Any, *commands: str) -> list[ToolResult]:
    """Of commands in one sandbox, one after the other."""

    async def work() -> list[ToolResult]:
        async with await best.pool.acquire() as sandbox:
            return [await FunctionTool(shell)({"command": command}, {"sandbox": sandbox}) for command in commands]

    done: list[ToolResult] = best.run(work())
    return done


def texts(best: Any, *commands: str) -> list[str]:
    return [result.text for result in run(best, *commands)]


def test_what_the_model_sees() -> None:
    assert find("tool", "shell") is shell
    spec = FunctionTool(shell).spec
    assert list(spec.parameters["properties"]) == ["command"]
    assert "kept between calls" in spec.description


def test_folder_variables_and_functions_are_kept(best: Any) -> None:
    assert texts(
        best,
        "mkdir -p 'a b'; cd 'a b'; X=\"it's 3\"; export Y=4; f() { echo f $1; }",
        "basename \"$PWD\"; echo $X $Y; f 7",
        "sh -c 'echo $X'; cd ..",
        "ls; unset X",
        "echo [$X]",
    ) == ["[no output]", "a b\nit's 3 4\nf 7\n", "it's 3\n", "a b\n", "[]\n"]  # fmt: skip


def test_another_sandbox_knows_nothing_of_it(best: Any) -> None:
    assert texts(best, "cd /; X=1") == ["[no output]"]
    assert texts(best, "echo [$X]; basename $PWD")[0].startswith("[]\nwork")


def test_several_lines_and_how_they_end(best: Any) -> None:
    lines, failed, syntax, left = run(best, "cat <<E\nhello\nE\necho $((1 + 2))", "pwd >/dev/null; false", "if then", "exit 3")
    assert (lines.text, lines.is_error) == ("hello\n3\n", False)
    assert (failed.text, failed.is_error) == ("[exit code 1]", True)
    assert syntax.is_error
    assert "line 1: " in syntax.text  # counted from the command's own first line
    assert left.text == "[exit code 3]"


def test_state_of_before_is_there_after_a_command_that_fails_or_is_killed(best: Any) -> None:
    async def work() -> str:
        async with await best.pool.acquire() as sandbox:
            tool = FunctionTool(shell)
            await tool({"command": "mkdir d; cd d; X=1"}, {"sandbox": sandbox})
            await tool({"command": "X=2; exit 9"}, {"sandbox": sandbox})
            assert (await sandbox.run(["sh", "-c", "sleep 60"], timeout=0.1)).status == "timeout"
            return (await tool({"command": "echo $X; basename $PWD"}, {"sandbox": sandbox})).text

    assert best.run(work()) == "2\nd\n"


def test_a_folder_that_is_gone_is_left_once(best: Any) -> None:
    first, second = texts(best, "mkdir q; cd q; rmdir ../q", "pwd", "basename $PWD")[1:]
    assert "cd: " in first
    assert "/q" not in second


def test_a_model_that_sets_home_or_a_trap_keeps_its_shell(best: Any) -> None:
    assert texts(best, "export HOME=/; X=1", "echo $X $HOME", "trap 'echo bye' EXIT; X=2", "echo $X")[1:] == [
        "1 /\n",
        "bye\n",
        "1\n",
    ]


@pytest.mark.parametrize("command", ["a\0b", "x" * (LONGEST + 1)])
def test_what_no_program_can_be_given_is_refused(command: str) -> None:
    async def main() -> ToolResult:
        return await FunctionTool(shell)({"command": command}, {"sandbox": await ScriptedPool().acquire()})

    assert (
        asyncio.run(main()).text
        == f"Error: a command is a text of at most {LONGEST} bytes, without a zero byte; write long ones to a file"
    )


def test_a_lost_sandbox_is_not_an_answer() -> None:
    async def main() -> None:
        pool = ScriptedPool(lambda request: SandboxLost("gone"))
        await FunctionTool(shell)({"command": "ls"}, {"sandbox": await pool.acquire()})

    with pytest.raises(SandboxLost):
        asyncio.run(main())
