"""A run's folder: `runs/<name>/`, what lies in it, who may write to it, and how it is found again.

| in the folder | what |
|---|---|
| config.yaml, origins.yaml | every key as it was resolved, and where each value came from |
| metrics.jsonl | one JSON object for each step; on resume cut back to the checkpoint's step, so that no step stands twice |
| evals/ | the episodes of each evaluation |
| result.json | how it ended; only there once it has |
| episodes/ | the rollout's store: finished groups and what became of them |
| checkpoints/ | what can be gone on from |
| tensorboard/, report/ | for people |
| lock | held (flock) by the one process that may write; says who |

A folder appears complete or not at all: it is made aside with its config and then renamed, so that a name that is taken
can never be taken twice and a run that was killed while starting leaves nothing that looks like a run.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from agentrl.compose import Resolved, to_yaml
from agentrl.errors import UsageError, nearest
from agentrl.whole_write import append


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDir:
    """Where a run keeps its things.

    >>> RunDir(path=Path("runs/try")).checkpoints.as_posix()
    'runs/try/checkpoints'
    """

    path: Path

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def config(self) -> Path:
        return self.path / "config.yaml"

    @property
    def origins(self) -> Path:
        return self.path / "origins.yaml"

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def episodes(self) -> Path:
        return self.path / "episodes"

    @property
    def evals(self) -> Path:
        return self.path / "evals"

    @property
    def result(self) -> Path:
        return self.path / "result.json"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def tensorboard(self) -> Path:
        return self.path / "tensorboard"

    @property
    def report(self) -> Path:
        return self.path / "report"

    def write_config(self, resolved: Resolved) -> None:
        """Writes config.yaml and origins.yaml; each is replaced whole, never half."""
        replace_text(self.config, to_yaml(resolved.config))
        replace_text(self.origins, _yaml(dict(resolved.origins)))

    def read_origins(self) -> dict[str, str]:
        import yaml

        return yaml.safe_load(self.origins.read_text()) or {} if self.origins.is_file() else {}

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Holds the run for this process; the kernel gives it back however the process ends. Raises UsageError."""
        with open(self.path / "lock", "a+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.seek(0)
                holder = file.read().strip() or "another process"
                raise UsageError(f"run {self.name!r} is being trained by {holder}; wait for it, or stop it first") from None
            file.truncate(0)
            file.write(f"process {os.getpid()} on {socket.gethostname()}")
            file.flush()
            yield


def create(resolved: Resolved, *, now: datetime | None = None) -> RunDir:
    """Makes the folder of a new run with its config in it. Raises UsageError when the name asked for is taken."""
    config = resolved.config
    out = Path(config.out).expanduser()
    base = config.run or default_name(config.env.id, config.model.id, now or datetime.now())
    aside = out / f".{base}.{os.getpid()}"
    aside.mkdir(parents=True, exist_ok=True)
    try:
        RunDir(path=aside).write_config(resolved)
        for name in _free_names(base, fixed=bool(config.run)):
            with contextlib.suppress(OSError):
                aside.rename(out / name)
                return RunDir(path=out / name)
            if not (out / name).exists():
                raise UsageError(f"the folder {out / name} cannot be made")
        raise UsageError(
            f"run {base!r} exists already in {out}; go on with it by resume={base}, or give another name by run=..."
        )
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def find(name: str, out: str) -> RunDir:
    """The run by its name or folder (or any folder in it). Raises UsageError with the nearest names."""
    for path in (Path(name).expanduser(), Path(out).expanduser() / name):
        for folder in (path, *path.parents[:3]):
            if (folder / "config.yaml").is_file() and (folder / "origins.yaml").is_file():
                return RunDir(path=folder)
    known = names(out)
    hint = nearest(name, known) if known else f"there is no run in {out}"
    raise UsageError(f"there is no run {name!r}; {hint}")


def names(out: str) -> list[str]:
    """The runs in a folder, the newest last."""
    folders = Path(out).expanduser().glob("*/config.yaml")
    return [file.parent.name for file in sorted(folders, key=lambda file: file.stat().st_mtime)]


def default_name(env: str, model: str, now: datetime) -> str:
    """env, model and time.

    >>> default_name("envs/first.py:First", "HuggingFaceTB/SmolLM2", datetime(2027, 1, 2, 3, 4, 5))
    'First-SmolLM2-20270102-030405'
    """
    env = env.rpartition(":")[2]
    model = Path(model).name or model
    return f"{_plain(env)}-{_plain(model)}-{now:%Y%m%d-%H%M%S}"


def append_metrics(file: Path, row: Mapping[str, Any]) -> None:
    """Adds one row and has it on disk before it returns. A row that cannot be written whole (OSError) is not there at all."""
    with open(file, "ab", buffering=0) as out:
        append(out, (json.dumps(row) + "\n").encode())
        os.fsync(out.fileno())


def read_metrics(file: Path) -> list[dict[str, Any]]:
    """All whole rows; a torn last line is left out. Raises ValueError for damage anywhere else."""
    if not file.is_file():
        return []
    lines = file.read_text().splitlines()
    rows = []
    for number, line in enumerate(lines, 1):
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            if number < len(lines):
                raise ValueError(f"{file}, line {number}: no JSON: {line[:60]!r}") from None
    return rows


def cut_metrics(file: Path, step: int) -> None:
    """Leaves out a torn last line and the rows after `step`: those steps are about to be done again from the episodes."""
    if file.is_file():
        rows = [row for row in read_metrics(file) if row["step"] <= step]
        replace_text(file, "".join(json.dumps(row) + "\n" for row in rows))


def replace_text(file: Path, text: str) -> None:
    """Writes a file whole, on the disk when this returns, or not at all."""
    aside = file.with_name(f".{file.name}.{os.getpid()}")
    with open(aside, "w") as out:
        out.write(text)
        out.flush()
        os.fsync(out.fileno())
    aside.replace(file)


def _free_names(base: str, *, fixed: bool) -> Sequence[str]:
    """The names to try: the one asked for, or the derived one with a number when it is taken."""
    return [base] if fixed else [base, *(f"{base}-{n}" for n in range(2, 1000))]


def _plain(text: str) -> str:
    return re.sub(r"[^\w.-]+", "-", text).strip("-.") or "run"


def _yaml(data: Mapping[str, Any]) -> str:
    import yaml

    return yaml.safe_dump(data, sort_keys=False, allow_unicode=True)
