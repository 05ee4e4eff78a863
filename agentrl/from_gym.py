"""gymnasium's and PettingZoo's environments as agentrl's: spaces in words, actions read from text.

>>> lake = from_gymnasium("FrozenLake-v1", is_slippery=False)                      # doctest: +SKIP

On the command line `env=gymnasium:FrozenLake-v1`, `env=pettingzoo:classic.rps_v2`, or a class of one's own: `env=mine.py:Mine`.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from agentrl.agent import Agent
from agentrl.env import Env, Step
from agentrl.errors import MissingExtra, UsageError, nearest
from agentrl.messages import Action
from agentrl.task import Task
from agentrl.threads import in_thread

OBSERVE = ("auto", "words", "ansi", "rgb_array")

ACTIONS = {
    "FrozenLake": ("left", "down", "right", "up"),
    "CliffWalking": ("up", "right", "down", "left"),
    "Taxi": ("south", "north", "east", "west", "pickup", "dropoff"),
    "Blackjack": ("stick", "hit"),
    "CartPole": ("left", "right"),
    "MountainCar": ("left", "nothing", "right"),
}
"""Of gymnasium's own environments: what their numbers mean."""


class FromGymnasium(Env):
    """A gymnasium environment. Its rewards are those of the turns, its episode is one episode."""

    max_turns = 100
    make_args: dict[str, Any] = {}
    """What `gymnasium.make`, or the class, is given besides."""
    observe: str = "auto"
    """words (the observation space in words) | ansi (what it renders as text) | rgb_array (as a picture) | auto: ansi where it
    has that, else words."""
    actions: Sequence[str] = ()
    """Words for the numbers of a Discrete action space, in their order."""
    about: str = ""
    """Said before the first observation."""

    make_gym: Callable[..., Any]
    """(render_mode, **make_args) -> the environment."""

    def reset(self, task: Task) -> Any:
        from agentrl.spaces import asked

        self._gym, self._mode = self._made()
        seed = self.rng.getrandbits(31)
        self._gym.action_space.seed(seed)
        observation, info = self._gym.reset(seed=seed)
        says = f"Your action is {asked(self._gym.action_space, self.actions)}."
        return [text for text in (task.prompt, self.about) if text] + [f"{says}\n"] + self._parts(observation), info

    def step(self, action: Action) -> Step:
        from agentrl.spaces import reader

        move = action.parse(reader(self._gym.action_space, self.actions))
        observation, reward, terminated, truncated, info = self._gym.step(move)
        return Step(self._parts(observation), float(reward), bool(terminated), bool(truncated), info)  # type: ignore[arg-type]

    async def close(self) -> None:
        if hasattr(self, "_gym"):
            await in_thread(self._gym.close)

    def _made(self) -> tuple[Any, str]:
        """(the environment, how it is observed)."""
        if self.observe not in OBSERVE:
            raise UsageError(f"observe={self.observe!r}; {nearest(self.observe, OBSERVE)}")
        if self.observe == "words":
            return self.make_gym(**self.make_args), "words"
        if self.observe != "auto":
            return self.make_gym(render_mode=self.observe, **self.make_args), self.observe
        plain = self.make_gym(**self.make_args)
        if "ansi" not in plain.metadata.get("render_modes", ()):
            return plain, "words"
        plain.close()
        return self.make_gym(render_mode="ansi", **self.make_args), "ansi"

    def _parts(self, observation: Any) -> list[Any]:
        from agentrl.spaces import shown

        value = shown(self._gym.observation_space, observation) if self._mode == "words" else self._gym.render()
        if isinstance(value, str):
            value = _plain(value)
        return value if isinstance(value, list) else [value]


