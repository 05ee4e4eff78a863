"""Rewards: functions that look at a finished episode. Marked on an environment's methods, summed with weights.

`@reward` methods may ask, by parameter name, for: `episode` (everything but rewards), `task` (with its secret), and
`fresh` (a new sandbox that the agent never touched). `@metric` is the same without influence on training.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from numbers import Real
from types import FunctionType, MethodType
from typing import Any, TypeVar, overload

from agentrl.blame import blaming
from agentrl.episode import Episode
from agentrl.errors import UsageError
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


async def score(env: Any, episode: Episode, pool: SandboxPool | None) -> tuple[dict[str, float], dict[str, float]]:
    """(rewards times weights, metrics) of a finished episode. Raises RewardError, SandboxError, UsageError."""
    rewards: dict[str, float] = {}
    metrics: dict[str, float] = {}
    turn_sum = sum(turn.reward for turn in episode.turns)
    found = marked(type(env))
    if turn_sum or not found:
        rewards["env"] = turn_sum
    for name, function, weight in found:
        value = await _call(name, MethodType(function, env), episode, pool)
        if weight is None:
            metrics[name] = value
        else:
            rewards[name] = weight * value
    return rewards, metrics


def marked(cls: type) -> list[tuple[str, FunctionType, float | None]]:
    """(name, function, weight or None for a metric) in the order in which they are written, base classes first: a later one
    may read what an earlier one has found."""
    names = dict.fromkeys(name for base in reversed(cls.__mro__) for name in vars(base))
    functions = [(name, getattr(cls, name, None)) for name in names]
    return [
        (n, f, f.__agentrl_reward__) for n, f in functions if isinstance(f, FunctionType) and hasattr(f, "__agentrl_reward__")
    ]


async def _call(name: str, function: Callable[..., Any], episode: Episode, pool: SandboxPool | None) -> float:
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
        value = await invoke(function, **given)
    except (RewardError, SandboxError, UsageError):
        raise
    except Exception as error:
        raise RewardError(f"reward {name!r} raised {type(error).__name__}: {error}") from error
    finally:
        if fresh is not None:
            await fresh.aclose()
    with blaming(function):
        if not isinstance(value, Real) or not math.isfinite(value):
            raise RewardError(f"reward {name!r} gave {value!r}; it must be a finite number")
    return float(value)
