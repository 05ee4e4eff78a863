"""A fixed list of tasks as a source: a split by content, and an endless shuffled stream of the training part."""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from agentrl.errors import UsageError
from agentrl.task import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class FiniteTasks:
    """Implements `agentrl.task.TaskSource` over a list.

    A task's side depends on its wording alone (case and white space aside): adding tasks to a file moves no other task,
    and two copies of one task never fall on different sides.
    """

    name: str
    """For messages."""
    tasks: tuple[Task, ...]
    held_out_share: float = 0.2
    """About this share of the tasks is held out; 1: all, for data that is not meant for training."""
    seed: int = 0
    _training: tuple[Task, ...] = field(init=False)
    _held_out: tuple[Task, ...] = field(init=False)

    def __post_init__(self) -> None:
        if not 0 <= self.held_out_share <= 1:
            raise UsageError(f"held_out is the share of the tasks to hold out, from 0 to 1; got {self.held_out_share}")
        held = [position(task) < self.held_out_share for task in self.tasks]
        object.__setattr__(self, "_training", tuple(t for t, out in zip(self.tasks, held, strict=True) if not out))
        object.__setattr__(self, "_held_out", tuple(t for t, out in zip(self.tasks, held, strict=True) if out))

    def get(self, index: int) -> Task:
        if not self._training:
            raise UsageError(
                f"{self.name}: all {len(self.tasks)} tasks are held out, none is left to train on; "
                "set env.tasks.held_out to a share below 1"
            )
        lap, place = divmod(index, len(self._training))
        order: Sequence[int] = random.Random(f"{self.seed} {lap}").sample(range(len(self._training)), len(self._training))
        return self._training[order[place]]

    def held_out(self, count: int) -> list[Task]:
        if count > len(self._held_out):
            raise ValueError(f"{self.name}: {len(self._held_out)} tasks are held out, {count} were asked for")
        return list(self._held_out[:count])


def normalized(text: str) -> str:
    """Without case and surplus white space.

    >>> normalized("Add  A\\nto b ")
    'add a to b'
    """
    return " ".join(re.findall(r"\S+", text.lower()))


def position(task: Task) -> float:
    """A number in [0, 1) from the task's wording."""
    return int(hashlib.sha256(normalized(task.prompt).encode()).hexdigest()[:12], 16) / 16**12
