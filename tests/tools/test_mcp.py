"""MCP servers as tools, against a real server of the official package in a process of its own, over both transports."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import agentrl as rl
from agentrl.errors import UsageError
from agentrl.messages import ToolCall
from agentrl.tool import ToolBox, ToolCrash, ToolResult
from agentrl.toolbox import toolbox
from agentrl.tools.mcp import as_tool_result, spec_of
from agentrl.tools.mcp_connection import Connection, Server, there
from tests.support.playing import played
from tests.support.wait import until

SERVER = Path(__file__).resolve().parents[1] / "support" / "mcp_server.py"
COMMAND = ["python", "-P", SERVER]  # -P: no module beside it is to shadow a library
OWN = rl.mcp(COMMAND, env={"SHOP": "open"}, timeout=20)
SHARED = rl.mcp(COMMAND, shared=True)


def box(*tools: Any) -> ToolBox:
    env = rl.Env()
    env.tools = tools
    return toolbox(env)


async def say(tools: ToolBox, name: str, /, **arguments: Any) -> ToolResult:
    ((_, result),) = await tools.run([ToolCall(id="1", name=name, arguments=arguments)], {})
    return result


async def texts(tools: ToolBox, *calls: tuple[str, dict[str, Any]]) -> list[str]:
    """Of calls, one after the other; the tools are closed afterwards."""
    try:
        return [(await say(tools, name, **arguments)).text for name, arguments in calls]
    finally:
        await tools.aclose()


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """Of a server that listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen([sys.executable, "-P", str(SERVER), "--http", str(port)])
    for _ in range(600):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            break
        time.sleep(0.05)
    else:
        pytest.fail("the server does not listen")
    yield f"http://127.0.0.1:{port}/mcp"
    process.kill()
    process.wait()


def test_what_a_model_is_told_of_a_servers_tools() -> None:
    specs = {spec.name: spec for spec in box(OWN).specs}
    assert list(specs) == ["add", "remember", "recall", "dotted_name", "fails", "slow", "die", "environment", "mixed"]
    assert specs["add"].description == "Adds two whole numbers."
    assert specs["add"].parameters == {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer", "default": 1}},
        "required": ["a"],
        "additionalProperties": False,
    }
    assert [spec.name for spec in specs.values() if spec.parallel] == ["add", "recall"]  # they say that they only read
    assert (specs["add"].timeout, specs["add"].retries) == (20, 0)


def test_calls_are_checked_here_and_answered_there() -> None:
    answers = asyncio.run(
        texts(
            box(OWN),
            ("add", {"a": 2, "b": 3}),
            ("add", {"a": "4"}),
            ("add", {"c": 4}),
            ("dotted_name", {}),
            ("fails", {}),
            ("environment", {"name": "SHOP"}),
        )
    )
    assert answers[:2] == ["5", "5"]
    assert answers[2] == (
        "Error: invalid arguments for add: 'a' is missing; there is no 'c'; valid: 'a', 'b'. "
        "add takes a: integer, b: integer = 1"
    )
    assert answers[3] == "dotted"
    assert answers[4].startswith("Error: ")
    assert answers[4].endswith("no such order")
    assert answers[5] == "open"


def test_the_clock_of_the_episode_stands_still_while_its_server_starts() -> None:
    seen: list[str] = []

    @contextlib.contextmanager
    def waiting() -> Iterator[None]:
        seen.append("stopped")
        yield
        seen.append("goes on")

    async def main() -> None:
        tools = box(OWN)
        call = ToolCall(id="1", name="slow", arguments={})
        task = asyncio.ensure_future(tools.run([call], {"waiting": waiting}))
        await until(lambda: len(seen) == 2)
        assert not task.done()  # it is being called, and that counts
        task.cancel()
        await asyncio.wait({task})
        await tools.aclose()

    asyncio.run(main())
    assert seen == ["stopped", "goes on"]


