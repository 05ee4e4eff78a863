"""An append-only file of JSON lines, each with its checksum, that a kill at any byte leaves readable.

A line is {"crc32": "9ae0daaf", "record": {...}}; the checksum is of the record's own text. The last line may be torn:
it is cut off when the file is opened for writing. A wrong line anywhere else is an error that names file and line.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from agentrl.errors import Damaged
from agentrl.whole_write import append, writing

_HEAD = b'{"crc32":"'
_MIDDLE = b'","record":'
_START = len(_HEAD) + 8 + len(_MIDDLE)


class JournalError(Damaged):
    """A line that is not the last cannot be what was written."""


class Journal:
    """Opens (or makes) a file for appending; what it held goes line by line to `replay(offset, record)`."""

    def __init__(self, path: Path, replay: Callable[[int, dict[str, Any]], None]) -> None:
        self.path = path
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file: BinaryIO = open(path, "r+b" if path.exists() else "w+b", buffering=0)  # noqa: SIM115
        end = 0
        for offset, record, after in read(path):
            replay(offset, record)
            end = after
        self._file.truncate(end)

    def append(self, record: dict[str, Any]) -> int:
        """Hands one line to the system and returns its offset. It outlives this process; after `sync`, the machine.

        A line that cannot be written whole (WriteError) is not there at all.
        """
        return append(self._file, encode(record))

    def at(self, offset: int) -> dict[str, Any]:
        """The record of the line that begins at `offset`. Raises JournalError when it does not hold."""
        with open(self.path, "rb") as file:
            file.seek(offset)
            record = decode(file.readline())
        if record is None:
            raise JournalError(f"{self.path}: the line at byte {offset} is damaged")
        return record

    def sync(self) -> None:
        """Waits until the disk has all of it."""
        with writing(self.path):
            os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


def encode(record: dict[str, Any]) -> bytes:
    """One line."""
    body = json.dumps(record, separators=(",", ":"), allow_nan=False).encode()
    return _HEAD + b"%08x" % zlib.crc32(body) + _MIDDLE + body + b"}\n"


def decode(line: bytes) -> dict[str, Any] | None:
    """The record of a line; None for one that is torn or damaged."""
    body = line[_START:-2]
    whole = line.startswith(_HEAD) and line.endswith(b"}\n") and line[_START - len(_MIDDLE) : _START] == _MIDDLE
    if not whole or line[len(_HEAD) : len(_HEAD) + 8] != b"%08x" % zlib.crc32(body):
        return None
    record: dict[str, Any] = json.loads(body)
    return record


def read(path: Path) -> Iterator[tuple[int, dict[str, Any], int]]:
    """(offset, record, offset after it) of each line; a torn last one is left out. Raises JournalError."""
    offset = 0
    with open(path, "rb") as file:
        for number, line in enumerate(file, start=1):
            record = decode(line)
            if record is None:
                if not line.endswith(b"\n"):
                    return  # torn by a kill in the middle of the write; nothing can follow it
                raise JournalError(f"{path}, line {number}: damaged (its checksum does not match); restore it from a copy")
            yield offset, record, offset + len(line)
            offset += len(line)
