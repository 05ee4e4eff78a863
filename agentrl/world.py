"""The environment's side of a run: its class with the settings of `env.args`, its tasks, and its sandboxes.

Knows nothing of models: training, evaluation, playing and describing all start here.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from agentrl import registry
from agentrl.agent import plays
from agentrl.blame import attribute, blaming, one_line, stands
from agentrl.config import EnvConfig, SandboxConfig
from agentrl.env import Env
from agentrl.env_check import check_class, check_instance
from agentrl.errors import UsageError, nearest
from agentrl.from_gym import from_gymnasium, from_pettingzoo, is_gymnasium
from agentrl.sandbox import SandboxPool, SandboxSpec
from agentrl.task import TaskSource
from agentrl.task_source import tasks_of
from agentrl.wrappers import apply


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
        """A fresh instance: one episode. Raises UsageError for an `__init__` that fails."""
        return make(self.cls, self.args)

    @property
    def spec(self) -> SandboxSpec | None:
        """What its sandboxes must hold to; None: it needs none."""
        spec = self.args.get("sandbox", self.cls.sandbox)
        return spec if isinstance(spec, SandboxSpec) else None


def build(config: EnvConfig, *, seed: int) -> World:
    """Finds the class and its tasks, and looks at all that can be known before an episode is played. `seed`: the run's, for a
    `tasks` that takes one and was given none by `env.tasks`.

    Raises UsageError for an unknown name, setting or argument of its tasks, and for a fault in the author's code.
    """
    cls = apply(find(config.id), config.wrap)
    args = _args(cls, config.args)
    check(cls, args)
    tasks = tasks_of(cls, config.tasks, seed)
    check_shown(cls, tasks)
    return World(cls=cls, args=args, tasks=tasks)


def check(cls: type[Env], args: Mapping[str, Any]) -> Env:
    """An instance, looked at with its class. Raises UsageError for a fault in the author's code."""
    check_class(cls)
    env = make(cls, args)
    try:
        check_instance(env, args)
    except UsageError:
        raise
    except Exception as error:  # of a property
        raise UsageError(f"{cls.__name__} cannot be looked at: {one_line(error)}") from error
    return env


def check_shown(cls: type[Env], tasks: TaskSource) -> None:
    """Raises UsageError for a class that shows the agent nothing: no `reset` of its own, and tasks without a prompt."""
    if cls.reset is not Env.reset or plays(cls):
        return
    try:
        task = tasks.get(0)
    except UsageError:  # for evaluation alone: there is none to look at
        return
    if not task.prompt:
        raise UsageError(
            f"{stands(cls)}: {cls.__name__} has no reset(task), and its tasks have no prompt: nothing would be shown"
        )


def find(id: str) -> type[Env]:
    """The class behind env=`id`; for gymnasium:ID, pettingzoo:NAME, a gymnasium class one that plays it. Raises UsageError."""
    for prefix, bridge in (("gymnasium:", from_gymnasium), ("pettingzoo:", from_pettingzoo)):
        if id.startswith(prefix):
            return bridge(id.removeprefix(prefix))
    cls = registry.find("env", id)
    if is_gymnasium(cls):
        return from_gymnasium(cls)
    if isinstance(cls, type) and issubclass(cls, Env):
        return cls
    raise UsageError(
        f"env={registry.label(id)} is {_what(cls)}; it must be a class that derives from agentrl.Env or gymnasium.Env"
    )


def make(cls: type[Env], args: Mapping[str, Any]) -> Env:
    """An instance with these settings. Raises UsageError."""
    needed = [p.name for p in inspect.signature(cls).parameters.values() if p.default is p.empty and p.kind in _NAMED]
    if needed:
        where = f"{attribute(cls, '__init__')}: {cls.__name__}.__init__"
        raise UsageError(
            f"{where} needs {', '.join(map(repr, needed))}, but an environment is made without arguments; make it a "
            f"plain attribute of the class, which env.args.{needed[0]}=... sets"
        )
    try:
        with blaming(cls):
            env = cls()
            for name, value in _own_settings(env).items():
                setattr(env, name, value)
            for name, value in args.items():
                setattr(env, name, copy.deepcopy(value))  # a list must not be shared by all episodes
    except UsageError:
        raise
    except Exception as error:
        early = isinstance(error, AttributeError) and error.name in ("rng", "task")
        hint = f"; {error.name} is there from reset on" if early else ""  # type: ignore[attr-defined]
        raise UsageError(f"{cls.__name__} cannot be made: {one_line(error)}{hint}") from error
    return env


def _own_settings(env: Env) -> dict[str, Any]:
    """Lists and dicts that stand on the class, copied: what `self.seen.append(...)` adds, the next episode must not see."""
    found = {name: value for name, value in settings(type(env)).items() if isinstance(value, (list, dict))}
    return {name: copy.copy(value) for name, value in found.items() if name not in vars(env)}


_NAMED = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def settings(cls: type[Env]) -> dict[str, Any]:
    """The class's plain attributes with their defaults: what `env.args` may set."""
    names = {name for base in cls.__mro__ for name in vars(base) if not name.startswith("_")} - {"agents"}
    found = {name: getattr(cls, name) for base in reversed(cls.__mro__) for name in vars(base) if name in names}
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


def _args(cls: type[Env], given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings asked for, each known and of the kind of its default."""
    known, args = settings(cls), dict(given)
    if isinstance(args.get("tools"), str):
        args["tools"] = [args["tools"]]
    for name, value in args.items():
        if name not in known:
            raise UsageError(f"{cls.__name__} has no setting {name!r} (env.args.{name}); {nearest(name, known)}")
        default = [known[name]] if name == "tools" and isinstance(known[name], str) else known[name]
        if not _fits(value, default):
            raise UsageError(f"env.args.{name}={value!r} must be like its default, {known[name]!r}")
    return args


def _fits(value: Any, default: Any) -> bool:
    """Whole numbers pass where a fraction is the default; nothing else changes its kind."""
    if isinstance(default, float) and not isinstance(default, bool):
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if isinstance(default, (list, tuple)):
        return isinstance(value, (list, tuple))
    return isinstance(value, type(default)) and isinstance(value, bool) == isinstance(default, bool)


def _what(thing: Any) -> str:
    return f"the class {thing.__name__}" if isinstance(thing, type) else f"a {type(thing).__name__}"
