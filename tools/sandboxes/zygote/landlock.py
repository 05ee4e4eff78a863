"""Landlock: the fence where namespaces are refused. It governs opening files, TCP and (from version 6) signals, no more.

What it leaves open is closed by seccomp (`complement`) and by the slot, which watches processes, memory and disk. Two
things stay open: whether a file exists, with its size and times; and how many processes the user runs.
"""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Iterable, Sequence

from .linux import check, libc

CREATE, ADD_RULE, RESTRICT = 444, 445, 446  # the same on all architectures
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR, TRUNCATE = 1 << 0, 1 << 1, 1 << 2, 1 << 3, 1 << 14
FILE_RIGHTS = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE
RIGHTS_BY_VERSION = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}  # how many access bits each version knows; 16 from 5 on
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")


def version() -> int:
    """0 where the kernel has none."""
    return max(0, libc.syscall(CREATE, None, 0, 1))


def complement(abi: int, *, same_uid: bool) -> tuple[list[str], list[str]]:
    """(calls to refuse, calls to pretend), by their names in seccomp's tables: what this version does not govern."""
    from . import seccomp

    refuse = [*seccomp.OWNERSHIP, *seccomp.MEMFD]
    if abi < 3:
        refuse += seccomp.TRUNCATE
    if abi < 6 and same_uid:
        refuse += seccomp.SIGNALS
    return refuse, list(seccomp.METADATA)


def ruleset(readable: Sequence[str], masked: Iterable[str], writable: str, network: bool) -> int:
    """A ruleset's file descriptor. `readable` less what is `masked` (real paths) may be read and executed."""
    abi = version()
    rights = (1 << RIGHTS_BY_VERSION.get(abi, 16)) - 1
    attributes = struct.pack("QQQ", rights, 0 if network or abi < 4 else 3, 3 if abi >= 6 else 0)
    size = 8 if abi < 4 else 16 if abi < 6 else 24
    fd = check(libc.syscall(CREATE, attributes, size, 0), "landlock_create_ruleset")
    hidden = frozenset(masked)
    for path in readable:
        _allow(fd, os.path.realpath(path), hidden)
    for path in DEVICES:
        _rule(fd, path, READ_FILE | WRITE_FILE)
    _rule(fd, writable, rights)
    return fd


def restrict(fd: int) -> None:
    """This process and all it starts, for ever. Needs no_new_privs."""
    check(libc.syscall(RESTRICT, fd, 0), "landlock_restrict_self")
    os.close(fd)


def _allow(fd: int, path: str, hidden: frozenset[str]) -> None:
    """Rules cannot have exceptions: a folder with something hidden in it is allowed child by child."""
    if path in hidden:
        _rule(fd, path, READ_DIR)  # its packages are allowed one by one; names may be seen
        return
    if not any(mask.startswith(path.rstrip("/") + "/") for mask in hidden):
        _rule(fd, path, EXECUTE | READ_FILE | READ_DIR)
        return
    _rule(fd, path, READ_DIR)
    with contextlib.suppress(OSError), os.scandir(path) as entries:
        for entry in entries:
            if not entry.is_symlink():  # a rule would open its target, which must be allowed for itself
                _allow(fd, entry.path, hidden)


def _rule(fd: int, path: str, rights: int) -> None:
    """Skips what does not exist or cannot be reached: it stays forbidden."""
    try:
        target = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not os.path.isdir(path):
            rights &= FILE_RIGHTS
        if version() < 3:
            rights &= ~TRUNCATE
        check(libc.syscall(ADD_RULE, fd, 1, struct.pack("=Qi", rights, target), 0), f"landlock_add_rule({path})")
    finally:
        os.close(target)
