"""The environment's side of a run: its class with the settings of `env.args`, its tasks, and its sandboxes.

Knows nothing of models: training, evaluation, playing and describing all start here.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from agentrl import registry
from agentrl.config import EnvConfig, SandboxConfig
from agentrl.env import Env
from agentrl.errors import UsageError, nearest
from agentrl.sandbox import SandboxPool, SandboxSpec
from agentrl.task import TaskSource


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What episodes are made of.

    >>> build(EnvConfig(id="guess_number", args={"max_turns": 3}), seed=0).make().max_turns     # doctest: +SKIP
    3
    """

    cls: type[Env]
    args: Mapping[str, Any]
    tasks: TaskSource

    def make(self) -> Env:
        """A fresh instance: one episode."""
        env = self.cls()
        for name, value in self.args.items():
            setattr(env, name, value)
        return env

    @property
    def spec(self) -> SandboxSpec | None:
        """What its sandboxes must hold to; None: it needs none."""
        spec = self.args.get("sandbox", self.cls.sandbox)
        return spec if isinstance(spec, SandboxSpec) else None


def build(config: EnvConfig, *, seed: int) -> World:
    """Finds the class and its tasks. `seed`: the run's, for a `tasks` that takes one and was given none by `env.tasks`. Raises
    UsageError for an unknown name, setting or argument of its tasks."""
    cls = registry.find("env", config.id)
    if not (isinstance(cls, type) and issubclass(cls, Env)):
        raise UsageError(f"env={config.id} is {_what(cls)}; it must be a class that derives from agentrl.Env")
    known = settings(cls)
    for name, value in config.args.items():
        if name not in known:
            raise UsageError(f"{cls.__name__} has no setting {name!r} (env.args.{name}); {nearest(name, known)}")
        if not _fits(value, known[name]):
            raise UsageError(f"env.args.{name}={value!r} must be like its default, {known[name]!r}")
    return World(cls=cls, args=dict(config.args), tasks=_tasks(cls, config.tasks, seed))


def settings(cls: type[Env]) -> dict[str, Any]:
    """The class's plain attributes with their defaults: what `env.args` may set."""
    found = {name: getattr(cls, name) for base in reversed(cls.__mro__) for name in vars(base) if not name.startswith("_")}
    return {name: value for name, value in found.items() if isinstance(value, (bool, int, float, str, list, tuple, dict))}


@asynccontextmanager
async def sandboxes(world: World, config: SandboxConfig) -> AsyncIterator[SandboxPool | None]:
    """The run's pool of sandboxes, or None for an environment that declares none. Raises SandboxError, IsolationError."""
    spec = world.spec
    if spec is None:
        yield None
        return
    if config.isolation != "auto":
        spec = replace(spec, isolation=config.isolation)
    opened = registry.find("sandbox", config.backend).open
    known = [name for name in inspect.signature(opened).parameters if name not in ("spec", "slots")]
    for name in config.options:
        if name not in known:
            raise UsageError(
                f"sandbox={config.backend} takes no option {name!r} (sandbox.options.{name}); {nearest(name, known)}"
            )
    pool: SandboxPool = await opened(spec, slots=config.slots, **config.options)
    try:
        yield pool
    finally:
        await pool.aclose()


def _tasks(cls: type[Env], args: Mapping[str, Any], seed: int) -> TaskSource:
    parameters = inspect.signature(cls.tasks).parameters
    if "seed" in parameters:
        args = {"seed": seed, **args}
    free = any(p.kind is p.VAR_KEYWORD for p in parameters.values()) and cls.tasks.__func__ is not Env.tasks.__func__  # type: ignore[attr-defined]
    known = [name for name, p in parameters.items() if p.kind is not p.VAR_KEYWORD]
    for name in args:
        if name not in known and not free:
            raise UsageError(f"{cls.__name__}.tasks has no argument {name!r} (env.tasks.{name}); {nearest(name, known)}")
    missing = [name for name in known if parameters[name].default is inspect.Parameter.empty and name not in args]
    if missing:
        raise UsageError(f"{cls.__name__}.tasks needs {', '.join(f'env.tasks.{name}=...' for name in missing)}")
    try:
        return cls.tasks(**args)
    except (TypeError, ValueError, OSError) as error:
        raise UsageError(f"{cls.__name__}.tasks({_call(args)}): {error}") from error


def _fits(value: Any, default: Any) -> bool:
    """Whole numbers pass where a fraction is the default; nothing else changes its kind."""
    if isinstance(default, float) and not isinstance(default, bool):
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if isinstance(default, (list, tuple)):
        return isinstance(value, (list, tuple))
    return isinstance(value, type(default)) and isinstance(value, bool) == isinstance(default, bool)


def _call(args: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in args.items())


def _what(thing: Any) -> str:
    return f"the class {thing.__name__}" if isinstance(thing, type) else f"a {type(thing).__name__}"
