"""`agentrl sandbox serve | check | bench`: finds the action, which has options of its own."""

from __future__ import annotations

import importlib
from collections.abc import Sequence

from agentrl.errors import UsageError, nearest

ACTIONS = {
    "check": ("agentrl.commands.sandbox_check", "tries to get out of a sandbox, in about 120 ways, and says what held"),
    "bench": (
        "agentrl.commands.sandbox_bench",
        "measures what a run costs and how many there are a second; --soak runs thousands",
    ),
    "serve": ("agentrl.commands.sandbox_serve", "serves sandboxes to other machines over HTTP"),
}


def run(argv: Sequence[str]) -> int:
    if not argv or argv[0] in ("-h", "--help", "help"):
        print(text())
        return 0
    if argv[0] not in ACTIONS:
        raise UsageError(f"there is no 'agentrl sandbox {argv[0]}'; {nearest(argv[0], ACTIONS)}")
    return int(importlib.import_module(ACTIONS[argv[0]][0]).run(argv[1:]))


def text() -> str:
    actions = "\n".join(f"  {name:6} {about}" for name, (_, about) in ACTIONS.items())
    return f"""usage: agentrl sandbox <action> ...

{actions}

agentrl sandbox check local
agentrl sandbox bench docker
agentrl sandbox serve --port 8080 --slots 16

agentrl sandbox <action> --help says more."""
