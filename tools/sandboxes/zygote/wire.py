"""The messages between host and zygote. Plain structs over SOCK_SEQPACKET, so that no text of a job is ever parsed here.

Every job has a number: the slot's epoch (how often it was started) in the upper half, a counter in the lower. A kill
or a result that comes late carries the number of the job it belongs to, and is dropped by whoever is past it.
"""

from __future__ import annotations

import array
import socket
import struct
from enum import IntEnum

ORDER = struct.Struct("<cQddB")
"""host -> slot: kind, number, seconds for the job, seconds for one case (0: none), flags."""
REPORT = struct.Struct("<cQiBQdd")
"""slot -> host: kind, number, wait status, Reason, peak bytes, cpu seconds, wall seconds."""
TASK = struct.Struct("<Qc")
"""host -> waiting child: number, Mode; then text. File descriptors travel with it."""
PAGE = struct.Struct("<Qd")
"""Shared page child -> slot: number of the job it took, monotonic time at which the current case began."""

JOB, KILL, RESET, MARK = b"J", b"K", b"R", b"M"  # kinds of ORDER
READY, DONE = b"Y", b"D"  # kinds of REPORT

TIDY = 1
"""Flag of a job: after it, remove the files that were added since the last MARK."""

PYTHON, EXEC, READ, WRITE, CALL = b"P", b"X", b"R", b"W", b"C"
"""Modes of a task."""

FILE_OK, FILE_MISSING, FILE_OUTSIDE, FILE_FAILED = 0, 40, 41, 42
"""Exit codes of READ and WRITE; the text is on stderr."""

TOO_LARGE = 122
"""Exit code of CALL when the results do not fit."""

LOADED, VALUE, RAISED, REFUSED = b"L", b"V", b"E", b"X"
"""Records of CALL: the code was loaded; a case's value; what a case raised; the code cannot be loaded (ends it)."""
RECORD = struct.Struct("<cI")
"""Head of a record: kind, bytes of UTF-8 that follow."""


class Reason(IntEnum):
    """Why a job ended."""

    EXIT = 0
    DEADLINE = 1
    KILLED = 2  # the host asked for it
    MEMORY = 3
    CPU = 4
    PROCESSES = 5
    DISK = 6


def number(epoch: int, count: int) -> int:
    return epoch << 32 | count


def records(data: bytes) -> list[tuple[bytes, bytes]]:
    """The complete records at the start of `data`; whatever follows them is ignored. `data` may be forged.

    >>> records(RECORD.pack(VALUE, 1) + b"7" + RECORD.pack(VALUE, 99) + b"cut")
    [(b'V', b'7')]
    """
    found, at = [], 0
    while at + RECORD.size <= len(data):
        kind, length = RECORD.unpack_from(data, at)
        end = at + RECORD.size + length
        if kind not in (LOADED, VALUE, RAISED, REFUSED) or end > len(data):
            break
        found.append((kind, data[at + RECORD.size : end]))
        at = end
    return found


def receive(queue: socket.socket, flags: int = 0) -> tuple[bytes, list[int]]:
    """A message and the file descriptors with it. (socket.recv_fds ignores its flags.)"""
    message, ancillary, _, _ = queue.recvmsg(8192, socket.CMSG_SPACE(8 * 4), flags | socket.MSG_CMSG_CLOEXEC)
    fds = array.array("i")
    for _, _, data in ancillary:
        fds.frombytes(data[: len(data) // fds.itemsize * fds.itemsize])
    return message, list(fds)
