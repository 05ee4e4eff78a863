"""The messages between host and zygote. Plain structs over SOCK_SEQPACKET, so that no text of a job is ever parsed here.

Every job has a number: the slot's epoch (how often it was started) in the upper half, a counter in the lower. A kill
or a result that comes late carries the number of the job it belongs to, and is dropped by whoever is past it.
"""

from __future__ import annotations

import array
import os
import socket
import struct
from enum import IntEnum

ORDER = struct.Struct("<cQcddB")
"""host -> slot: kind, number, mode, seconds for the job, seconds for one case (0: none), flags. A JOB's files travel with it as
descriptors: its code (a program, arguments, a path or a request), stdout, stderr, and what its mode needs besides."""
REPORT = struct.Struct("<cQiBQdd")
"""slot -> host: kind, number, wait status, Reason, peak bytes, cpu seconds, wall seconds."""
PAGE = struct.Struct("<d")
"""Shared page child -> slot: monotonic time at which the current case began."""

JOB, KILL, RESET, MARK = b"J", b"K", b"R", b"M"
"""Kinds of ORDER. They are followed in the order they came; only a JOB is answered."""
READY, DONE = b"Y", b"D"  # kinds of REPORT

TIDY = 1
"""Flag of a job: after it, remove the files that were added since the last MARK."""
FRESH = 2
"""Flag of a user's first order: before it, remove all that the last one has left."""

PYTHON, EXEC, READ, WRITE, CALL = b"P", b"X", b"R", b"W", b"C"
"""Modes of a job. The fourth file of the first two is their input, of READ and CALL what they give, of WRITE what it takes."""

FILE_OK, FILE_MISSING, FILE_OUTSIDE, FILE_FAILED = 0, 40, 41, 42
"""Exit codes of READ and WRITE; the text is on stderr."""

TOO_LARGE = 122
"""Exit code of CALL when the results do not fit."""

LOADED, VALUE, RAISED, REFUSED = b"L", b"V", b"E", b"X"
"""Records of CALL: the code was loaded; a case's value; what a case raised; the code cannot be loaded (ends it)."""
RECORD = struct.Struct("<cI")
"""Head of a record: kind, bytes of UTF-8 that follow."""


class Fourth(IntEnum):
    """What a job's fourth file is, besides code, stdout and stderr."""

    NONE = 0
    INPUT = 1  # it holds data for the job
    FIXED = 2  # room for so many bytes that the job writes
    GROWING = 3  # room for any number


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


def close(files: list[int]) -> None:
    for fd in files:
        os.close(fd)


class Line:
    """The slot's end of its socket."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._space = socket.CMSG_SPACE(4 * 4)  # four descriptors
        connection.setblocking(False)

    def fileno(self) -> int:
        return self._socket.fileno()

    def receive(self) -> tuple[bytes, list[int]]:
        """An order and the files that came with it, which are the caller's to close; b"" when the host is gone."""
        message, ancillary, _, _ = self._socket.recvmsg(ORDER.size, self._space, socket.MSG_CMSG_CLOEXEC)
        files = array.array("i")
        for _, _, data in ancillary:
            files.frombytes(data)
        return message, files.tolist()

    def drain(self) -> bool:
        """Takes what was sent to the slot's last life, which is void. False when the host is gone."""
        try:
            while True:
                message, files = self.receive()
                close(files)
                if not message:
                    return False
        except BlockingIOError:
            return True

    def send(self, report: bytes) -> None:
        """Raises BrokenPipeError or ConnectionResetError when the host is gone."""
        self._socket.send(report)
