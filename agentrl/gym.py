"""agentrl's environments as gymnasium's: text in, text out. Importing this registers the bundled ones.

>>> import gymnasium, agentrl.gym                                        # doctest: +SKIP
>>> env = gymnasium.make("agentrl/GuessNumber-v0", max_turns=5)          # doctest: +SKIP
>>> observation, info = env.reset(seed=1)                                # doctest: +SKIP

The other way round, a gymnasium environment that is trained here, is `agentrl.from_gym`.
"""

from __future__ import annotations

import queue
import string
from collections.abc import Mapping
from typing import Any

import gymnasium

from agentrl import registry
from agentrl.config import EnvConfig
from agentrl.errors import UsageError
from agentrl.outside import DAY, Outside, Shown
from agentrl.world import build

LONGEST = 1 << 22
"""Characters of a text."""
SAMPLED = 24
"""Characters of a text drawn at random."""
TASKS = 1 << 31
"""A seed chooses one of so many tasks."""


class AnyText(gymnasium.spaces.Text):
    """Every text, whatever its characters; a sample is of a few letters and digits.

    >>> "Ja, gern: 1/2 €" in AnyText()
    True
    """

    def __init__(self, seed: Any = None) -> None:
        super().__init__(LONGEST, min_length=0, charset=string.ascii_letters + string.digits + " ", seed=seed)

    def contains(self, x: Any) -> bool:
        return isinstance(x, str) and len(x) <= LONGEST

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        if mask is not None or probability is not None:
            return super().sample(mask, probability)
        letters = self.np_random.choice(self.character_list, size=self.np_random.integers(1, SAMPLED + 1))
        return "".join(letters)


class TextEnv(gymnasium.Env[str, str]):
    """An agentrl environment. `seed` of reset chooses the task and the world's start; `options={"task": n}` the n-th task, with
    `"held_out": True` of those for evaluation.

    The reward of a step is what the answer brought; the last one holds all that is given at the end. `info` says who is to
    speak (`agent`) where there are several, the `tools` at the start, and `outcome`, `rewards` and `metrics` at the end.
    """

    metadata = {"render_modes": ["ansi"], "render_fps": 1}  # gymnasium asks for a rate, also of texts

    def __init__(self, id: str, *, render_mode: str | None = None, tasks: Mapping[str, Any] | None = None, **args: Any) -> None:
        """`tasks` and `args`: as the config's `env.tasks` and `env.args`. Raises UsageError."""
        if render_mode not in (None, "ansi"):
            raise UsageError(f"render_mode is 'ansi' or None, not {render_mode!r}")
        self.render_mode = render_mode
        self.observation_space = AnyText()
        self.action_space = AnyText()
        self._world = build(EnvConfig(id=id, tasks=dict(tasks or {}), args=args), seed=0)
        self._arrivals: queue.Queue[Shown | Exception] = queue.Queue()
        self._outside = Outside(self._world, self._arrivals.put)
        self._said: list[str] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        options = options or {}
        number = int(options.get("task", self.np_random.integers(TASKS)))
        source = self._world.tasks
        task = source.held_out(number + 1)[number] if options.get("held_out") else source.get(number)
        self._outside.start(task, int(self.np_random.integers(TASKS)))
        shown = self._arrival()
        self._said = [shown.observation]
        return shown.observation, shown.info

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Raises RolloutError for an episode that breaks."""
        self._outside.answer(action)
        shown = self._arrival()
        self._said += [f"> {action}", shown.observation]
        return shown.observation, shown.reward, shown.terminated, shown.truncated, shown.info

    def render(self) -> str | None:
        """The conversation so far."""
        return "\n\n".join(self._said) if self.render_mode == "ansi" else None

    def close(self) -> None:
        self._outside.close()

    def _arrival(self) -> Shown:
        arrived = self._arrivals.get(timeout=DAY)
        if isinstance(arrived, Exception):
            raise arrived
        return arrived


def gym_id(target: str) -> str:
    """The id in gymnasium's registry, from where the class is.

    >>> gym_id("agentrl.envs.guess_number:GuessNumber")
    'agentrl/GuessNumber-v0'
    """
    return f"agentrl/{target.rpartition(':')[2]}-v0"


def register() -> None:
    """All bundled environments, and those of installed packages. May be called again."""
    for name, target in registry.names("env").items():
        if gym_id(target) not in gymnasium.registry:
            gymnasium.register(gym_id(target), entry_point="agentrl.gym:TextEnv", kwargs={"id": name})


register()
