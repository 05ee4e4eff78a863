"""`agentrl env list` and `agentrl env info NAME`: what environments there are, and what one of them asks and gives."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

from agentrl import registry
from agentrl.commands.arguments import Parser
from agentrl.errors import UsageError, nearest
from agentrl.overrides import check_name
from agentrl.world import settings

ACTIONS = ("list", "info")


def run(argv: Sequence[str]) -> int:
    parser = Parser("agentrl env", "Lists and describes environments.", "agentrl env list\nagentrl env info code_sandbox")
    parser.add_argument("action", help="list | info")
    parser.add_argument("name", nargs="?", help="of info: a bundled or installed name, module:Name, or path/to/file.py:Name")
    args = parser.parse(argv)
    if args.action not in ACTIONS:
        raise UsageError(f"there is no 'agentrl env {args.action}'; {nearest(args.action, ACTIONS)}")
    if args.action == "list":
        print(listing())
    elif args.name is None:
        raise UsageError(f"agentrl env info needs a name; {nearest('', registry.names('env'))}")
    else:
        name = args.name.removeprefix("env=")
        check_name("env", name)
        print(describe(name, registry.find("env", name)))
    return 0


def listing() -> str:
    """One line for each registered environment. One that cannot be imported says why instead of failing the list."""
    lines = []
    for name, target in sorted(registry.names("env").items()):
        try:
            about = summary(registry.find("env", name))
        except (ImportError, UsageError) as error:
            about = f"cannot be loaded: {error}"
        lines.append(f"{name:20} {about}  ({target})")
    return "\n".join(
        [*lines, "", "your own: env=my_pkg.module:Name or env=path/to/file.py:Name; agentrl env info NAME says more"]
    )


def describe(name: str, cls: Any) -> str:
    """What a person must know before training in it: what it is, its limits, tools, rewards, task arguments."""
    lines = [
        f"{name}: {inspect.getdoc(cls) or 'no description'}",
        "",
        f"class       {cls.__module__}:{cls.__qualname__}",
        f"max_turns   {cls.max_turns}",
        f"tools       {', '.join(_tools(cls)) or 'none'}",
        f"sandbox     {_sandbox(cls.sandbox)}",
        f"rewards     {', '.join(_rewards(cls)) or 'the sum of what its steps give'}",
        f"tasks       {_arguments(cls.tasks)}",
        f"settings    {', '.join(f'env.args.{key}={value!r}' for key, value in settings(cls).items())}",
    ]
    try:
        tasks = cls.tasks()
        lines += [
            "",
            "a task of it:",
            f"  id {tasks.get(0).id}",
            *(f"  {line}" for line in tasks.get(0).prompt.splitlines()[:12]),
        ]
    except (OSError, TypeError, UsageError) as error:
        lines += ["", f"its tasks need arguments: {error}"]
    return "\n".join(lines)


def summary(cls: Any) -> str:
    """The first line of the class's docstring."""
    return (inspect.getdoc(cls) or "no description").splitlines()[0]


def _tools(cls: Any) -> list[str]:
    named = [item if isinstance(item, str) else getattr(item, "__name__", str(item)) for item in cls.tools]
    methods = [name for name, f in inspect.getmembers(cls, callable) if hasattr(f, "__agentrl_tool__")]
    return [*named, *methods]


def _rewards(cls: Any) -> list[str]:
    marked = [(name, f.__agentrl_reward__) for name, f in inspect.getmembers(cls, callable) if hasattr(f, "__agentrl_reward__")]
    return [f"{name} (metric)" if weight is None else f"{name} x {weight:g}" for name, weight in marked]


def _sandbox(spec: Any) -> str:
    if spec is None:
        return "none needed"
    network = "on" if spec.network else "off"
    return f"memory {spec.memory}, {spec.pids} processes, disk {spec.disk}, {spec.timeout:g} s, network {network}"


def _arguments(function: Any) -> str:
    parameters = [p for p in inspect.signature(function).parameters.values() if p.kind is not p.VAR_KEYWORD]
    shown = [f"env.tasks.{p.name}" + ("" if p.default is p.empty else f"={p.default!r}") for p in parameters]
    return ", ".join(shown) or "no arguments"