def test_each_episode_has_a_server_of_its_own() -> None:
    async def main() -> list[str]:
        first, second = box(OWN), box(OWN)
        await say(first, "remember", line="mine")
        return await texts(second, ("recall", {})) + await texts(first, ("recall", {}))

    assert asyncio.run(main()) == ["[no output]", "mine"]


def test_a_shared_server_is_one_for_all_also_beyond_the_loop_of_a_run() -> None:
    async def keep(line: str) -> list[str]:
        return await texts(box(SHARED), ("remember", {"line": line}), ("recall", {}))

    assert asyncio.run(keep("a")) == ["1 kept", "a"]
    assert asyncio.run(keep("b")) == ["2 kept", "a\nb"]


def test_pictures_pass() -> None:
    result = asyncio.run(_one(box(OWN), "mixed"))
    assert result.text == "a red dot"
    (picture,) = [part for part in result.content if isinstance(part, rl.Image)]
    assert (picture.width, picture.height) == (2, 3)


async def _one(tools: ToolBox, name: str, **arguments: Any) -> ToolResult:
    try:
        return await say(tools, name, **arguments)
    finally:
        await tools.aclose()


def test_a_call_that_takes_too_long_is_stopped_and_the_server_goes_on() -> None:
    item = rl.mcp(COMMAND, only=["slow", "remember"], timeout=3, prefix="s_")
    answers = asyncio.run(texts(box(item), ("s_slow", {}), ("s_remember", {"line": "a"})))
    assert answers == ["Error: s_slow took longer than 3 s and was stopped", "1 kept"]


def test_a_server_that_dies_is_an_error_and_starts_anew_once() -> None:
    async def main() -> None:
        tools = box(OWN)
        await say(tools, "remember", line="a")
        died = await say(tools, "die")
        assert died.is_error
        assert died.text == (
            "Error: the MCP server 'python -P mcp_server.py' has ended; its last words: the disk is on fire. "
            "This call was not answered; the next one starts it anew, without what it held"
        )
        assert (await say(tools, "recall")).text == "[no output]"
        with pytest.raises(ToolCrash, match="has ended; its last words: the disk is on fire; it is the second time in this"):
            await say(tools, "die")
        await tools.aclose()

    asyncio.run(main())


def test_a_shared_server_that_died_is_there_for_the_others() -> None:
    async def main() -> None:
        first, second, third = box(SHARED), box(SHARED), box(SHARED)
        await say(second, "add", a=1)
        await say(first, "die")
        assert [(await say(tools, "add", a=1)).text for tools in (third, second, first)] == ["2", "2", "2"]

    asyncio.run(main())


def test_a_server_that_listens(url: str) -> None:
    tools = box(rl.mcp(url=url, headers={"X-Key": "k"}, only=["add", "fails"]))
    answers = asyncio.run(texts(tools, ("add", {"a": 2}), ("fails", {}), ("add", {"a": "x"}), ("add", {"a": 9})))
    assert answers[0] == "3"
    assert answers[1].endswith("no such order")
    assert answers[2].startswith("Error: invalid arguments for add: a: 'x' is not of type 'integer'")
    assert answers[3] == "10"


def test_a_listening_server_that_is_gone_is_an_error_and_then_a_crash() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-P", str(SERVER), "--http", str(port)]

    async def main() -> None:
        process = await asyncio.create_subprocess_exec(*command)
        await until(lambda: _listens(port))
        tools = box(rl.mcp(url=f"http://127.0.0.1:{port}/mcp"))
        assert (await say(tools, "add", a=1)).text == "2"
        process.kill()
        await process.wait()
        assert "has ended" in (await say(tools, "add", a=1)).text
        with pytest.raises(ToolCrash, match="cannot be started"):
            await say(tools, "add", a=1)
        await tools.aclose()

    asyncio.run(main())


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


