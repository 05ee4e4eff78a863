"""What `agentrl sandbox check` and `bench` share: which backend, and what it is opened with."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from agentrl.commands.arguments import Parser
from agentrl.errors import UsageError
from agentrl.sandbox import SandboxSpec


def add_backend(parser: Parser) -> None:
    parser.add_argument("backend", help="local | docker | remote | wasm | unsafe_local | module:Name | path/to/file.py:Name")
    parser.add_argument(
        "--option",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="of the backend, as sandbox.options.KEY; may be repeated",
    )


def parse_options(given: Sequence[str]) -> dict[str, Any]:
    """Values as Python writes them; anything else is a text. Raises UsageError.

    >>> parse_options(["runtime=runsc", "warm=4", "use_cgroup=False"])
    {'runtime': 'runsc', 'warm': 4, 'use_cgroup': False}
    """
    options = {}
    for item in given:
        key, equals, text = item.partition("=")
        if not equals or not key.isidentifier():
            raise UsageError(f"--option {item!r} is no KEY=VALUE, as in --option runtime=runsc")
        try:
            options[key] = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            options[key] = text
    return options


def sizes(spec: SandboxSpec) -> SandboxSpec:
    """The same, if its sizes can be read. Raises UsageError that names the option."""
    for name in ("memory", "disk", "output"):
        try:
            bytes_ = getattr(spec, f"{name}_bytes")
        except ValueError as error:
            raise UsageError(f"--{name}: {error}") from None
        if bytes_ < 1:
            raise UsageError(f"--{name} must be above 0, not {getattr(spec, name)}")
    return spec
