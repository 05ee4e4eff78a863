"""Writing files of a run whole or not at all: a disk that is full half-way leaves them as they were.

What a write fails on says which file it was and what can be done: `WriteError`, which the command line shows in one line.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

REMEDIES = {
    errno.ENOSPC: "free some space on its disk",
    errno.EDQUOT: "free some of your quota",
    errno.EFBIG: "raise the limit on the size of a file (ulimit -f)",
    errno.EACCES: "give yourself the right to write there",
    errno.EPERM: "give yourself the right to write there",
    errno.EROFS: "its disk is mounted read-only",
    errno.EMFILE: "raise the limit on open files (ulimit -n)",
    errno.ENOENT: "its folder is gone; was it removed while the run went on?",
    errno.EIO: "look at the health of its disk",
}
"""What a person can do about a write that the system refused."""


class WriteError(OSError):
    """A file of a run could not be written; `filename` is that file's, also where the system named none.

    >>> str(WriteError(errno.ENOSPC, "No space left on device", "runs/a/metrics.jsonl"))
    'runs/a/metrics.jsonl cannot be written: No space left on device; free some space on its disk'
    """

    def __str__(self) -> str:
        remedy = REMEDIES.get(self.errno or 0, "")
        return f"{self.filename} cannot be written: {self.strerror}" + (f"; {remedy}" if remedy else "")


@contextlib.contextmanager
def writing(file: Path | str) -> Iterator[None]:
    """Turns an OSError of the body into a WriteError that names `file`, whatever name it is written under at first."""
    try:
        yield
    except WriteError:
        raise
    except OSError as error:
        raise WriteError(error.errno, error.strerror or str(error), str(file)) from error


def append(file: BinaryIO, data: bytes) -> int:
    """Writes at the end of an unbuffered file; returns the offset of the data. What fails half-way (WriteError, Ctrl-C) is
    cut off again before it is raised: what is appended later would put it in the middle, where nothing torn may stand.

    >>> with open(path, "r+b", buffering=0) as file:      # doctest: +SKIP
    ...     append(file, b"a line\\n")
    0
    """
    offset = file.seek(0, os.SEEK_END)
    left = memoryview(data)
    try:
        with writing(file.name):
            while left:
                written = file.write(left)
                assert written, "a blocking file takes at least a byte"
                left = left[written:]
    except BaseException:
        file.truncate(offset)
        file.seek(offset)
        raise
    return offset


def replace_text(file: Path, text: str) -> None:
    """Writes a file whole, on the disk when this returns, or not at all. Raises WriteError."""
    aside = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        with writing(file), open(aside, "w") as out:
            out.write(text)
            out.flush()
            os.fsync(out.fileno())
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
    with writing(file):
        aside.replace(file)
