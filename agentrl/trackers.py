"""Where a step's row goes: metrics.jsonl always, TensorBoard when asked for. Neither needs torch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from agentrl.errors import UsageError
from agentrl.rundir import append_metrics

GROUPS = {
    "reward": "reward",
    "pass_rate": "reward",
    "eval": "eval",
    "time": "time",
    "loss": "train",
    "grad_norm": "train",
    "lr": "train",
    "entropy": "train",
}
"""The TensorBoard section of a name that has none of its own; all others are about the batch."""


class Tracker(Protocol):
    """Takes rows."""

    def log(self, row: Mapping[str, Any]) -> None:
        """A row holds `step` and numbers."""
        ...

    def close(self) -> None: ...


class JsonLines:
    """One JSON object for each row."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def log(self, row: Mapping[str, Any]) -> None:
        append_metrics(self._file, row)

    def close(self) -> None:
        """Each row is on disk already."""


class TensorBoard:
    """Scalars for `tensorboard --logdir runs`. Rows that a resumed run writes again replace those from before."""

    def __init__(self, folder: Path) -> None:
        self._writer = tensorboard_writer()(str(folder))

    def log(self, row: Mapping[str, Any]) -> None:
        step = int(row["step"])
        for name, value in row.items():
            if name != "step" and isinstance(value, (int, float)):
                self._writer.add_scalar(tag(name), float(value), step)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


def tensorboard_writer() -> Any:
    """The class that writes; ask for it before a run begins. Raises UsageError when it is not installed."""
    try:
        from tensorboard.summary import Writer
    except ImportError as error:
        raise UsageError(f"log.tensorboard=true needs the package tensorboard ({error}); pip install tensorboard") from None
    return Writer


def tag(name: str) -> str:
    """The TensorBoard tag of a row's name: section/name.

    >>> tag("pass_rate"), tag("time/train"), tag("tool_calls")
    ('reward/pass_rate', 'time/train', 'batch/tool_calls')
    """
    if "/" in name:
        return name
    return f"{GROUPS.get(name, 'batch')}/{name}"
