"""From what a class's `tasks` returns to a source that can be relied on: each fault of an author's in one line, with its place.

`tasks` may return a source (`get` and `held_out`), or an iterable of tasks, which becomes a `FiniteTasks`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

from agentrl.blame import definition, one_line, stands
from agentrl.env import Env
from agentrl.errors import UsageError, nearest
from agentrl.finite import FiniteTasks, content
from agentrl.suggest import close
from agentrl.task import Task, TaskSource

T = TypeVar("T")

MOST = 1_000_000
"""Tasks of an iterable. They are held in memory, and a generator may be one that never ends."""


def tasks_of(cls: type[Env], args: Mapping[str, Any], seed: int) -> TaskSource:
    """`args`: the config's `env.tasks`; `seed`: the run's, for a `tasks` that takes one. Raises UsageError."""
    given = _arguments(cls, args, seed)
    call = f"{_name(cls)}({', '.join(f'{name}={value!r}' for name, value in given.items())})"
    value: Any = _called(call, cls.tasks, **given)
    source: TaskSource = value if _is_source(cls, value) else _listed(cls, value, seed)
    checked = CheckedTasks(cls=cls, source=source)
    checked.probe()
    return checked


def missing_arguments(cls: type[Env], args: Mapping[str, Any]) -> list[str]:
    """What `tasks` must be given and is not: legitimate, so that a description of the class need not fail for it."""
    parameters = inspect.signature(cls.tasks).parameters.values()
    needed = [p.name for p in parameters if p.default is p.empty and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
    return [name for name in needed if name not in args and name != "seed"]


class Fault(UsageError):
    """A fault in an author's source of tasks, with its place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedTasks:
    """A source whose faults, an IndexError in the middle of a run for one, are UsageErrors with class, index, file and line."""

    cls: type[Env]
    source: TaskSource

    def get(self, index: int) -> Task:
        what = f"{_name(self.cls)}: get({index})"
        task = _called(what, self.source.get, index)
        if not isinstance(task, Task):
            raise Fault(f"{stands(self.source.get)}: {what} gave {_a(task)}, not a Task")
        return task

    def held_out(self, count: int) -> list[Task]:
        what = f"{_name(self.cls)}: held_out({count})"
        tasks = _called(what, lambda: list(self.source.held_out(count)))
        for number, task in enumerate(tasks):
            if not isinstance(task, Task):
                raise Fault(f"{stands(self.source.held_out)}: {what} gave {_a(task)} at {number}, not a Task")
        if len(tasks) != count:
            raise Fault(f"{stands(self.source.held_out)}: {what} gave {len(tasks)} tasks")
        return tasks

    def probe(self) -> None:
        """Looks at the methods' parameters and the first task. A source that is for evaluation alone, and says so in a
        UsageError of its own, is in order."""
        for method in (self.source.get, self.source.held_out):
            _takes_one(method)
        try:
            self.get(0)
        except Fault:
            raise
        except UsageError:
            return


def _arguments(cls: type[Env], args: Mapping[str, Any], seed: int) -> dict[str, Any]:
    parameters = inspect.signature(cls.tasks).parameters
    given = {"seed": seed, **args} if "seed" in parameters else dict(args)
    base = inspect.getattr_static(cls, "tasks") is inspect.getattr_static(Env, "tasks")
    free = not base and any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    known = [name for name, p in parameters.items() if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
    for name in given:
        if name not in known and not free:
            raise UsageError(f"{_name(cls)} has no argument {name!r} (env.tasks.{name}); {nearest(name, known)}")
    missing = missing_arguments(cls, given)
    if missing:
        raise UsageError(f"{_name(cls)} needs {', '.join(f'env.tasks.{name}=...' for name in missing)}")
    return given


def _called(what: str, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """Calls an author's function. A UsageError says all in its text; anything else becomes a Fault."""
    try:
        return function(*args, **kwargs)
    except UsageError:
        raise
    except Exception as error:
        raise Fault(f"{what}: {one_line(error)}") from error


def _is_source(cls: type[Env], value: Any) -> bool:
    """Raises UsageError for one that is nearly a source."""
    if isinstance(value, Mapping):  # it has a `get`, of another kind
        return False
    have = [name for name in ("get", "held_out") if callable(getattr(value, name, None))]
    if isinstance(value, type) and have:
        raise UsageError(f"{stands(cls.tasks)}: {_name(cls)} gave the class {value.__name__}; write {value.__name__}(...)")
    if len(have) == 1:
        lacks = "held_out" if have == ["get"] else "get"
        near = close(lacks, [name for name in dir(value) if not name.startswith("_") and name not in have])
        hint = f" ({near})" if near else ""
        raise UsageError(f"{stands(type(value))}: {type(value).__name__} is no source of tasks: it lacks {lacks}{hint}")
    return bool(have)


def _listed(cls: type[Env], value: Any, seed: int) -> FiniteTasks:
    where = f"{stands(cls.tasks)}: {_name(cls)}"
    if inspect.iscoroutine(value):
        value.close()
        raise UsageError(f"{where} is async; it must be a plain class method")
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
        hint = "; is the return missing?" if value is None else ""
        raise UsageError(f"{where} gave {_a(value)}; it must give a list of Task, or a source with get and held_out{hint}")
    tasks = _called(_name(cls), lambda: tuple(islice(value, MOST + 1)))
    if len(tasks) > MOST:
        raise UsageError(f"{where} gave more than {MOST:,} tasks; endless ones need a source with get and held_out")
    if not tasks:
        raise UsageError(f"{where} gave no tasks")
    seen: dict[str, int] = {}
    for number, task in enumerate(tasks):
        if not isinstance(task, Task):
            raise UsageError(f"{where} gave {_a(task)} at {number}, not a Task; write rl.Task(id=..., prompt=...)")
        if task.id in seen:
            raise UsageError(f"{where} gave the id {task.id!r} at {number}, which the task at {seen[task.id]} has")
        seen[task.id] = number
    return FiniteTasks(name=_name(cls), tasks=tasks, seed=seed, says=content)


def _takes_one(method: Callable[..., Any]) -> None:
    signature = inspect.signature(method)
    try:
        signature.bind(0)
    except TypeError:
        name = definition(method)
        shown = name.name if name is not None else method.__name__
        raise UsageError(f"{stands(method)}: {shown} takes {signature}, but is called with one number") from None


def _name(cls: type[Env]) -> str:
    return f"{cls.__name__}.tasks"


def _a(value: Any) -> str:
    """What came instead, in short."""
    return (
        "None" if value is None else f"the class {value.__name__}" if isinstance(value, type) else f"a {type(value).__name__}"
    )
