"""The tool with which a model runs Python code in its episode's sandbox."""

from __future__ import annotations

from agentrl.sandbox import Exec, Sandbox
from agentrl.tool import tool

TIMEOUT = 30.0  # seconds; the sandbox's own limit for one execution is usually lower and is what the model sees


@tool(timeout=TIMEOUT)
async def python(code: str, sandbox: Sandbox) -> Exec:
    """Run Python code in a fresh interpreter and get what it prints. Variables are not kept between calls; files are.

    Args:
        code: The whole program. Use print() to see a value.
    """
    return await sandbox.python(code)
