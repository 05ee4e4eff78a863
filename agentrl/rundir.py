"""A run's folder: `runs/<name>/`, what lies in it, who may write to it, and how it is found again.

| in the folder | what |
|---|---|
| config.yaml, origins.yaml | every key as it was resolved, and where each value came from |
| model.json | what the model was loaded from: a run is gone on with from the same |
| code.json | a hash of each file of the environment's code |
| metrics.jsonl | one JSON object for each step; on resume cut back to the checkpoint's step, so that no step stands twice |
| evals/ | the episodes of each evaluation |
| result.json | how it ended (finished, stopped, failed) and why; only there once it has |
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
from agentrl.config import Config
from agentrl.errors import Damaged, UsageError, nearest
from agentrl.run_files import read_json
from agentrl.whole_write import replace_text


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
    def reference(self) -> str:
        """What `resume=` finds it by: its name where runs lie by default, else its folder.

        >>> RunDir(path=Path("runs/try")).reference, RunDir(path=Path("elsewhere/try")).reference
        ('try', 'elsewhere/try')
        """
        return self.name if self.path.parent == Path(Config().out) else str(self.path)

    @property
    def config(self) -> Path:
        return self.path / "config.yaml"

    @property
    def origins(self) -> Path:
        return self.path / "origins.yaml"

    @property
    def model(self) -> Path:
        return self.path / "model.json"

    @property
    def code(self) -> Path:
        return self.path / "code.json"

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
        """Raises Damaged."""
        import yaml

        if not self.origins.is_file():
            return {}
        try:
            origins = yaml.safe_load(self.origins.read_text())
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise Damaged(f"{self.origins} cannot be read: {' '.join(str(error).split())}") from error
        if not isinstance(origins, dict):
            raise Damaged(f"{self.origins} holds no keys")
        return origins

    def write_source(self, model: str, source: str) -> None:
        replace_text(self.model, json.dumps({"id": model, "source": source}) + "\n")

    def read_source(self) -> str:
        """What the model was loaded from when the run began (`agentrl.models.Loaded.source`). Raises Damaged."""
        return str(read_json(self.model, ("id", "source"))["source"])

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Holds the run for this process; the kernel gives it back however the process ends. Raises UsageError."""
        try:
            lock = open(self.path / "lock", "a+")  # noqa: SIM115
        except OSError as error:
            raise UsageError(f"run {self.name!r} cannot be written to: {self.path}: {error.strerror}") from error
        with lock as file:
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


def check_place(config: Config) -> None:
    """Can the folder of a new run be made? Makes nothing. Raises UsageError that says what stands in its way."""
    out = Path(config.out).expanduser()
    try:
        place = next(path for path in (out, *out.parents) if path.exists())
        taken = bool(config.run) and (out / config.run).exists()
    except OSError as error:
        raise UsageError(_no_place(config.out, out, error)) from error
    if not place.is_dir():
        raise UsageError(f"out={config.out}: {place} is a file, and runs need a folder; choose another by out=...")
    if not os.access(place, os.W_OK | os.X_OK):
        raise UsageError(
            f"out={config.out}: you may not write in {place.resolve()}; change its permissions, or choose another by out=..."
        )
    if taken:
        raise UsageError(_taken(config.run, out))


def create(resolved: Resolved, *, source: str = "", now: datetime | None = None) -> RunDir:
    """Makes the folder of a new run with its config in it. `source`: what its model was loaded from. Raises UsageError when
    the name asked for is taken, or no folder can be made."""
    config = resolved.config
    out = Path(config.out).expanduser()
    base = config.run or default_name(config.env.id, config.model.id, now or datetime.now())
    aside = out / f".{base}.{os.getpid()}"
    try:
        aside.mkdir(parents=True, exist_ok=True)
        run = RunDir(path=aside)
        run.write_config(resolved)
        run.write_source(config.model.id, source)
        for name in _free_names(base, fixed=bool(config.run)):
            with contextlib.suppress(OSError):
                aside.rename(out / name)
                return RunDir(path=out / name)
            if not (out / name).exists():
                raise UsageError(f"the folder {out / name} cannot be made")
        raise UsageError(_taken(base, out))
    except OSError as error:
        raise UsageError(_no_place(config.out, out, error)) from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)


@contextlib.contextmanager
def removed_if_refused(run: RunDir) -> Iterator[None]:
    """Takes the folder of a new run away again when the body fails: what never began leaves nothing that looks like a run."""
    try:
        yield
    except BaseException:
        shutil.rmtree(run.path, ignore_errors=True)
        raise


def find(name: str, out: str) -> RunDir:
    """The run by its name or folder (or any folder in it). Raises UsageError with the nearest names."""
    for path in (Path(name).expanduser(), Path(out).expanduser() / name):
        for folder in (path, *path.parents[:3]):
            if (folder / "config.yaml").is_file() and (folder / "origins.yaml").is_file():
                return RunDir(path=folder)
    known = names(out)
    hint = nearest(Path(name).name, known) if known else "there is none in it"
    raise UsageError(f"there is no run {name!r}; looked in {_shown(out)} (out={out}): {hint}")


def find_if_meant(name: str, out: str) -> RunDir | None:
    """The run that a model's name leads to: a run, or a folder in one. None for any other model. Raises UsageError for a path
    among runs, or below the folder that they lie in, where nothing is: a hub id has a slash too, but no such folder."""
    try:
        return find(name, out)
    except UsageError:
        path = Path(name).expanduser()
        folders = [folder for folder in path.parents if folder != Path()]
        if not path.exists() and any(folder == Path(out).expanduser() or names(str(folder)) for folder in folders):
            raise
        return None


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


def _taken(name: str, out: Path) -> str:
    return f"run {name!r} exists already in {out}; go on with it by resume={name}, or give another name by run=..."


def _no_place(key: str, out: Path, error: OSError) -> str:
    return f"out={key}: no folder can be made in {out}: {error.strerror or error}; choose another by out=..."


def _shown(folder: str) -> str:
    return str(Path(folder).expanduser().resolve())


def _free_names(base: str, *, fixed: bool) -> Sequence[str]:
    """The names to try: the one asked for, or the derived one with a number when it is taken."""
    return [base] if fixed else [base, *(f"{base}-{n}" for n in range(2, 1000))]


def _plain(text: str) -> str:
    return re.sub(r"[^\w.-]+", "-", text).strip("-.") or "run"


def _yaml(data: Mapping[str, Any]) -> str:
    import yaml

    return yaml.safe_dump(data, sort_keys=False, allow_unicode=True)
