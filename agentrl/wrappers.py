"""Changes of an environment that need no change of its code: functions from a class to a class, to be combined as one likes.

>>> class Echo(Env):
...     def step(self, action): return f"You said {action.text}."
>>> limit_turns(history_window(Echo, 2), 3).max_turns
3

On the command line: `env.wrap.limit_turns=3 env.wrap.history_window=2`, applied in that order (`apply`). They hold for both
ways of writing an environment, except where they say so.
"""

from __future__ import annotations

import inspect
import json
import os
import random
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from agentrl.agent import plays
from agentrl.env import Env
from agentrl.episode import Episode, to_json
from agentrl.errors import UsageError, nearest
from agentrl.messages import Action, Message, ParseError
from agentrl.reward import RewardError, metric, reward
from agentrl.sandbox import SandboxError
from agentrl.threads import in_thread, invoke
from agentrl.tool import ToolResult

Cls = type[Env]


class InjectedFault(RuntimeError):
    """A step that `inject_faults` has broken."""


def limit_turns(cls: Cls, turns: int) -> Cls:
    """At most so many turns."""
    return _changed(cls, max_turns=min(cls.max_turns, _at_least(1, "limit_turns", turns)))


def budget_tokens(cls: Cls, tokens: int) -> Cls:
    """At most so many tokens in a conversation, prompt and observations included."""
    return _changed(cls, max_tokens=min(cls.max_tokens or tokens, _at_least(1, "budget_tokens", tokens)))


def history_window(cls: Cls, turns: int) -> Cls:
    """The agent sees the opening and its last `turns` turns. Each time something falls out of sight a transcript begins anew;
    all of them are trained."""
    return _changed(cls, history_window=_at_least(1, "history_window", turns))


def add_tools(cls: Cls, tools: Any) -> Cls:
    """More tools: whatever may stand in `Env.tools`, one or several."""
    more = list(tools) if isinstance(tools, (list, tuple)) else [tools]
    have = [cls.tools] if isinstance(cls.tools, str) else list(cls.tools)
    return _changed(cls, tools=[*have, *more])


def format_reward(cls: Cls, pattern: str, weight: float = 0.1) -> Cls:
    """A reward, `format`: the share of an agent's answers in which the regular expression is found, times `weight`."""
    try:
        form = re.compile(pattern, re.DOTALL)
    except re.error as error:
        raise UsageError(f"format_reward: {pattern!r} is no regular expression: {error}") from error

    def share(messages: Sequence[Message]) -> float:
        said = [message.text for message in messages if message.role == "assistant"]
        return sum(form.search(text) is not None for text in said) / len(said) if said else 0.0

    def format(self: Env, episode: Episode) -> Mapping[str, float]:
        others = {side.name: share(side.messages[side.opening :]) for side in episode.others if side.trained}
        return {episode.agent: share(episode.messages[episode.opening :]), **others}

    return _changed(cls, format=reward(weight)(format))


def mask_errors(cls: Cls, says: str = "That did not work.") -> Cls:
    """An error in `step` is told to the agent instead of aborting the episode, and counted in the metric `masked_errors`. What
    a sandbox, a grader or a wrong setting raises is not masked. Not for `play`. Raises UsageError."""
    _steps(cls, "mask_errors")

    async def step(self: Any, action: Action) -> Any:
        try:
            return await invoke(partial(cls.step, self), action)
        except (ParseError, UsageError, SandboxError, RewardError):
            raise
        except Exception:
            self._masked += 1
            return says

    def masked_errors(self: Any) -> float:
        return float(self._masked)

    return _changed(cls, step=step, masked_errors=metric(masked_errors), _masked=0)


