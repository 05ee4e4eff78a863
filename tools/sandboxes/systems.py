"""Which sandbox backends work on which operating system, and the error for one that does not."""

from __future__ import annotations

import sys

from agentrl.sandbox import IsolationError

ELSEWHERE = "sandbox=remote (a Linux machine that runs `agentrl sandbox serve`)"
WORKING = {
    "darwin": f"sandbox=docker, sandbox=wasm (Python without packages) or {ELSEWHERE}; sandbox=unsafe_local isolates nothing",
    "win32": f"{ELSEWHERE}, or run agentrl in WSL 2, which is Linux",
}
NAMES = {"linux": "Linux", "darwin": "macOS", "win32": "Windows"}
BACKENDS = {
    "local": ("linux",),
    "docker": ("linux", "darwin"),
    "wasm": ("linux", "darwin"),
    "unsafe_local": ("linux", "darwin"),
}
"""A backend that is not named works everywhere."""


def check(backend: str) -> None:
    """Raises IsolationError where the backend cannot work, naming those that can.

    >>> check("remote")
    """
    works_on = BACKENDS.get(backend, (sys.platform,))
    if not sys.platform.startswith(works_on):
        wanted = " or ".join(NAMES[system] for system in works_on)
        instead = WORKING.get(sys.platform, ELSEWHERE)
        raise IsolationError(
            f"sandbox={backend} needs {wanted}, and this is {NAMES.get(sys.platform, sys.platform)}; here: {instead}"
        )
