"""Anonymous files in memory that carry a job's input and take its output.

Output files have a fixed size that the kernel keeps: a flood meets an error, a process left behind holds nobody up, and
nothing has to be read while the job runs. How much was written is the file's position. Its price: a program that opens
/dev/stdout or /dev/stderr by name, and truncates it, is refused.
"""

from __future__ import annotations

import fcntl
import os

PAGE = os.sysconf("SC_PAGE_SIZE")
F_ADD_SEALS, F_SEAL_SHRINK, F_SEAL_GROW = 1033, 2, 4  # <linux/fcntl.h>; not in Python's fcntl before 3.13


def holding(data: bytes) -> int:
    """A new file with this content, to be read from its start. The caller closes it."""
    fd = os.memfd_create("input", os.MFD_CLOEXEC)
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def taking(limit: int) -> int:
    """A new file that takes at least `limit` bytes and at most two pages more. The caller closes it.

    The kernel refuses a write that would cross the end whole, up to a page of it, so a page is spare; whoever wrote beyond
    `limit` has been cut.
    """
    fd = os.memfd_create("output", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, -(-limit // PAGE) * PAGE + PAGE)
    fcntl.fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW)
    return fd


def taken(fd: int, limit: int | None = None) -> tuple[bytes, bool]:
    """(what was written, was it more than `limit`)."""
    written = min(os.lseek(fd, 0, os.SEEK_CUR), os.fstat(fd).st_size)
    wanted = written if limit is None else min(written, limit)
    return os.pread(fd, wanted, 0), written > wanted
