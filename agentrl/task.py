"""What is to be done: tasks, the secret that only graders see, and sources of tasks."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol


class SecretError(TypeError):
    """Something tried to write a task's secret down (in a transcript, a prompt, a file of the agent's sandbox)."""


class Secret(Mapping[str, Any]):
    """What only graders may see. Reads like a dict; cannot be printed, pickled into JSON, formatted or rendered.

    >>> secret = Secret({"cases": [1]})
    >>> secret["cases"]
    [1]
    >>> repr(secret)
    'Secret(1 key)'
    """

    __slots__ = ("_data",)

    def __init__(self, data: Mapping[str, Any] | None = None) -> None:
        self._data = dict(data or {})

    def __getitem__(self, key: str) -> Any:
        return self._data[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._data)

    def __len__(self) -> int:
        return len(self._data)

    def __repr__(self) -> str:
        return f"Secret({len(self)} key{'s' if len(self) != 1 else ''})"

    def __str__(self) -> str:
        raise SecretError("a task's secret must not become text: grade with it on the host, and show the agent the result only")

    def __format__(self, spec: str) -> str:
        return str(self)

    def reveal(self) -> dict[str, Any]:
        """The plain dict, for a grader on the host or a task file written on purpose."""
        return dict(self._data)


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One problem, as data.

    >>> Task(id="add-1", prompt="Write add(a, b).", secret={"cases": [[[1, 2], 3]]}).secret
    Secret(1 key)
    """

    id: str
    prompt: str = ""
    public: Mapping[str, Any] = field(default_factory=dict)
    secret: Secret = field(default_factory=Secret)

    def __post_init__(self) -> None:
        if not isinstance(self.secret, Secret):
            object.__setattr__(self, "secret", Secret(self.secret))

    def to_public_dict(self) -> dict[str, Any]:
        """Everything but the secret."""
        return {"id": self.id, "prompt": self.prompt, "public": dict(self.public)}


def task_id(*parts: Any) -> str:
    """A short id derived from content, the same in every process.

    >>> task_id("countdown", [1, 2, 3]) == task_id("countdown", [1, 2, 3])
    True
    """
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:12]


class TaskSource(Protocol):
    """Where tasks come from. `get(i)` is a pure function of i and the source's seed, so a cursor is enough to resume."""

    def get(self, index: int) -> Task:
        """The index-th training task, index >= 0. Finite sources start over, in another order each time round."""
        ...

    def held_out(self, count: int) -> list[Task]:
        """`count` evaluation tasks that training never sees, always the same. Raises ValueError when there are fewer."""
        ...
