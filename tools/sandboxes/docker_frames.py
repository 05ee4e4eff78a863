"""The bytes between the host and a container's worker, over the container's stdin and stdout.

As between host and slot (see zygote/wire.py), but with the content of files in place of file descriptors.
"""

from __future__ import annotations

import struct

from .zygote import wire

HEAD = struct.Struct("<IIIIB")
"""host -> worker, after each ORDER: bytes of code, room for stdout, room for stderr, bytes (or room) of the fourth file, what
that file is (wire.Fourth). Then come the code and, of INPUT, the fourth file."""
BACK = struct.Struct("<III")
"""worker -> host, after each REPORT: bytes of stdout, of stderr, of the fourth file, which follow."""

DOWN = wire.ORDER.size + HEAD.size
UP = wire.REPORT.size + BACK.size


def job(
    order: bytes, code: bytes, out: int, err: int, data: bytes = b"", fourth: int = wire.Fourth.NONE, room: int = 0
) -> bytes:
    """One job, ready to send. `out`, `err` and `room` in bytes."""
    return order + HEAD.pack(len(code), out, err, len(data) or room, fourth) + code + data


def plain(order: bytes) -> bytes:
    """An order that is no job."""
    return order + HEAD.pack(0, 0, 0, 0, wire.Fourth.NONE)
