"""A misspelt or missing option of a backend is told in one line with the nearest valid one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import agentrl
from agentrl import world
from agentrl.config import EnvConfig, SandboxConfig
from agentrl.errors import UsageError


@pytest.mark.parametrize(
    ("backend", "options", "text"),
    [
        (
            "docker",
            {"runtme": "x"},
            "sandbox=docker takes no option 'runtme' (sandbox.options.runtme); did you mean 'runtime'?",
        ),
        ("remote", {"ulr": "http://there"}, "sandbox=remote takes no option 'ulr' (sandbox.options.ulr); did you mean 'url'?"),
        ("wasm", {"image": "x"}, "sandbox=wasm takes no option 'image' (sandbox.options.image); there are none"),
        ("local", {"levl": "landlock"}, "sandbox=local takes no option 'levl' (sandbox.options.levl); did you mean 'level'?"),
    ],
)
def test_misspelt_options_are_named(backend: str, options: dict[str, Any], text: str) -> None:
    made = world.build(EnvConfig(id="code_sandbox"), seed=0)
    assert isinstance(made.spec, agentrl.SandboxSpec)

    async def main() -> None:
        async with world.sandboxes(made, SandboxConfig(backend=backend, options=options)):
            raise AssertionError("it was opened")

    with pytest.raises(UsageError) as caught:
        asyncio.run(main())
    assert str(caught.value) == text
    assert "\n" not in text
