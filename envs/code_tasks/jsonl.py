"""A user's programming tasks, one JSON object a line. Every mistake is answered with file, line and key.

{"id": "double-1", "prompt": "Write double(x): twice x.", "function": "double",
 "examples": [{"args": [2], "result": 4}], "tests": [{"args": [0], "result": 0}, {"args": [-3], "result": -6}],
 "solution": "def double(x):\\n    return 2 * x", "prelude": "import math"}

Needed: prompt, function, tests. `examples` are shown to the model, below the prompt, and run before the hidden `tests`;
`prelude` is code that stands before the answer; `solution` is for the gold policy only.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agentrl.errors import UsageError, nearest
from agentrl.task import Secret, Task, task_id

from .prompt import Example, example_lines, example_of

REQUIRED = ("prompt", "function", "tests")
KEYS = (*REQUIRED, "id", "examples", "solution", "prelude")


def read_tasks(path: str | Path) -> tuple[Task, ...]:
    """All tasks of a file, in order. Empty lines are skipped. Raises UsageError."""
    file = Path(path).expanduser()
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the task file {path} cannot be read: {error}") from None
    tasks: dict[str, tuple[Task, int]] = {}
    for number, line in enumerate(lines, 1):
        if line.strip():
            where = f"{path}, line {number}"
            task = _task(_object(line, where), where)
            if task.id in tasks:
                raise UsageError(f"{where}: 'id' {task.id!r} was given to line {tasks[task.id][1]} already")
            tasks[task.id] = task, number
    if not tasks:
        raise UsageError(f"the task file {path} holds no tasks")
    return tuple(task for task, _ in tasks.values())


def _object(line: str, where: str) -> Mapping[str, Any]:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise UsageError(f"{where}: no JSON: {error.msg} at column {error.colno}") from None
    if not isinstance(row, dict):
        raise UsageError(f"{where}: a task is a JSON object, got a {type(row).__name__}")
    for key in row:
        if key not in KEYS:
            raise UsageError(f"{where}: there is no key {key!r}; {nearest(key, KEYS)}")
    for key in REQUIRED:
        if key not in row:
            raise UsageError(f"{where}: the key {key!r} is missing")
    return row


def _task(row: Mapping[str, Any], where: str) -> Task:
    for key in ("prompt", "function", "id", "solution", "prelude"):
        if key in row and (not isinstance(row[key], str) or not row[key].strip()):
            raise UsageError(f"{where}: {key!r} must be a text, got {row[key]!r}")
    if not row["function"].isidentifier():
        raise UsageError(f"{where}: 'function' must be a function's name, got {row['function']!r}")
    tests = _cases(row["tests"], "tests", where)
    if not tests:
        raise UsageError(f"{where}: 'tests' is empty: a task without hidden tests would be passed by anything")
    examples = [example_of(args, result) for args, result in _cases(row.get("examples", []), "examples", where)]
    return Task(
        id=row.get("id") or task_id(dict(row)),
        prompt=_prompt(row, examples),
        public={"function": row["function"], "examples": examples, "prelude": row.get("prelude", "")},
        secret=Secret({"tests": tests, "solution": row.get("solution", "")}),
    )


def _prompt(row: Mapping[str, Any], examples: list[Example]) -> str:
    lines = example_lines(row["function"], examples)
    return f"{row['prompt']}\n{lines}" if lines else str(row["prompt"])


def _cases(value: Any, key: str, where: str) -> list[tuple[tuple[Any, ...], Any]]:
    if not isinstance(value, list):
        raise UsageError(f"{where}: {key!r} must be a list, got a {type(value).__name__}")
    for number, case in enumerate(value):
        if not isinstance(case, dict) or set(case) != {"args", "result"} or not isinstance(case["args"], list):
            raise UsageError(f'{where}: {key}[{number}] must look like {{"args": [1, 2], "result": 3}}, got {json.dumps(case)}')
    return [(tuple(case["args"]), case["result"]) for case in value]
