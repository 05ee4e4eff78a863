"""Checkpoints that a kill at any moment cannot spoil.

    checkpoints/
      step-000010/    masters.safetensors optimizer.pt state.json
      latest          the text "step-000010", written last
      best/ last/     the model in Hugging Face format, and state.json

state.json holds the step, and of a checkpoint the length and checksum of each file: what a disk has made of them since is
found out before they are loaded (`restore.py`).

A checkpoint is written beside its place under a name that starts with a dot, flushed to the disk, and renamed; only then
does `latest` point to it. So what `latest` names is whole, and whatever starts with a dot is a leftover. This file knows
how to keep folders, not what is in them.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentrl.whole_write import WriteError, writing

POINTER = "latest"
STATE = "state.json"
WRITING = ".writing-"
OLD = ".old-"
FILES = "files"
"""Key of the state: path -> [bytes, crc32] of each file but state.json itself."""
BLOCK = 1 << 20
"""Bytes that are read at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A whole checkpoint on disk: the folder to load the backend from, and what was saved as its state.

    >>> Checkpoint(folder=Path("checkpoints/step-000010"), state={"step": 10}).step
    10
    """

    folder: Path
    state: Mapping[str, Any]

    @property
    def step(self) -> int:
        """Training steps done."""
        return int(self.state["step"])


class Checkpoints:
    """The checkpoints of one run. One process writes at a time."""

    def __init__(self, folder: Path, *, keep: int) -> None:
        """Keeps the newest `keep` checkpoints, at least one. Cleans away what a killed process left half-written."""
        if keep < 1:
            raise ValueError(f"checkpoint.keep must be at least 1, got {keep}")
        self.folder, self._keep = folder, keep
        folder.mkdir(parents=True, exist_ok=True)
        _clean(folder)

    def save(self, write: Callable[[Path], None], state: Mapping[str, Any]) -> Checkpoint:
        """`write` fills an empty folder (`Backend.save` does); `state` is JSON and has "step", the steps done. Raises
        WriteError."""
        name = self._free_name(f"step-{int(state['step']):06d}")
        whole = dict(state)

        def fill(folder: Path) -> None:
            write(folder)
            whole[FILES] = checksums(folder)
            _write_state(folder, whole)

        target = self._write_aside(name, fill)
        _replace_text(self.folder / POINTER, name)
        self._drop_old(keep_always=name)
        return Checkpoint(folder=target, state=whole)

    def export(self, name: str, write: Callable[[Path], None], state: Mapping[str, Any]) -> Path:
        """Replaces the folder `name` ("best", "last") by what `write` (`Backend.save_pretrained`) puts there. Raises
        WriteError."""

        def fill(folder: Path) -> None:
            write(folder)
            _write_state(folder, state)

        return self._write_aside(name, fill)

    def latest(self) -> Checkpoint | None:
        return latest(self.folder)

    def _write_aside(self, name: str, fill: Callable[[Path], None]) -> Path:
        aside, target, old = self.folder / (WRITING + name), self.folder / name, self.folder / (OLD + name)
        shutil.rmtree(aside, ignore_errors=True)
        with writing(target):
            aside.mkdir()
            _fill(aside, target, fill)
            _flush_tree(aside)
            if target.exists():
                target.rename(old)
            aside.rename(target)
            _flush(self.folder)
            if old.exists():
                shutil.rmtree(old)
        return target

    def _free_name(self, name: str) -> str:
        """A name not in use: a checkpoint that `latest` points to is never touched, not even by the same step's again."""
        used = {path.name for path in self.folder.iterdir()}
        return next(n for n in (name, *(f"{name}-{i}" for i in range(1, len(used) + 2))) if n not in used)

    def _drop_old(self, keep_always: str) -> None:
        found = sorted(self.folder.glob("step-*"), key=lambda path: (path.name == keep_always, path.stat().st_mtime_ns))
        for path in found[: -self._keep]:
            doomed = self.folder / (OLD + path.name)
            path.rename(doomed)  # first out of sight, then file by file: no half-removed checkpoint under a good name
            shutil.rmtree(doomed)


def latest(folder: Path) -> Checkpoint | None:
    """The checkpoint that `latest` names, None when there is none. Looks at its state only. Raises ValueError, OSError when it
    is not what was written, which no kill can bring about."""
    pointer = folder / POINTER
    return read(folder / pointer.read_text().strip()) if pointer.is_file() else None


def read(folder: Path) -> Checkpoint:
    """A checkpoint by its folder. Raises ValueError, OSError."""
    state = json.loads((folder / STATE).read_text())
    if not isinstance(state, dict) or not isinstance(state.get("step"), int):
        raise ValueError(f"{STATE} names no step")
    return Checkpoint(folder=folder, state=state)


def exported_step(folder: Path) -> int | None:
    """The training steps behind a model that a run has exported; None for any other folder."""
    try:
        return read(folder).step
    except (ValueError, OSError):  # another's folder may hold a file of that name
        return None


def checksums(folder: Path) -> dict[str, list[int]]:
    """path -> [bytes, crc32] of the files below `folder`."""
    return {
        path.relative_to(folder).as_posix(): [path.stat().st_size, _crc(path)]
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def _crc(path: Path) -> int:
    value = 0
    with open(path, "rb") as file:
        while block := file.read(BLOCK):
            value = zlib.crc32(block, value)
    return value


def _write_state(folder: Path, state: Mapping[str, Any]) -> None:
    (folder / STATE).write_text(json.dumps(dict(state), indent=1, sort_keys=True))


def _fill(aside: Path, target: Path, fill: Callable[[Path], None]) -> None:
    """Libraries that write files tell of the system's errors in words of their own. Raises WriteError."""
    try:
        fill(aside)
    except OSError:
        raise
    except Exception as error:
        code = re.search(r"\b(?:os error|code:) (\d+)", str(error))  # of safetensors, which is written in Rust
        if code is None:
            raise
        raise WriteError(int(code[1]), os.strerror(int(code[1])), str(target)) from error


def _clean(folder: Path) -> None:
    for path in folder.glob(WRITING + "*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    for path in folder.glob(OLD + "*"):
        target = folder / path.name.removeprefix(OLD)
        if target.exists() or target.name.startswith("step-"):
            shutil.rmtree(path)
        else:  # killed between the two renames: the new one was not in place yet
            path.rename(target)


def _replace_text(path: Path, text: str) -> None:
    aside = path.with_name(WRITING + path.name)
    aside.write_text(text)
    _flush(aside)
    os.replace(aside, path)
    _flush(path.parent)


def _flush_tree(folder: Path) -> None:
    for path in sorted(folder.rglob("*")):
        _flush(path)
    _flush(folder)


def _flush(path: Path) -> None:
    """To the disk: a file's bytes, or a folder's names."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
