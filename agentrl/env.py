"""What an agent acts in. The author writes messages and rewards; tokens, engines and threads are not seen here."""

from __future__ import annotations

import math
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from numbers import Real
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from agentrl.messages import Action, Message, as_messages
from agentrl.task import Task, TaskSource, task_id

if TYPE_CHECKING:
    from agentrl.agent import AgentSpec
    from agentrl.episode import Episode


class Step(NamedTuple):
    """Gymnasium's five: what the agent sees next, the reward of this turn, whether and how it is over."""

    observation: tuple[Message, ...] = ()
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False
    info: Mapping[str, Any] = {}


def done(observation: Any = "", reward: float = 0.0, **info: Any) -> Step:
    """The task has come to its end. Raises TypeError for an `info` that reads like a misspelt argument.

    >>> done("Correct.", reward=1.0).terminated
    True
    """
    for name in info:
        if near := get_close_matches(name, ("observation", "reward"), n=1, cutoff=0.75):
            raise TypeError(f"done() has no argument {name!r}; did you mean {near[0]!r}?")
    return Step(as_messages(observation), float(reward), True, False, info)


def as_step(value: Any) -> Step:
    """What `Env.step` may return, as a Step: str, image, message(s), (obs, reward), (obs, reward, done), or the five.

    Raises ValueError for a reward that is no finite number, TypeError for an observation that is none.

    >>> as_step("Higher.").observation[0].text, as_step(("Lower.", 0.5)).reward
    ('Higher.', 0.5)
    """
    if isinstance(value, Step):
        return value._replace(observation=as_messages(value.observation), reward=_finite(value.reward))
    if isinstance(value, tuple) and len(value) in (2, 3, 5) and isinstance(value[1], str) and _is_number(value[1]):
        raise TypeError(f"a step's second value is its reward, a number; it gave the text {value[1]!r}")
    if isinstance(value, tuple) and len(value) == 4 and isinstance(value[1], Real):
        raise TypeError(
            "a step gives (observation, reward), (observation, reward, done) or gymnasium's five; it gave four values"
        )
    if isinstance(value, tuple) and len(value) in (2, 3, 5) and isinstance(value[1], Real):
        observation, reward, *rest = value
        terminated = bool(rest[0]) if rest else False
        truncated = bool(rest[1]) if len(rest) == 3 else False
        info = rest[2] if len(rest) == 3 else {}
        return Step(as_messages(observation), _finite(reward), terminated, truncated, info)
    return Step(as_messages(value))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _finite(reward: Any) -> float:
    if not math.isfinite(reward):
        raise ValueError(f"a step gave the reward {reward}; it must be a finite number")
    return float(reward)


class Env:
    """One episode's world. An instance is used once.

    The runner sets `rng` (seeded from task and seed, the same for all siblings), `task`, and `sandbox` (an open
    `agentrl.Sandbox` where the class declares a `SandboxSpec`), then calls `reset` and `step`. Both may be async; sync
    ones run in a thread. A class that defines `async def play(self, task, *agents)` has neither: it talks to its agents itself.

    >>> class Echo(Env):
    ...     max_turns = 2
    ...     def reset(self, task): return "Say something."
    ...     def step(self, action): return done(f"You said {action.text}", reward=1.0)
    """

    max_turns: int = 10
    """Answers of the agent; of each, where there are several."""
    max_tokens: int = 0
    """Of a conversation, where that is less than the run's own budget; 0: the run's own."""
    history_window: int = 0
    """How many of its last turns the agent sees besides the opening; 0: all."""
    system_prompt: str = ""
    tools: Sequence[Any] = ()
    """Names, functions, "module:function"; methods marked with @tool need not be named."""
    sandbox: Any = None
    """On the class: a SandboxSpec or None. On the instance, while it is played: the open sandbox."""

    agents: Mapping[str, AgentSpec] | Sequence[str] = MappingProxyType({})
    """Of `play`: settings of its agents by name."""
    play: Callable[..., Awaitable[Any]] | None = None
    """`async def play(self, task, assistant, user)`: instead of `reset` and `step`, for dialogues and several agents. May give
    nothing, `done(...)`, a reward, or the reward of each agent by name."""

    rng: random.Random
    task: Task

    @classmethod
    def tasks(cls, *_: Any, **args: Any) -> TaskSource | Iterable[Task]:
        """Where its tasks come from: a source, or a list. A class of one's own names its parameters: they are the config's
        `env.tasks`, and the run's seed for a parameter `seed`. Default: endless tasks that differ by seed."""
        if args:
            raise TypeError(f"{cls.__name__}.tasks takes no arguments, got {', '.join(args)}")
        return SeededTasks(name=cls.__name__)

    def reset(self, task: Task) -> Any:
        """The first observation: str, image, messages, or (observation, info). Default: the task's prompt."""
        return task.prompt

    def step(self, action: Action) -> Any:
        """Called for actions without tool calls. Default: the answer ends the episode."""
        return done()

    async def finished(self, episode: Episode) -> None:
        """Sees the whole episode with its rewards, whatever became of it, before `close`. May be sync."""

    def wrap_tool(self, tool: Any) -> Any:
        """A tool of this episode, or what stands in its place."""
        return tool

    async def close(self) -> None:
        """Gives back what `reset` took. Called once, however the episode ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeededTasks:
    """Endless tasks of an environment that makes its world from its own rng; training and evaluation never overlap."""

    name: str

    def get(self, index: int) -> Task:
        return Task(id=task_id(self.name, "train", index))

    def held_out(self, count: int) -> list[Task]:
        return [Task(id=task_id(self.name, "held_out", i)) for i in range(count)]
