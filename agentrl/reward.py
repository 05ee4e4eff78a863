"""Rewards: functions that look at a finished episode. Marked on an environment's methods, summed with weights.

`@reward` methods may ask, by parameter name, for: `episode` (everything but rewards), `task` (with its secret), and
`fresh` (a new sandbox that the agent never touched). `@metric` is the same without influence on training.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from numbers import Real
from types import FunctionType, MethodType
from typing import Any, TypeVar, overload

from agentrl.blame import blaming
from agentrl.episode import Episode
from agentrl.errors import UsageError, nearest
from agentrl.sandbox import SandboxError, SandboxPool
from agentrl.threads import invoke

MAY_ASK = ("episode", "task", "fresh")
"""Parameters that a reward may have."""

F = TypeVar("F", bound=Callable[..., Any])


class RewardError(RuntimeError):
    """A reward function failed or gave what is no finite number. The episode is aborted, not scored 0."""


@overload
def reward(weight: F) -> F: ...
@overload
def reward(weight: float = 1.0) -> Callable[[F], F]: ...
def reward(weight: Any = 1.0) -> Any:
    """Marks a method of an environment as a reward: `@reward`, `@reward()` or `@reward(weight=0.5)`."""
    if callable(weight):
        return reward()(weight)

    factor = float(weight)
    if not math.isfinite(factor):
        raise UsageError(f"a reward's weight is a finite number, not {weight!r}")

    def mark(f: F) -> F:
        f.__agentrl_reward__ = factor  # type: ignore[attr-defined]
        return f

    return mark


def metric(function: F) -> F:
    """Marks a method of an environment as a metric: logged, not trained on."""
    function.__agentrl_reward__ = None  # type: ignore[attr-defined]
    return function


async def score(env: Any, episode: Episode, pool: SandboxPool | None) -> Episode:
    """A finished episode with its rewards (times their weights) and metrics. Raises RewardError, SandboxError, UsageError.

    Of several agents each gets what its own turns gave; a reward function that gives a number rewards all that are trained, one
    that gives name -> number each by its name.
    """
    found = marked(type(env))
    names = [episode.agent, *(side.name for side in episode.others if side.trained)]
    early = {episode.agent: episode.rewards, **{side.name: side.rewards for side in episode.others}}
    rewards = {name: _of_turns(name, episode, early[name], always=not found) for name in names}
    metrics = dict(episode.metrics)
    for name, function, weight in found:
        value = await _call(name, MethodType(function, env), episode, pool)
        if weight is None:
            metrics[name] = _number(name, function, value)
        else:
            for agent, number in _by_agent(name, function, value, names).items():
                rewards[agent][name] = weight * number
    others = tuple(replace(side, rewards=rewards.get(side.name, {})) for side in episode.others)
    return replace(episode, rewards=rewards[episode.agent], metrics=metrics, others=others)


def _of_turns(agent: str, episode: Episode, early: Mapping[str, float], *, always: bool) -> dict[str, float]:
    """What its turns gave, and what came before them, as "env"; left out where that is nothing, unless no other rewards are
    given."""
    total = sum(early.values()) + sum(turn.reward for turn in episode.turns if turn.agent == agent)
    return {"env": total} if total or always else {}


def _by_agent(name: str, function: Callable[..., Any], value: Any, agents: Sequence[str]) -> dict[str, float]:
    if not isinstance(value, Mapping):
        return dict.fromkeys(agents, _number(name, function, value))
    with blaming(function):
        for agent in value:
            if agent not in agents:
                raise RewardError(
                    f"reward {name!r} rewards the agent {agent!r}, which is not trained; {nearest(agent, agents)}"
                )
    return {agent: _number(name, function, number) for agent, number in value.items()}


def _number(name: str, function: Callable[..., Any], value: Any) -> float:
    with blaming(function):
        if not isinstance(value, Real) or not math.isfinite(value):
            raise RewardError(f"reward {name!r} gave {value!r}; it must be a finite number")
    return float(value)


def marked(cls: type) -> list[tuple[str, FunctionType, float | None]]:
    """(name, function, weight or None for a metric) in the order in which they are written, base classes first: a later one
    may read what an earlier one has found."""
    names = dict.fromkeys(name for base in reversed(cls.__mro__) for name in vars(base))
    functions = [(name, getattr(cls, name, None)) for name in names]
    return [
        (n, f, f.__agentrl_reward__) for n, f in functions if isinstance(f, FunctionType) and hasattr(f, "__agentrl_reward__")
    ]


async def _call(name: str, function: Callable[..., Any], episode: Episode, pool: SandboxPool | None) -> Any:
    wanted = inspect.signature(function).parameters
    given: dict[str, Any] = {}
    if "episode" in wanted:
        given["episode"] = episode
    if "task" in wanted:
        given["task"] = episode.task
    fresh = None
    if "fresh" in wanted:
        if pool is None:
            raise UsageError(f"reward {name!r} asks for a fresh sandbox, but the environment declares no SandboxSpec")
        fresh = given["fresh"] = await pool.acquire()
    try:
        return await invoke(function, **given)
    except (RewardError, SandboxError, UsageError):
        raise
    except Exception as error:
        raise RewardError(f"reward {name!r} raised {type(error).__name__}: {error}") from error
    finally:
        if fresh is not None:
            await fresh.aclose()
