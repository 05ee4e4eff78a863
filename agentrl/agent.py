"""The agents of an environment that is written as a coroutine: `async def play(self, task, *agents)`.

What an author declares (`AgentSpec`), what `play` is given (`Agent`), and which agents a class has (`agents_of`). Those who
sit behind an agent, an engine or a script, are made by the runner.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from agentrl.errors import UsageError, nearest
from agentrl.messages import Action, Message

Says = Callable[[Any, Sequence[Message]], "str | Awaitable[str]"]
"""(environment, the conversation as this agent sees it) -> what it says. May be async."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSpec:
    """One agent of an environment.

    >>> agents = {"user": AgentSpec(train=False, system_prompt="You are a customer.")}
    """

    system_prompt: str | None = None
    """None: the environment's, where it is trained, else none."""
    train: bool = True
    """False: the policy speaks for it, and what it says is not trained: a simulated user."""
    says: Says | None = None
    """A function in its place, such as a method written above: never trained, costs no tokens."""
    tools: Sequence[str] | None = None
    """Names of the environment's tools that it may call. None: all, where it is trained, else none."""

    @property
    def trained(self) -> bool:
        return self.train and self.says is None


class Agent(Protocol):
    """What `play` gets for each agent."""

    @property
    def name(self) -> str: ...

    @property
    def system_prompt(self) -> str:
        """May be set until it first speaks."""
        ...

    @system_prompt.setter
    def system_prompt(self, text: str) -> None: ...

    @property
    def messages(self) -> Sequence[Message]:
        """Its conversation so far."""
        ...

    async def say(self, *observation: Any) -> Action:
        """Shows it something (text, images, messages) and waits for its answer. Tools that it calls run in between."""
        ...

    async def ask(self, observation: Any, form: Any, *, tries: int | None = None) -> Any:
        """As `say`, and reads the answer: `form` is what `Action.parse` takes, or a list of words. What cannot be read, or
        raises ParseError, is told to the agent, which answers again: another turn. The last of `tries` raises ParseError."""
        ...

    def show(self, *observation: Any) -> None:
        """Something that it sees together with what it is told next, or as its last message."""
        ...

    def add_reward(self, reward: float) -> None:
        """For its last turn. Rewards add up."""
        ...


def plays(cls: type) -> bool:
    """Is the class written as a coroutine?"""
    return getattr(cls, "play", None) is not None


def agents_of(env: Any) -> dict[str, AgentSpec]:
    """Name -> settings of each agent, in the order in which `play` gets them. Their names are those of its parameters; where
    it has `*agents`, the keys of `env.agents`. Raises UsageError.

    >>> class Talk:
    ...     agents = {"user": AgentSpec(train=False)}
    ...     async def play(self, task, user, assistant): ...
    >>> [(name, spec.trained) for name, spec in agents_of(Talk()).items()]
    [('user', False), ('assistant', True)]
    """
    given = _given(env)
    parameters = list(inspect.signature(env.play).parameters.values())[1:]
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        names = list(given)
        if not names:
            raise UsageError(
                f"{_name(env)}.play takes *{parameters[-1].name}: name them in `agents`, as in agents = ('x', 'o')"
            )
    else:
        names = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        for name in given:
            if name not in names:
                raise UsageError(f"{_name(env)}.agents: play has no parameter {name!r}; {nearest(name, names)}")
    found = {name: given.get(name, AgentSpec()) for name in names}
    if not any(spec.trained for spec in found.values()):
        raise UsageError(f"{_name(env)}: play has no agent that is trained; it needs one, as in play(self, task, assistant)")
    return found


def main_agent(agents: Mapping[str, AgentSpec]) -> str:
    """The first one that is trained: the episode's reward is its own."""
    return next(name for name, spec in agents.items() if spec.trained)


def _given(env: Any) -> dict[str, AgentSpec]:
    value = env.agents
    if isinstance(value, str) or not isinstance(value, (Mapping, Sequence)):
        raise UsageError(f"{_name(env)}.agents must be a list of names, or name -> rl.AgentSpec(...), not {value!r:.60}")
    given = dict(value) if isinstance(value, Mapping) else {name: AgentSpec() for name in value}
    for name, spec in given.items():
        if not isinstance(name, str) or not name or "/" in name:
            raise UsageError(f"{_name(env)}.agents: an agent's name is a text without '/', not {name!r}")
        if not isinstance(spec, AgentSpec):
            raise UsageError(f"{_name(env)}.agents[{name!r}] must be rl.AgentSpec(...), not {spec!r:.60}")
    return given


def _name(env: Any) -> str:
    return type(env).__name__