@pytest.mark.parametrize(
    ("item", "problem"),
    [
        (rl.mcp("no-such-program --port 1"), "'no-such-program --port 1' cannot be started: FileNotFoundError"),
        (rl.mcp("true"), "the MCP server 'true' cannot be started"),
        (rl.mcp("sleep 600", start_timeout=0.2), "the MCP server 'sleep 600' gave no answer within 0.2 s"),
        (rl.mcp(["python", "-c", "raise SystemExit('no key')"]), "its last words: no key"),
        (rl.mcp(url="http://127.0.0.1:9/mcp", start_timeout=20), r"'http://127.0.0.1:9/mcp' cannot be started"),
        (rl.mcp(COMMAND, only=["ad"]), "has no tool 'ad'; did you mean 'add'"),
    ],
)
def test_a_server_that_cannot_be_had_is_said_before_anything_is_played(item: Any, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        box(item)


@pytest.mark.parametrize("wrong", [{}, {"command": "a", "url": "b"}, {"command": ""}])
def test_either_a_command_or_a_url(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"rl\.mcp"):
        rl.mcp(**wrong)


def test_a_closed_connection_leaves_no_process() -> None:
    async def main() -> None:
        server = Server(command=("python", "-P", str(SERVER)))
        connection = await there(Connection.open(server))
        pid = int((await there(connection.call("environment", {"name": "PID"}))).content[0].text)
        assert _alive(pid)
        await there(connection.aclose())
        await until(lambda: not _alive(pid))
        await there(connection.aclose())

    asyncio.run(main())


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_no_server_outlives_the_process() -> None:
    """A shared one is never closed by an episode."""
    code = (
        "import asyncio, sys; import agentrl as rl\n"
        "from agentrl.toolbox import toolbox; from agentrl.messages import ToolCall\n"
        f"env = rl.Env(); env.tools = [rl.mcp([sys.executable, '-P', {str(SERVER)!r}], shared=True)]\n"
        "call = ToolCall(id='1', name='environment', arguments={'name': 'PID'})\n"
        "((message, _),) = asyncio.run(toolbox(env).run([call], {})); print(message.text)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=SERVER.parents[2])
    asyncio.run(until(lambda: not _alive(int(done.stdout))))
    assert done.stderr == ""


class Sums(rl.Env):
    tools = [OWN]
    max_turns = 3

    def step(self, action: rl.Action) -> rl.Step:
        return rl.done(reward=float(action.parse(int) == 7))


def test_an_episode_with_a_server_is_played() -> None:
    episode = asyncio.run(played(Sums(), '<call>{"name": "add", "arguments": {"a": 3, "b": 4}}</call>', "7"))
    assert (episode.outcome, episode.reward) == (rl.Outcome.TERMINATED, 1.0)
    assert [message.text for message in episode.messages if message.role == "tool"] == ["7"]


def test_an_episode_whose_server_keeps_dying_is_aborted() -> None:
    call = '<call>{"name": "die", "arguments": {}}</call>'
    episode = asyncio.run(played(Sums(), call, call))
    assert episode.outcome is rl.Outcome.TOOL_CRASH
    assert "it is the second time in this episode" in episode.error


def test_long_and_strange_names_become_such_as_models_can_call() -> None:
    tool = SimpleNamespace(name="a.b/c" + "x" * 80, description=None, input_schema={}, annotations=None)
    spec = spec_of(tool, "fs_", {})
    assert spec.name == "fs_a_b_c" + "x" * 56
    assert spec.description == ""


def test_other_content_is_named() -> None:
    def block(**fields: Any) -> SimpleNamespace:
        return SimpleNamespace(**fields)

    result = SimpleNamespace(
        content=[
            block(type="resource", resource=block(uri="a://b", text="inside")),
            block(type="resource", resource=block(uri="a://c", blob="")),
            block(type="resource_link", name="d", uri="a://d"),
            block(type="audio"),
        ],
        is_error=False,
        structured_content=None,
    )
    assert as_tool_result(result).text == "inside[binary content of a://c][d: a://d][audio left out]"
    empty = SimpleNamespace(content=[], is_error=False, structured_content={"a": 1})
    assert as_tool_result(empty).text == '{"a": 1}'
