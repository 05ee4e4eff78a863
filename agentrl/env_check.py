"""What is wrong with an environment's class, found when it is built and before anything is played.

Each fault is a UsageError of one line: file and line, the attribute, method or parameter, and the nearest valid one.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agentrl.agent import agents_of, plays
from agentrl.blame import attribute, stands
from agentrl.env import Env
from agentrl.errors import UsageError, nearest
from agentrl.messages import as_messages
from agentrl.reward import MAY_ASK, marked
from agentrl.sandbox import SandboxSpec, problem
from agentrl.toolbox import toolbox

ATTRIBUTES = ("max_turns", "max_tokens", "history_window", "system_prompt", "tools", "sandbox", "agents")
HOOKS = {"reset": ("task",), "step": ("action",), "finished": ("episode",), "close": ()}
"""What is called, and with what."""


def check_class(cls: type[Env]) -> None:
    """Looks at names and signatures. Raises UsageError with the first fault."""
    _look_alikes(cls)
    _check_play(cls)
    if not isinstance(inspect.getattr_static(cls, "tasks"), (classmethod, staticmethod)):
        raise UsageError(f"{attribute(cls, 'tasks')}: {cls.__name__}.tasks must be a class method: write @classmethod above it")
    for base, name, value in _members(cls):
        marks = [mark for mark in ("tool", "reward") if _is_marked(value, mark)]
        if marks and not inspect.isfunction(value):
            what = f"{base.__name__}.{name} is marked with @{marks[0]} and is a {type(value).__name__}"
            raise UsageError(f"{attribute(base, name)}: {what}; it must be a plain method")
    for name, function, weight in marked(cls):
        what = f"{'metric' if weight is None else 'reward'} {cls.__name__}.{name}"
        _check_parameters(what, function)
        if "fresh" in inspect.signature(function).parameters and cls.sandbox is None:
            raise UsageError(f"{stands(function)}: {what} asks for a fresh sandbox, but {cls.__name__} declares no SandboxSpec")


def check_instance(env: Env, args: Mapping[str, Any]) -> None:
    """Looks at the values of one instance, which `args` has set, and at its tools. Raises UsageError with the first fault."""
    cls = type(env)
    for name, given in HOOKS.items():
        _check_hook(env, name, given)
    for name, least in (("max_turns", 1), ("max_tokens", 0), ("history_window", 0)):
        number = getattr(env, name)
        if not isinstance(number, int) or isinstance(number, bool) or number < least:
            raise UsageError(f"{_said(env, args, name)} must be a whole number of at least {least}")
    try:
        as_messages(env.system_prompt, "system")
    except (TypeError, ValueError) as error:
        raise UsageError(f"{_said(env, args, 'system_prompt')} must be a text: {error}") from error
    _check_sandbox(env, args)
    if not isinstance(env.tools, (str, list, tuple, set, frozenset)):
        raise UsageError(f"{_said(env, args, 'tools')} must be a list of names and functions")
    try:
        tools = toolbox(env)
    except UsageError as error:
        where = "env.args.tools" if "tools" in args else attribute(cls, "tools") if env.tools else stands(cls)
        raise UsageError(f"{where}: {cls.__name__}: {error}") from error
    if plays(cls):
        _check_agents(env, [spec.name for spec in tools.specs])


def _check_agents(env: Env, tools: Sequence[str]) -> None:
    cls = type(env)
    try:
        agents = agents_of(env)
    except UsageError as error:
        raise UsageError(f"{attribute(cls, 'agents' if env.agents else 'play')}: {error}") from error
    for name, spec in agents.items():
        for tool in spec.tools or ():
            if tool not in tools:
                raise UsageError(
                    f"{attribute(cls, 'agents')}: {cls.__name__}.agents[{name!r}]: no tool {tool!r}; {nearest(tool, tools)}"
                )


def _check_play(cls: type[Env]) -> None:
    """A class is written in one way or in the other: what is never called would be dead, and silently so."""
    if not plays(cls):
        if cls.agents:
            raise UsageError(
                f"{attribute(cls, 'agents')}: {cls.__name__} has agents, but no async def play(self, task, *agents)"
            )
        return
    if not inspect.iscoroutinefunction(cls.play):
        raise UsageError(f"{attribute(cls, 'play')}: {cls.__name__}.play must be written async def play(self, task, *agents)")
    for name in ("reset", "step"):
        if getattr(cls, name) is not getattr(Env, name):
            raise UsageError(f"{attribute(cls, name)}: {cls.__name__} has play, so its {name} would never be called; keep one")


def _look_alikes(cls: type[Env]) -> None:
    """A misspelt `max_turn` or `setp` would be an attribute like any other, and silently mean nothing."""
    for base, name, value in _members(cls):
        if hasattr(Env, name) or name.startswith("_") or _is_marked(value, "tool") or _is_marked(value, "reward"):
            continue
        valid, cutoff = (("reset", "step"), 0.75) if inspect.isfunction(value) else (ATTRIBUTES, 0.88)
        if inspect.isfunction(value) and len(inspect.signature(value).parameters) != 2:
            continue
        for near in difflib.get_close_matches(name, valid, n=1, cutoff=cutoff):
            if getattr(cls, near) is getattr(Env, near):
                raise UsageError(
                    f"{attribute(base, name)}: {base.__name__}.{name} means nothing to an environment; did you mean {near!r}? "
                    "(something of your own needs a name less like it)"
                )


def _check_parameters(what: str, function: Any) -> None:
    parameters = list(inspect.signature(function).parameters.values())[1:]
    for p in parameters:
        if p.name not in MAY_ASK and p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
            raise UsageError(f"{stands(function)}: {what} cannot ask for {p.name!r}; {nearest(p.name, MAY_ASK)}")


def _check_hook(env: Env, name: str, given: Sequence[str]) -> None:
    cls, method = type(env), getattr(env, name)
    if not callable(method):
        raise UsageError(f"{attribute(cls, name)}: {cls.__name__}.{name} is a {type(method).__name__}; it must be a method")
    signature = inspect.signature(method)
    try:
        signature.bind(*given)
    except TypeError:
        called = f"{name}({', '.join(given)})"
        what = f"{cls.__name__}.{name} takes {signature} besides self, but is called as {called}"
        raise UsageError(f"{stands(method)}: {what}") from None


def _check_sandbox(env: Env, args: Mapping[str, Any]) -> None:
    cls, spec = type(env), env.sandbox
    if spec is None:
        return
    if not isinstance(spec, SandboxSpec):
        hint = "SandboxSpec()" if spec is SandboxSpec else "a SandboxSpec, as in rl.SandboxSpec(memory='256M'), or None"
        raise UsageError(f"{_said(env, args, 'sandbox')} must be {hint}")
    if cls.sandbox is None:
        raise UsageError(f"{_said(env, args, 'sandbox')} is set on the instance; set it on the class {cls.__name__}")
    if wrong := problem(spec):
        raise UsageError(f"{attribute(cls, 'sandbox')}: {cls.__name__}.sandbox: {wrong}")


def _said(env: Env, args: Mapping[str, Any], name: str) -> str:
    """The attribute with its value, and where that was set."""
    cls, value = type(env), getattr(env, name)
    shown = value.__name__ if isinstance(value, type) else f"{value!r:.60}"
    if name in args:
        return f"env.args.{name}={shown}"
    where = attribute(cls, "__init__") if name in vars(env) else attribute(cls, name)
    return f"{where}: {cls.__name__}.{name} = {shown}"


def _members(cls: type[Env]) -> Iterator[tuple[type, str, Any]]:
    """(class, name, value) of everything that the author's classes define."""
    for base in cls.__mro__:
        if base not in Env.__mro__:
            yield from ((base, name, value) for name, value in vars(base).items())


def _is_marked(value: Any, mark: str) -> bool:
    inner = (value, getattr(value, "__func__", None), getattr(value, "fget", None))
    return any(hasattr(function, f"__agentrl_{mark}__") for function in inner)
