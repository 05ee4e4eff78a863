"""`agentrl env list` and `agentrl env info NAME`: what environments there are, and what one of them asks and gives."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

from agentrl import registry
from agentrl.commands.arguments import Parser
from agentrl.env import Env
from agentrl.errors import UsageError, nearest
from agentrl.keys import first_sentence
from agentrl.overrides import check_name
from agentrl.reward import marked
from agentrl.task import TaskSource
from agentrl.task_source import missing_arguments, tasks_of
from agentrl.toolbox import toolbox
from agentrl.world import check, check_shown, find, settings

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
        print(describe(name, find(name)))
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
    """What a person must know before training in it: what it is, its limits, tools, rewards, task arguments. Raises UsageError
    for a fault in an author's code."""
    env = check(cls, {})
    lines = [
        f"{name}: {_about(cls)}",
        "",
        f"class       {cls.__module__}:{cls.__qualname__}",
        f"max_turns   {env.max_turns}",
        f"tools       {', '.join(spec.name for spec in toolbox(env).specs) or 'none'}",
        f"sandbox     {_sandbox(cls.sandbox)}",
        f"rewards     {', '.join(_rewards(cls)) or 'the sum of what its steps give'}",
        f"tasks       {_arguments(cls.tasks)}",
        f"settings    {', '.join(f'env.args.{key}={value!r}' for key, value in settings(cls).items())}",
        "",
    ]
    missing = missing_arguments(cls, {})
    if missing:
        return "\n".join([*lines, f"its tasks need arguments: {', '.join(f'env.tasks.{name}=...' for name in missing)}"])
    tasks = tasks_of(cls, {}, seed=0)
    check_shown(cls, tasks)
    return "\n".join([*lines, *_first_task(tasks)])


def summary(cls: Any) -> str:
    """The first sentence of the class's docstring."""
    return first_sentence(_about(cls))


def _about(cls: Any) -> str:
    """Its docstring; that of the contract says nothing of it."""
    text = inspect.getdoc(cls) or ""
    return text if text and text != inspect.getdoc(Env) else "no description"


def _first_task(tasks: TaskSource) -> list[str]:
    try:
        task = tasks.get(0)
    except UsageError as error:  # data that is for evaluation alone
        return [f"it has no task to train on: {error}"]
    return ["a task of it:", f"  id {task.id}", *(f"  {line}" for line in task.prompt.splitlines()[:12])]


def _rewards(cls: Any) -> list[str]:
    return [f"{name} (metric)" if weight is None else f"{name} x {weight:g}" for name, _, weight in marked(cls)]


def _sandbox(spec: Any) -> str:
    if spec is None:
        return "none needed"
    network = "on" if spec.network else "off"
    return f"memory {spec.memory}, {spec.pids} processes, disk {spec.disk}, {spec.timeout:g} s, network {network}"


def _arguments(function: Any) -> str:
    parameters = [p for p in inspect.signature(function).parameters.values() if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
    shown = [f"env.tasks.{p.name}" + ("" if p.default is p.empty else f"={p.default!r}") for p in parameters]
    return ", ".join(shown) or "no arguments"
