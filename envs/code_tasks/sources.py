"""Which source of tasks a config means by `env.tasks.source`, and which arguments each takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import signature
from typing import Any

from agentrl.errors import UsageError, nearest
from agentrl.finite import FiniteTasks
from agentrl.task import TaskSource

from . import humaneval, jsonl
from .generated import GeneratedTasks


def open_source(source: str, args: Mapping[str, Any]) -> TaskSource:
    """The source of that name, or of that file. Raises UsageError for an unknown source or argument.

    >>> open_source("generated", {"levels": [1, 2]}).levels
    (1, 2)
    """
    if source.endswith((".jsonl", ".json", ".ndjson")):
        return _call(_file, source, {"path": source, **args})
    if source not in SOURCES:
        raise UsageError(f"there is no task source {source!r}; {nearest(source, SOURCES)} (or give a path to a .jsonl file)")
    return _call(SOURCES[source], source, args)


def _generated(
    levels: Any = (1,), seed: int = 0, split: str = "functions", examples: int = 2, hidden: int = 10
) -> GeneratedTasks:
    chosen = (levels,) if isinstance(levels, int) else tuple(levels)
    return GeneratedTasks(levels=chosen, seed=seed, split=split, examples=examples, hidden=hidden)


def _humaneval(held_out: float = 1.0, seed: int = 0) -> FiniteTasks:
    """All held out by default: a model that was trained on a benchmark is no longer measured by it."""
    return FiniteTasks(name="humaneval", tasks=humaneval.read_tasks(), held_out_share=held_out, seed=seed)


def _file(path: str, held_out: float = 0.2, seed: int = 0) -> FiniteTasks:
    return FiniteTasks(name=path, tasks=jsonl.read_tasks(path), held_out_share=held_out, seed=seed)


def _call(make: Callable[..., TaskSource], source: str, args: Mapping[str, Any]) -> TaskSource:
    known = [name for name in signature(make).parameters if name != "path" or "path" in args]
    for name in args:
        if name not in known:
            raise UsageError(f"task source {source!r} takes no {name!r}; {nearest(name, known)}")
    return make(**args)


SOURCES: dict[str, Callable[..., TaskSource]] = {"generated": _generated, "humaneval": _humaneval}
