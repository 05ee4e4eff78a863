"""Where a step's row goes: metrics.jsonl always, TensorBoard when asked for. Neither needs torch."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from agentrl.errors import UsageError
from agentrl.run_files import append_metrics
from agentrl.whole_write import writing

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
        self._folder = folder
        before, self._hook = set(threading.enumerate()), threading.excepthook
        self._writer = tensorboard_writer()(str(folder))
        _hush(set(threading.enumerate()) - before)

    def log(self, row: Mapping[str, Any]) -> None:
        step = int(row["step"])
        with writing(self._folder):
            for name, value in row.items():
                if name != "step" and isinstance(value, (int, float)):
                    self._writer.add_scalar(tag(name), float(value), step)
            self._writer.flush()

    def close(self) -> None:
        with writing(self._folder):
            self._writer.close()
        threading.excepthook = self._hook


def _hush(threads: set[threading.Thread]) -> None:
    """What fails in the writer's own thread is raised again by its next call, which says it in one line: the traceback that
    Python would print besides is left out."""
    others = threading.excepthook

    def hook(args: threading.ExceptHookArgs) -> None:
        if args.thread not in threads:
            others(args)

    threading.excepthook = hook


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
