"""The system calls that sandboxed code may not make, as a classic BPF program. For x86-64 and aarch64.

A list of what is refused, closed at the top: every number beyond the newest call that was looked at answers ENOSYS,
so a new kernel opens nothing. Refused: other processes' memory, mounts and namespaces, sockets, System V and POSIX
IPC (outside every quota), kernel interfaces with a history of holes (bpf, io_uring, keyctl, userfaultfd, ...).
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Iterable

from .linux import PR_SET_SECCOMP, prctl

NEWEST = 456  # futex_requeue, Linux 6.7; numbers of the x32 ABI are far beyond, too
AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
CLONE_NAMESPACES = 0x7E020000
TIOCSTI, TIOCLINUX, F_SETOWN, F_SETOWN_EX, F_SETLEASE = 0x5412, 0x541C, 8, 15, 1024
AF_UNIX, AF_INET, AF_INET6 = 1, 2, 10

# name: (x86-64, aarch64); 0 where an architecture has no such call
REFUSED = {
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272),
    "process_madvise": (440, 440), "process_mrelease": (448, 448), "pidfd_getfd": (438, 438), "perf_event_open": (298, 241),
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51), "fsopen": (430, 430),
    "fsmount": (432, 432), "fsconfig": (431, 431), "fspick": (433, 433), "move_mount": (429, 429), "open_tree": (428, 428),
    "mount_setattr": (442, 442), "unshare": (272, 97), "setns": (308, 268), "keyctl": (250, 219), "add_key": (248, 217),
    "request_key": (249, 218), "bpf": (321, 280), "userfaultfd": (323, 282), "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426), "io_uring_register": (427, 427), "kexec_load": (246, 104), "kexec_file_load": (320, 294),
    "init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106), "create_module": (174, 0),
    "open_by_handle_at": (304, 265), "name_to_handle_at": (303, 264), "personality": (135, 92), "syslog": (103, 116),
    "quotactl": (179, 60), "quotactl_fd": (443, 443), "swapon": (167, 224), "swapoff": (168, 225), "reboot": (169, 142),
    "acct": (163, 89), "iopl": (172, 0), "ioperm": (173, 0), "sethostname": (170, 161), "setdomainname": (171, 162),
    "shmget": (29, 194), "shmat": (30, 196), "shmctl": (31, 195), "shmdt": (67, 197), "semget": (64, 190),
    "semop": (65, 193), "semctl": (66, 191), "semtimedop": (220, 192), "msgget": (68, 186), "msgsnd": (69, 189),
    "msgrcv": (70, 188), "msgctl": (71, 187), "mq_open": (240, 180), "mq_unlink": (241, 181), "mq_timedsend": (242, 182),
    "mq_timedreceive": (243, 183), "mq_notify": (244, 184), "mq_getsetattr": (245, 185), "lookup_dcookie": (212, 18),
    "nfsservctl": (180, 42), "vhangup": (153, 58), "settimeofday": (164, 170), "clock_settime": (227, 112),
    "clock_adjtime": (305, 266), "adjtimex": (159, 171), "modify_ldt": (154, 0), "sysfs": (139, 0), "_sysctl": (156, 0),
    "ustat": (136, 0), "uselib": (134, 0), "fanotify_init": (300, 262), "fanotify_mark": (301, 263),
    "memfd_secret": (447, 447), "set_mempolicy": (238, 237), "mbind": (237, 235), "migrate_pages": (256, 238),
    "move_pages": (279, 239), "set_mempolicy_home_node": (450, 450), "seccomp": (317, 277), "vmsplice": (278, 75),
    "ioprio_set": (251, 30),
}  # fmt: skip

MEMFD = {"memfd_create": (319, 279)}
"""Memory outside every process: refused where no cgroup counts it."""

PRETENDED = {"sync": (162, 81), "syncfs": (306, 267)}
"""Answered with success and not done: they would stall the host's disks."""

METADATA = {
    "chmod": (90, 0), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452), "utime": (132, 0),
    "utimes": (235, 0), "utimensat": (280, 88), "futimesat": (261, 0),
}  # fmt: skip
"""Landlock does not govern these, and they could harm the user's own files: pretended there (shutil.copy needs them)."""

OWNERSHIP = {
    "chown": (92, 0), "lchown": (94, 0), "fchown": (93, 55), "fchownat": (260, 54), "setxattr": (188, 5),
    "lsetxattr": (189, 6), "fsetxattr": (190, 7), "removexattr": (197, 14), "lremovexattr": (198, 15),
    "fremovexattr": (199, 16),
}  # fmt: skip
"""As METADATA, but nothing needs them: refused."""

TRUNCATE = {"truncate": (76, 45)}
"""Not governed by Landlock before its version 3: refused there. (ftruncate needs a file open for writing.)"""