def inject_faults(cls: Cls, rate: float, *, crash: float = 0.0) -> Cls:
    """A share `rate` of tool calls is answered with an error instead of being run; a share `crash` of steps raises
    InjectedFault, which aborts the episode (not for `play`). Which ones depends on the task alone. Raises UsageError."""
    for name, share in (("rate", rate), ("crash", crash)):
        if not 0 <= share <= 1:
            raise UsageError(f"inject_faults: {name} is a share from 0 to 1, not {share!r}")

    def wrap_tool(self: Any, tool: Any) -> Any:
        return _Unreliable(cls.wrap_tool(self, tool), self, rate)

    async def step(self: Any, action: Action) -> Any:
        if _faults(self).random() < crash:
            raise InjectedFault("a fault that inject_faults has put here")
        return await invoke(partial(cls.step, self), action)

    if not crash:
        return _changed(cls, wrap_tool=wrap_tool)
    _steps(cls, "inject_faults(crash=...)")
    return _changed(cls, wrap_tool=wrap_tool, step=step)


def record(cls: Cls, path: str) -> Cls:
    """Appends each finished episode to a file of JSON lines, as runs write them. The task's secret is left out."""
    file = Path(path).expanduser()
    if not file.parent.is_dir():
        raise UsageError(f"record: there is no folder {file.parent}")

    async def finished(self: Env, episode: Episode) -> None:
        await invoke(partial(cls.finished, self), episode)
        await in_thread(_append, file, json.dumps(to_json(episode), allow_nan=False) + "\n")

    return _changed(cls, finished=finished)


WRAPPERS: dict[str, Callable[..., Cls]] = {
    "add_tools": add_tools,
    "budget_tokens": budget_tokens,
    "format_reward": format_reward,
    "history_window": history_window,
    "inject_faults": inject_faults,
    "limit_turns": limit_turns,
    "mask_errors": mask_errors,
    "record": record,
}
"""By the names of `env.wrap`."""


def apply(cls: Cls, wrap: Mapping[str, Any]) -> Cls:
    """The class in these wrappers, the first one innermost: name -> its argument, a mapping of its arguments, or true for none.
    Raises UsageError."""
    for name, value in wrap.items():
        if name not in WRAPPERS:
            raise UsageError(f"there is no wrapper {name!r} (env.wrap.{name}); {nearest(name, WRAPPERS)}")
        args = () if value is True or isinstance(value, Mapping) else (value,)
        named = {str(key): item for key, item in value.items()} if isinstance(value, Mapping) else {}
        try:
            inspect.signature(WRAPPERS[name]).bind(cls, *args, **named)
        except TypeError as error:
            raise UsageError(f"env.wrap.{name}={value!r}: {error}; it takes {_arguments(WRAPPERS[name])}") from error
        cls = WRAPPERS[name](cls, *args, **named)
    return cls


def _arguments(wrapper: Callable[..., Cls]) -> str:
    return ", ".join(list(inspect.signature(wrapper).parameters)[1:])


class _Unreliable:
    """A tool that fails now and then."""

    def __init__(self, tool: Any, env: Any, rate: float) -> None:
        self.spec = tool.spec
        self.asks = getattr(tool, "asks", ())
        self._tool, self._env, self._rate = tool, env, rate

    async def __call__(self, arguments: Mapping[str, Any], context: Mapping[str, Any]) -> ToolResult:
        if _faults(self._env).random() < self._rate:
            return ToolResult.error(f"{self.spec.name} is not available just now")
        result: ToolResult = await self._tool(arguments, context)
        return result


def _faults(env: Any) -> random.Random:
    """A stream of its own: the world's own draws stay what they are."""
    if "_faults" not in vars(env):
        env._faults = random.Random(f"faults {env.task.id}")
    rng: random.Random = env._faults
    return rng


def _changed(cls: Cls, **body: Any) -> Cls:
    """A subclass that goes by the same name, and stands in the same file."""
    about = {"__doc__": cls.__doc__, "__module__": cls.__module__, "__qualname__": cls.__qualname__}
    return type(cls.__name__, (cls,), {**about, **body})


def _steps(cls: Cls, name: str) -> None:
    if plays(cls):
        raise UsageError(f"{name} is about step, and {cls.__name__} has play instead")


def _at_least(least: int, name: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise UsageError(f"{name} takes a whole number of at least {least}, not {value!r}")
    return value


def _append(file: Path, line: str) -> None:
    """In one write, so that lines of episodes that end together do not mix."""
    handle = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(handle, line.encode())
    finally:
        os.close(handle)
