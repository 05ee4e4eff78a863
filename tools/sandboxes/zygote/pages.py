"""Page faults are what a fork costs. What is done once so that forks meet fewer.

A child starts with the page tables of anonymous memory and must find all others anew, page by page. The kernel copies those of
a file's mapping, too, once one of its pages was written; so a byte of the interpreter's code is written over with itself.
"""

from __future__ import annotations

import os

CODE = ("python", "libpython", "libc.so", "libc-", "libc.musl", "ld-", "ld.so")
"""Beginnings of the names of files that every program runs."""


def inherit_code() -> None:
    """Makes forks of this process inherit the page tables of the interpreter's code. Where that fails, they are slower."""
    try:
        memory = os.open("/proc/self/mem", os.O_RDWR)
    except OSError:
        return
    try:
        for start in _code_mappings():
            os.pwrite(memory, os.pread(memory, 1, start), start)
    except OSError:
        return
    finally:
        os.close(memory)


def _code_mappings() -> list[int]:
    with open("/proc/self/maps") as lines:
        rows = [line.split() for line in lines]
    return [
        int(row[0].split("-")[0], 16)
        for row in rows
        if len(row) > 5 and row[1] in ("r-xp", "r--p") and os.path.basename(row[5]).startswith(CODE)
    ]
