"""Appending to a file, all or nothing: a disk that is full half-way leaves the file as it was."""

from __future__ import annotations

import os
from typing import BinaryIO


def append(file: BinaryIO, data: bytes) -> int:
    """Writes at the end of an unbuffered file; returns the offset of the data. What fails half-way (OSError, Ctrl-C) is cut
    off again before it is raised: what is appended later would put it in the middle, where nothing torn may stand.

    >>> with open(path, "r+b", buffering=0) as file:      # doctest: +SKIP
    ...     append(file, b"a line\\n")
    0
    """
    offset = file.seek(0, os.SEEK_END)
    left = memoryview(data)
    try:
        while left:
            written = file.write(left)
            assert written, "a blocking file takes at least a byte"
            left = left[written:]
    except BaseException:
        file.truncate(offset)
        file.seek(offset)
        raise
    return offset
