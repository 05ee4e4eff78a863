"""Many episodes at once for programs of one's own: whatever is ready comes first. `rl.vector("guess_number", 64)`.

Episodes of language models differ in length and time, so that a step of all at once would wait for the slowest each time.
"""

from __future__ import annotations

import queue
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from agentrl.config import EnvConfig
from agentrl.errors import UsageError
from agentrl.outside import DAY, Outside, Shown
from agentrl.world import build


class Arrival(NamedTuple):
    """What has come of one episode: its place, and gymnasium's five. Answer it by `send(place, text)`, unless it is the end."""

    place: int
    observation: str
    reward: float
    terminated: bool
    truncated: bool
    info: dict[str, Any]

    @property
    def is_last(self) -> bool:
        """The episode is over. The next one of this place begins by itself."""
        return self.terminated or self.truncated


class Vector:
    """Places in which episodes are played, each with the next task when one is over.

    >>> with vector("guess_number", 8) as envs:          # doctest: +SKIP
    ...     for arrival in envs:
    ...         if not arrival.is_last:
    ...             envs.send(arrival.place, "50")
    """

    def __init__(self, config: EnvConfig, count: int, *, seed: int, episodes: int | None) -> None:
        if count < 1:
            raise UsageError(f"a vector has at least one place, not {count}")
        self._world = build(config, seed=seed)
        self._seed, self._left = seed, episodes
        self._arrivals: queue.Queue[tuple[int, Shown | Exception]] = queue.Queue()
        self._places = [Outside(self._world, self._telling(index)) for index in range(count)]
        self._next = 0
        self._open = 0
        for index in range(count):
            self._begin(index)

    def recv(self) -> Arrival:
        """The next thing that comes, from any place. Raises RuntimeError when all episodes are over, and what broke one."""
        if not self._open:
            raise RuntimeError("all episodes are over")
        index, arrived = self._arrivals.get(timeout=DAY)
        if isinstance(arrived, Exception):
            raise arrived
        arrival = Arrival(index, *arrived)
        if arrival.is_last:
            self._open -= 1
            self._begin(index)
        return arrival

    def send(self, place: int, text: str) -> None:
        """The agent's answer to the last arrival of this place."""
        self._places[place].answer(text)

    def __iter__(self) -> Iterator[Arrival]:
        while self._open:
            yield self.recv()

    def close(self) -> None:
        for place in self._places:
            place.close()

    def __enter__(self) -> Vector:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def _begin(self, index: int) -> None:
        if self._left is not None and self._next >= self._left:
            return
        number, self._next = self._next, self._next + 1
        self._open += 1
        self._places[index].start(self._world.tasks.get(number), self._seed)

    def _telling(self, index: int) -> Any:
        return lambda arrived: self._arrivals.put((index, arrived))


def vector(
    id: str, count: int, *, seed: int = 0, episodes: int | None = None, tasks: Mapping[str, Any] | None = None, **args: Any
) -> Vector:
    """`count` episodes at once of the environment `id`; `episodes`: how many in all, None: without an end. `tasks` and `args`:
    as the config's `env.tasks` and `env.args`. Raises UsageError."""
    return Vector(EnvConfig(id=id, tasks=dict(tasks or {}), args=args), count, seed=seed, episodes=episodes)
