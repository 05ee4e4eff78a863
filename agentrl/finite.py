"""A fixed list of tasks as a source: a split by content, and an endless shuffled stream of the training part."""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from agentrl.errors import UsageError
from agentrl.task import Task


def prompt(task: Task) -> str:
    """What tells tasks apart that are put in words."""
    return task.prompt


def content(task: Task) -> str:
    """What tells tasks apart whose prompts may all be the same: all that is public, or else the id.

    >>> content(Task(id="a", prompt="Solve it.", public={"grid": [1, 2]}))
    'Solve it. {"grid": [1, 2]}'
    """
    public = json.dumps(dict(task.public), sort_keys=True, default=str) if task.public else ""
    return f"{task.prompt} {public}".strip() or task.id


@dataclass(frozen=True, slots=True, kw_only=True)
class FiniteTasks:
    """Implements `agentrl.task.TaskSource` over a list.

    A task's side depends on what it says alone (case and white space aside): adding tasks to a file moves no other task,
    and two copies of one task never fall on different sides.

    >>> tasks = FiniteTasks(name="sums", tasks=tuple(Task(id=str(n), prompt=f"{n} + {n}?") for n in range(50)))
    >>> len(tasks.held_out(4)), tasks.get(0) in tasks.held_out(4)
    (4, False)
    """

    name: str
    """For messages."""
    tasks: tuple[Task, ...]
    held_out_share: float = 0.2
    """About this share of the tasks is held out; 1: all, for data that is not meant for training. Below 1 at least one is left
    to train on."""
    seed: int = 0
    """Of the order in which training goes through them; what is held out does not depend on it."""
    says: Callable[[Task], str] = prompt
    """What the side goes by: `prompt` or `content`."""
    _training: tuple[Task, ...] = field(init=False)
    _held_out: tuple[Task, ...] = field(init=False)

    def __post_init__(self) -> None:
        if not 0 <= self.held_out_share <= 1:
            raise UsageError(f"held_out is the share of the tasks to hold out, from 0 to 1; got {self.held_out_share}")
        places = [position(self.says(task)) for task in self.tasks]
        limit = self.held_out_share if self.held_out_share == 1 else min(self.held_out_share, max(places, default=1))
        held = [place < limit for place in places]
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
        """Raises UsageError when there are fewer."""
        if count > len(self._held_out):
            raise UsageError(f"{self.name}: {len(self._held_out)} tasks are held out, {count} were asked for")
        return list(self._held_out[:count])


def normalized(text: str) -> str:
    """Without case and surplus white space.

    >>> normalized("Add  A\\nto b ")
    'add a to b'
    """
    return " ".join(re.findall(r"\S+", text.lower()))


def position(text: str) -> float:
    """A number in [0, 1) from what a task says."""
    return int(hashlib.sha256(normalized(text).encode()).hexdigest()[:12], 16) / 16**12
