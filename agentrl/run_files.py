"""The JSON files of a run: rows of metrics that survive a torn write, and objects that must hold what was written.

Where a file lies in a run's folder, `agentrl.rundir` knows.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agentrl.errors import Damaged
from agentrl.whole_write import append, replace_text, writing


def append_metrics(file: Path, row: Mapping[str, Any]) -> None:
    """Adds one row and has it on disk before it returns. One that cannot be written whole (WriteError) is not there at all."""
    with writing(file), open(file, "ab", buffering=0) as out:
        append(out, (json.dumps(row) + "\n").encode())
        os.fsync(out.fileno())


def read_metrics(file: Path) -> list[dict[str, Any]]:
    """All whole rows; a torn last line is left out. Raises Damaged for a wrong line anywhere else."""
    if not file.is_file():
        return []
    lines = file.read_bytes().splitlines()
    rows: list[dict[str, Any]] = []
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
        except ValueError:  # UnicodeDecodeError and JSONDecodeError are
            row = None
        if isinstance(row, dict) and "step" in row:
            rows.append(row)
        elif number < len(lines):
            raise Damaged(f"{file}, line {number}: no row of metrics: {line[:60]!r}; take that line out: it is made again")
    return rows


def cut_metrics(file: Path, step: int) -> None:
    """Leaves out a torn last line and the rows after `step`: those steps are about to be done again from the episodes."""
    if file.is_file():
        rows = [row for row in read_metrics(file) if row["step"] <= step]
        replace_text(file, "".join(json.dumps(row) + "\n" for row in rows))


def read_json(file: Path, names: Sequence[str]) -> dict[str, Any]:
    """A JSON object with at least these names. Raises Damaged."""
    try:
        data = json.loads(file.read_bytes())
    except (OSError, ValueError) as error:
        raise Damaged(f"{file} cannot be read: {' '.join(str(error).split())}") from error
    if not isinstance(data, dict) or not set(names) <= data.keys():
        raise Damaged(f"{file} must hold {', '.join(names)}")
    return data