@lru_cache(maxsize=64)
def from_gymnasium(id: str | type, *, actions: tuple[str, ...] = (), about: str = "", **make_args: Any) -> type[Env]:
    """The environment class of a gymnasium id ("FrozenLake-v1", "module:Name-v0") or class. `actions`: words for the numbers of
    a Discrete action space. Raises UsageError for an id that is not registered."""
    import gymnasium

    known: Sequence[str] = ()
    limit = None
    if isinstance(id, str):
        try:
            spec = gymnasium.spec(id)
        except (gymnasium.error.Error, ModuleNotFoundError) as error:
            raise UsageError(f"env=gymnasium:{id}: {error}; {nearest(id, gymnasium.registry)}") from error
        known, limit = ACTIONS.get(spec.name, ()), spec.max_episode_steps

    def make_gym(self: Any, **given: Any) -> Any:
        return gymnasium.make(id, **given) if isinstance(id, str) else id(**given)

    name = id.__name__ if isinstance(id, type) else "".join(filter(str.isalnum, id))
    body = {
        "__doc__": (id.__doc__ if isinstance(id, type) else None) or f"gymnasium's {name}.",
        "__module__": id.__module__ if isinstance(id, type) else __name__,
        "make_gym": make_gym,
        "make_args": make_args,
        "actions": actions or known,
        "about": about,
        "max_turns": limit or FromGymnasium.max_turns,
    }
    return type(name, (FromGymnasium,), body)


class FromPettingZoo(Env):
    """A PettingZoo environment of the AEC kind: its agents speak in turn, each gets its own rewards."""

    max_turns = 100
    make_args: dict[str, Any] = {}
    make_zoo: Callable[..., Any]

    async def play(self, task: Task, *agents: Agent) -> None:
        zoo = await in_thread(self.make_zoo, **self.make_args)
        try:
            await in_thread(zoo.reset, seed=self.rng.getrandbits(31))
            by_name = {agent.name: agent for agent in agents}
            for name in zoo.agent_iter():
                await self._turn(zoo, by_name[name])
        finally:
            await in_thread(zoo.close)

    async def _turn(self, zoo: Any, agent: Agent) -> None:
        from agentrl.spaces import asked, reader, shown

        space = zoo.action_space(agent.name)
        observation, reward, terminated, truncated, info = await in_thread(zoo.last)
        agent.add_reward(float(reward))
        mask = info.get("action_mask")
        where = zoo.observation_space(agent.name)
        if isinstance(observation, dict) and "action_mask" in observation:
            mask, observation, where = observation["action_mask"], observation["observation"], where["observation"]
        seen = shown(where, observation)
        if terminated or truncated:
            agent.show(seen)
            await in_thread(zoo.step, None)
            return
        legal = None if mask is None else [int(index) for index, allowed in enumerate(mask) if allowed]
        says = f"{asked(space)}{'' if legal is None else f', now of {legal}'}"
        told = [f"You are {agent.name}. Your action is {says}.\n", *(seen if isinstance(seen, list) else [seen])]
        await in_thread(zoo.step, await agent.ask(told, reader(space, legal=legal)))


@lru_cache(maxsize=64)
def from_pettingzoo(name: str, **make_args: Any) -> type[Env]:
    """The environment class of a module of PettingZoo ("classic.rps_v2") or of one's own ("my_pkg.game") with a function `env`.
    Raises UsageError, MissingExtra."""
    try:
        module = importlib.import_module(f"pettingzoo.{name}")
    except ModuleNotFoundError as error:
        if error.name == "pettingzoo":
            raise MissingExtra("pettingzoo", extra="pettingzoo") from None
        if error.name is None or not error.name.startswith("pettingzoo."):
            raise UsageError(
                f"env=pettingzoo:{name} needs the package {error.name}: pip install 'pettingzoo[classic]'"
            ) from error
        raise UsageError(f"there is no module pettingzoo.{name}") from None
    return zoo_class(name.rpartition(".")[2], module.env, make_args)


def zoo_class(name: str, make: Callable[..., Any], make_args: dict[str, Any]) -> type[Env]:
    """`make(**make_args)` gives an AECEnv."""
    zoo = make(**make_args)
    agents = tuple(zoo.possible_agents)
    zoo.close()
    body = {
        "__doc__": f"PettingZoo's {name}.",
        "__module__": __name__,
        "make_zoo": staticmethod(make),
        "make_args": dict(make_args),
        "agents": agents,
    }
    return type(name, (FromPettingZoo,), body)


def is_gymnasium(cls: Any) -> bool:
    """Is it a class of gymnasium's kind? Does not import gymnasium."""
    return isinstance(cls, type) and any(
        base.__module__.startswith("gymnasium.") and base.__name__ == "Env" for base in cls.__mro__
    )


def _plain(text: str) -> str:
    """Without the colors of a terminal: a marked cell stands in brackets, as gymnasium's text games mean it."""
    return re.sub(r"\x1b\[[\d;]*m", "", re.sub(r"\x1b\[[\d;]+m(.*?)\x1b\[0m", r"[\1]", text))