SIGNALS = {
    "kill": (62, 129), "tkill": (200, 130), "tgkill": (234, 131), "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240), "pidfd_send_signal": (424, 424),
}  # fmt: skip
"""Refused where the code runs under the user's own uid and Landlock (before version 6) does not scope signals."""

# argument 0 must be 0, this process: their pid may name any process of the same uid
SELF_ONLY = {
    "prlimit64": (302, 261), "sched_setaffinity": (203, 122), "sched_setscheduler": (144, 119),
    "sched_setparam": (142, 118), "sched_setattr": (314, 274),
}  # fmt: skip
CLONE, CLONE3, IOCTL, FCNTL = (56, 220), (435, 435), (16, 29), (72, 25)
SETPRIORITY, SOCKET, SOCKETPAIR = (141, 140), (41, 198), (53, 199)

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL_PROCESS, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_PRETEND, _EPERM, _ENOSYS = _ERRNO, _ERRNO | errno.EPERM, _ERRNO | errno.ENOSYS


def supported(machine: str | None = None) -> bool:
    return (machine or os.uname().machine) in AUDIT_ARCH


def program(
    *,
    machine: str | None = None,
    network: bool = False,
    refuse: Iterable[str] = (),
    pretend: Iterable[str] = (),
    signal_ownership: bool = True,
) -> bytes:
    """The BPF program. `refuse` and `pretend` name calls beyond REFUSED and PRETENDED, from the tables of this file.

    With `signal_ownership` off, fcntl(F_SETOWN) is refused: it sends signals to any process of the same uid.
    """
    machine = machine or os.uname().machine
    column = list(AUDIT_ARCH).index(machine)
    table = {**MEMFD, **PRETENDED, **METADATA, **OWNERSHIP, **TRUNCATE, **SIGNALS, **REFUSED}
    code = [_op(_LOAD, 4), _op(_EQUAL, AUDIT_ARCH[machine], 1, 0), _op(_RETURN, _KILL_PROCESS)]
    code += [_op(_LOAD, 0), _op(_AT_LEAST, NEWEST + 1, 0, 1), _op(_RETURN, _ENOSYS)]
    code += _answer(CLONE3[column], _ENOSYS)  # its flags are behind a pointer; libc falls back to clone
    code += _with_argument(CLONE[column], 0, [_op(_ANY_BIT, CLONE_NAMESPACES, 0, 1), _op(_RETURN, _EPERM)])
    code += _with_argument(IOCTL[column], 1, [*_never(TIOCSTI), *_never(TIOCLINUX)])
    code += _with_argument(SOCKETPAIR[column], 0, _only(AF_UNIX))
    code += _with_argument(SOCKET[column], 0, _only(AF_INET, AF_INET6)) if network else _answer(SOCKET[column], _EPERM)
    code += _with_argument(SETPRIORITY[column], 0, _only(0)) + _with_argument(SETPRIORITY[column], 1, _only(0))
    for numbers in SELF_ONLY.values():
        code += _with_argument(numbers[column], 0, _only(0))
    # A lease on a file of the same owner holds up whoever opens it on the host
    commands = [F_SETLEASE] if signal_ownership else [F_SETLEASE, F_SETOWN, F_SETOWN_EX]
    code += _with_argument(FCNTL[column], 1, [op for command in commands for op in _never(command)])
    for name in [*PRETENDED, *pretend]:
        code += _answer(table[name][column], _PRETEND)
    for name in [*REFUSED, *refuse]:
        code += _answer(table[name][column], _EPERM)
    return b"".join([*code, _op(_RETURN, _ALLOW)])


def install(code: bytes) -> None:
    """For this process and all it starts, for ever. Needs no_new_privs."""
    buffer = ctypes.create_string_buffer(code, len(code))
    descriptor = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(code) // 8, ctypes.addressof(buffer)))
    prctl(PR_SET_SECCOMP, 2, descriptor)  # 2: SECCOMP_MODE_FILTER


def _op(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("HBBI", code, if_true, if_false, value)


def _answer(number: int, result: int) -> list[bytes]:
    """Answers one call with `result`; x86-64's call 0 is read, so 0 stands for "there is none"."""
    return [_op(_EQUAL, number, 0, 1), _op(_RETURN, result)] if number else []


def _with_argument(number: int, index: int, body: list[bytes]) -> list[bytes]:
    """`body` sees the low half of an argument of one call; what it lets through goes on with the number loaded again."""
    inner = [_op(_LOAD, 16 + 8 * index), *body, _op(_LOAD, 0)]
    return [_op(_EQUAL, number, 0, len(inner)), *inner]


def _only(*allowed: int) -> list[bytes]:
    """Refuses unless the loaded value is one of these."""
    tests = [_op(_EQUAL, value, len(allowed) - i, 0) for i, value in enumerate(allowed)]
    return [*tests, _op(_RETURN, _EPERM)]


def _never(forbidden: int) -> list[bytes]:
    return [_op(_EQUAL, forbidden, 0, 1), _op(_RETURN, _EPERM)]
