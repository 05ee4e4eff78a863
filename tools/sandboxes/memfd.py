"""Anonymous files in memory that carry a job's input and take its output.

Output files have a fixed size that the kernel keeps: a flood meets an error, a process left behind holds nobody up, and
nothing has to be read while the job runs. How much was written is the file's position. Its price: a program that opens
/dev/stdout or /dev/stderr by name, and truncates it, is refused.
"""

from __future__ import annotations

import os
from mmap import PAGESIZE as PAGE

F_ADD_SEALS = 1033  # <linux/fcntl.h>, as the next; not in Python's fcntl before 3.13
F_SEAL_SEAL, F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_WRITE = 1, 2, 4, 8


def holding(data: bytes) -> int:
    """A new file with this content, to be read from its start, that nobody can change. The caller closes it."""
    fd = growing()
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]
    os.lseek(fd, 0, os.SEEK_SET)
    _seal(fd, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE)
    return fd


def growing() -> int:
    """A new file without a limit, for what our own code writes. The caller closes it."""
    return os.memfd_create("sandbox", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)


def _seal(fd: int, seals: int) -> None:
    import fcntl  # not at the top: Windows has none, and must be told so by LocalPool

    fcntl.fcntl(fd, F_ADD_SEALS, seals)


def taking(limit: int) -> int:
    """A new file that takes at least `limit` bytes and at most two pages more. The caller closes it.

    The kernel refuses a write that would cross the end whole, up to a page of it, so a page is spare; whoever wrote beyond
    `limit` is to be cut.
    """
    fd = growing()
    os.ftruncate(fd, -(-limit // PAGE) * PAGE + PAGE)
    _seal(fd, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW)
    return fd


def written(fd: int) -> bytes:
    """All that was written, from the start to the position of the last write."""
    size = min(os.lseek(fd, 0, os.SEEK_CUR), os.fstat(fd).st_size)
    return os.pread(fd, size, 0) if size else b""
