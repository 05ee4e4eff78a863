"""What an environment was when a run began: a hash of each of its files, and of its first tasks, in the run's folder.

Going on with a run after a change is allowed, and said: the episodes on its disk are of the code as it was.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from pathlib import Path

from agentrl.env import Env
from agentrl.load import sources
from agentrl.run_files import read_json
from agentrl.task import TaskSource
from agentrl.whole_write import replace_text

FIRST_TASKS = 16
"""Training tasks whose content is compared: an endless source has no last, and some take 20 ms to make."""


def files(cls: type[Env]) -> list[Path]:
    """The file of the class and what it has imported from beside it; none for a class that stands in no file."""
    try:
        file = Path(inspect.getfile(cls)).resolve()
    except (OSError, TypeError):
        return []
    return [file, *sources(file.parent)]


def compare(cls: type[Env], tasks: TaskSource, record: Path) -> str:
    """A note when a file or the tasks are not what `record` says they were; empty when all are the same. Writes the record
    when there is none. Raises Damaged."""
    found = files(cls)
    now = {_name(file, found[0]): hashlib.sha256(file.read_bytes()).hexdigest() for file in found}
    now["its tasks"] = fingerprint(tasks)
    if not record.is_file():
        replace_text(record, json.dumps(now, indent=1) + "\n")
        return ""
    before: dict[str, str] = read_json(record, ())
    changed = [name for name in sorted(now.keys() & before.keys()) if now[name] != before[name]]
    if not changed:
        return ""
    return f"note: changed since this run began: {', '.join(changed)}; what was played until now was played as it was then"


def fingerprint(tasks: TaskSource) -> str:
    """Of the content of the first training tasks, secrets included."""
    digest = hashlib.sha256()
    for index in range(FIRST_TASKS):
        task = tasks.get(index)
        content = [task.to_public_dict(), task.secret.reveal()]
        digest.update(json.dumps(content, sort_keys=True, default=lambda value: type(value).__name__).encode())
    return digest.hexdigest()


def _name(file: Path, first: Path) -> str:
    """A file's place beside the class's own: it is the same when all are moved."""
    return file.relative_to(first.parent).as_posix()
