"""The Linux calls that Python 3.11 does not offer, through ctypes. Not a wrapper of all of libc: only what is used here."""

from __future__ import annotations

import ctypes
import os
import struct

CLONE_NEWNS, CLONE_NEWCGROUP, CLONE_NEWUTS, CLONE_NEWIPC = 0x20000, 0x2000000, 0x4000000, 0x8000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT, MS_BIND = 1, 2, 4, 8, 32, 4096
MS_REC, MS_PRIVATE = 16384, 1 << 18
MNT_DETACH = 2
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_CAPBSET_DROP = 1, 4, 22, 24
PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 36, 38
PR_GET_DUMPABLE, PR_GET_SECCOMP, PR_GET_NO_NEW_PRIVS = 3, 21, 39
CAPABILITY_HEADER = struct.pack("Ii", 0x20080522, 0)  # _LINUX_CAPABILITY_VERSION_3, this process
PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}

libc = ctypes.CDLL(None, use_errno=True)


def check(result: int, what: str) -> int:
    """The result of a libc call. Raises OSError that says which step failed."""
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")
    return result


def prctl(option: int, a: object = 0, b: object = 0) -> None:
    check(libc.prctl(option, a, b, 0, 0), f"prctl({option})")


def unshare(flags: int, what: str) -> None:
    check(libc.unshare(flags), f"unshare({what})")


def mount(source: str, target: str, kind: str | None = None, flags: int = 0, options: str | None = None) -> None:
    encoded = [None if text is None else os.fsencode(text) for text in (source, target, kind, options)]
    result = libc.mount(encoded[0], encoded[1], encoded[2], ctypes.c_ulong(flags), encoded[3])
    check(result, f"mount({kind or source} on {target})")


def pivot_root(new: str, old: str) -> None:
    number = PIVOT_ROOT[os.uname().machine]
    check(libc.syscall(number, os.fsencode(new), os.fsencode(old)), "pivot_root")


def unmount(target: str) -> None:
    check(libc.umount2(os.fsencode(target), MNT_DETACH), f"umount({target})")


def sethostname(name: bytes) -> None:
    check(libc.sethostname(name, len(name)), "sethostname")


def drop_bounding_set() -> None:
    """Nothing that is executed later can ever gain a capability."""
    for capability in range(64):
        if libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) < 0:
            return  # past the last one that this kernel knows, or none to drop


def drop_capabilities() -> None:
    """Effective, permitted and inheritable sets become empty."""
    check(libc.capset(CAPABILITY_HEADER, b"\0" * 24), "capset")


def has_capabilities() -> bool:
    """In any of the three sets."""
    sets = ctypes.create_string_buffer(24)
    check(libc.capget(ctypes.create_string_buffer(CAPABILITY_HEADER), sets), "capget")
    return any(sets.raw)
