"""The python tool: what a model is told of it, and what it answers."""

from __future__ import annotations

import asyncio

import pytest

from agentrl.messages import ToolCall
from agentrl.registry import find
from agentrl.sandbox import Exec, SandboxLost, Status
from agentrl.tool import FunctionTool, ToolBox
from agentrl.tools.python import python
from agentrl.tools.sandboxes.scripted import Request, ScriptedPool


def test_the_model_sees_one_parameter_with_a_description() -> None:
    spec = FunctionTool(python).spec
    assert spec.name == "python"
    assert "fresh interpreter" in spec.description
    assert "Args" not in spec.description
    assert spec.parameters["required"] == ["code"]
    assert list(spec.parameters["properties"]) == ["code"]
    assert spec.parameters["properties"]["code"]["description"] == "The whole program. Use print() to see a value."


def test_it_is_found_by_name() -> None:
    assert find("tool", "python") is python


@pytest.mark.parametrize(
    ("answer", "text", "is_error"),
    [
        (Exec(status=Status.OK, stdout="2\n"), "2\n", False),
        (Exec(status=Status.OK), "[no output]", False),
        (Exec(status=Status.ERROR, exit_code=1, stderr="NameError: x\n"), "NameError: x\n", True),
        (Exec(status=Status.TIMEOUT, exit_code=137, wall_s=2.0), "[timed out after 2.0 s]", True),
    ],
)
def test_it_runs_the_code_in_the_episodes_sandbox(answer: Exec, text: str, is_error: bool) -> None:
    async def main() -> None:
        pool = ScriptedPool({"x": answer})
        box = ToolBox([FunctionTool(python)])
        call = ToolCall(id="1", name="python", arguments={"code": "x"})
        ((message, result),) = await box.run([call], {"sandbox": await pool.acquire()})
        assert (message.text, result.is_error) == (text, is_error)
        assert pool.requests == [Request(kind="python", code="x")]

    asyncio.run(main())


def test_a_lost_sandbox_is_not_an_answer() -> None:
    async def main() -> None:
        pool = ScriptedPool(lambda request: SandboxLost("gone"))
        box = ToolBox([FunctionTool(python)])
        await box.run([ToolCall(id="1", name="python", arguments={"code": "x"})], {"sandbox": await pool.acquire()})

    with pytest.raises(BaseException) as caught:
        asyncio.run(main())
    assert "SandboxLost" in repr(caught.value)
