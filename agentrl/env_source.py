"""What an environment's code was when a run began: a hash of each of its files, in the run's folder.

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
from agentrl.whole_write import replace_text


def files(cls: type[Env]) -> list[Path]:
    """The file of the class and what it has imported from beside it; none for a class that stands in no file."""
    try:
        file = Path(inspect.getfile(cls)).resolve()
    except (OSError, TypeError):
        return []
    return [file, *sources(file.parent)]


def compare(cls: type[Env], record: Path) -> str:
    """A note when a file is not what `record` says it was; empty when all are the same. Writes the record when there is
    none. Raises Damaged."""
    found = files(cls)
    now = {_name(file, found[0]): hashlib.sha256(file.read_bytes()).hexdigest() for file in found}
    if not record.is_file():
        replace_text(record, json.dumps(now, indent=1) + "\n")
        return ""
    before: dict[str, str] = read_json(record, ())
    changed = [name for name in sorted(now.keys() & before.keys()) if now[name] != before[name]]
    if not changed:
        return ""
    return f"note: {', '.join(changed)} has changed since this run began: what was played until now was played by the old code"


def _name(file: Path, first: Path) -> str:
    """A file's place beside the class's own: it is the same when all are moved."""
    return file.relative_to(first.parent).as_posix()
