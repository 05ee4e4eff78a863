"""Which tools an environment offers: by name, as functions, as objects, and its own methods."""

from __future__ import annotations

from typing import Any

import pytest

import agentrl as rl
from agentrl.tool import FunctionTool, tool
from agentrl.toolbox import toolbox


def double(x: int) -> int:
    """Doubles."""
    return 2 * x


def look(sandbox: Any) -> str:
    """Looks around."""
    return ""


def env(*tools: Any, sandbox: Any = None) -> rl.Env:
    class Tooled(rl.Env):
        @tool(name="own")
        def method(self, x: int) -> int:
            """Of the environment."""
            return x

    made = Tooled()
    made.tools, made.sandbox = tools, sandbox
    return made


def names(made: rl.Env) -> list[str]:
    return [spec.name for spec in toolbox(made).specs]


def test_functions_objects_names_and_own_methods() -> None:
    assert names(env()) == ["own"]
    assert names(env(double, FunctionTool(look), sandbox=rl.SandboxSpec())) == ["double", "look", "own"]
    assert names(env(f"{__file__}:double")) == ["double", "own"]


def test_a_registered_name_is_found() -> None:
    assert names(env("python", sandbox=rl.SandboxSpec())) == ["python", "own"]


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(rl.UsageError, match="did you mean 'python'"):
        toolbox(env("pyhton"))


def test_a_tool_without_its_sandbox_is_refused_before_anything_is_played() -> None:
    with pytest.raises(rl.UsageError, match=r"tool 'look' needs a sandbox: set `sandbox = SandboxSpec\(\)` on Tooled"):
        toolbox(env(look))


def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="two tools are called 'double'"):
        toolbox(env(double, double))


def test_what_is_no_tool_is_refused() -> None:
    with pytest.raises(rl.UsageError, match="not int"):
        toolbox(env(3))
