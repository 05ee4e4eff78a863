"""The BPF programs of both architectures, run by an interpreter of the few instructions they use."""

from __future__ import annotations

import errno
import struct
from pathlib import Path

import pytest

from agentrl.tools.sandboxes.zygote import landlock, seccomp

ALLOW, KILL = 0x7FFF0000, 0x80000000
EPERM, ENOSYS, PRETENDED = 0x50000 | errno.EPERM, 0x50000 | errno.ENOSYS, 0x50000
MACHINES = {"x86_64": 0, "aarch64": 1}

TABLES = ("REFUSED", "MEMFD", "PRETENDED", "METADATA", "OWNERSHIP", "TRUNCATE", "SIGNALS", "SELF_ONLY")
SINGLE = ("CLONE", "CLONE3", "IOCTL", "FCNTL", "SETPRIORITY", "SOCKET", "SOCKETPAIR")


def kernel_numbers() -> dict[str, tuple[int | None, int | None]]:
    """What the kernel's headers say, (x86-64, aarch64) of each call."""
    lines = (Path(__file__).parent / "syscalls.txt").read_text().splitlines()
    rows = [line.split() for line in lines if not line.startswith("#")]
    return {name: (None if x86 == "-" else int(x86), None if arm == "-" else int(arm)) for name, x86, arm in rows}


def decide(code: bytes, machine: str, number: int, *arguments: int) -> int:
    """What the kernel would answer."""
    padded = [*arguments, *[0] * 6][:6]
    data = struct.pack("=IIQ6Q", number, seccomp.AUDIT_ARCH[machine], 0, *padded)
    at, accumulator = 0, 0
    while True:
        operation, if_true, if_false, value = struct.unpack_from("HBBI", code, at * 8)
        at += 1
        if operation == 0x20:
            (accumulator,) = struct.unpack_from("=I", data, value)
        elif operation == 0x06:
            return int(value)
        else:
            met = {0x15: accumulator == value, 0x35: accumulator >= value, 0x45: bool(accumulator & value)}[operation]
            at += if_true if met else if_false


@pytest.fixture(params=MACHINES)
def machine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_all_numbers_are_the_kernel_s_on_both_architectures() -> None:
    known = kernel_numbers()
    ours = {name: numbers for table in TABLES for name, numbers in getattr(seccomp, table).items()}
    ours |= {name.lower(): getattr(seccomp, name) for name in SINGLE}
    assert len(ours) > 100
    for name, (x86, arm) in ours.items():
        assert (x86 or None, arm or None) == known[name], name
    assert max(number for numbers in known.values() for number in numbers if number) == seccomp.NEWEST


def test_what_could_reach_out_is_refused_by_name(machine: str) -> None:
    """Families of calls, taken from the kernel's list and not from ours: a new member must not slip through."""
    families = ("bpf", "io_uring_", "key", "add_key", "request_key", "mount", "umount", "move_mount", "open_tree", "fs", "shm",
        "sem", "msg", "mq_", "process_vm_", "ptrace", "kexec_", "perf_", "fanotify_", "userfaultfd", "pidfd_getfd", "swap",
        "set_mempolicy", "mbind", "settimeofday", "clock_settime", "clock_adjtime", "adjtimex", "pivot_root", "chroot",
        "reboot", "quotactl", "unshare", "setns", "personality", "seccomp", "memfd_secret", "name_to_handle", "open_by_handle",
        "init_module", "finit_module", "delete_module", "io", "modify_ldt", "acct", "syslog", "vmsplice", "kcmp")  # fmt: skip
    harmless = {"fsync", "fstat", "fstatfs", "fsetxattr", "ioctl", "io_setup", "io_submit", "io_cancel", "io_destroy",
        "io_getevents", "io_pgetevents", "ioprio_get"}  # fmt: skip  # POSIX files and asynchronous reads of them
    code = seccomp.program(machine=machine)
    for name, numbers in kernel_numbers().items():
        number = numbers[MACHINES[machine]]
        if number is not None and name.startswith(families) and name not in harmless:
            assert decide(code, machine, number) == EPERM, name


def test_what_is_refused(machine: str) -> None:
    code = seccomp.program(machine=machine)
    for name, numbers in seccomp.REFUSED.items():
        if number := numbers[MACHINES[machine]]:
            assert decide(code, machine, number) == EPERM, name
    for name, numbers in seccomp.PRETENDED.items():
        assert decide(code, machine, numbers[MACHINES[machine]]) == PRETENDED, name


# read, write, close, mmap, execve, exit_group, wait4, futex, openat, getpid: from the kernel's tables
@pytest.mark.parametrize(
    ("name", "x86", "arm"),
    [("read", 0, 63), ("write", 1, 64), ("close", 3, 57), ("mmap", 9, 222), ("execve", 59, 221), ("exit_group", 231, 94),
     ("wait4", 61, 260), ("futex", 202, 98), ("openat", 257, 56), ("getpid", 39, 172), ("kill", 62, 129), ("chmod", 90, 53),
     ("truncate", 76, 45), ("memfd_create", 319, 279)],
)  # fmt: skip
def test_what_is_allowed(machine: str, name: str, x86: int, arm: int) -> None:
    assert decide(seccomp.program(machine=machine), machine, (x86, arm)[MACHINES[machine]]) == ALLOW


def test_another_architecture_is_killed_and_unknown_calls_are_not_there(machine: str) -> None:
    other = "aarch64" if machine == "x86_64" else "x86_64"
    code = seccomp.program(machine=machine)
    assert decide(code, other, 39) == KILL
    for number in (seccomp.NEWEST + 1, 500, 0x40000000, 0x40000000 + 39, 0xFFFFFFFF):
        assert decide(code, machine, number) == ENOSYS
    assert decide(code, machine, 435) == ENOSYS  # clone3


def test_arguments_are_looked_at(machine: str) -> None:
    column = MACHINES[machine]
    code = seccomp.program(machine=machine)
    clone, ioctl, pair, socket, limit = ((56, 220), (16, 29), (53, 199), (41, 198), (302, 261))
    assert decide(code, machine, clone[column], 17) == ALLOW  # fork
    assert decide(code, machine, clone[column], 0x3D0F00) == ALLOW  # a thread
    for flag in (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000):
        assert decide(code, machine, clone[column], flag | 17) == EPERM
    assert decide(code, machine, ioctl[column], 0, 0x5401) == ALLOW  # TCGETS
    assert decide(code, machine, ioctl[column], 0, 0x5412) == EPERM  # TIOCSTI
    assert decide(code, machine, ioctl[column], 0, 0x541C) == EPERM  # TIOCLINUX
    assert decide(code, machine, pair[column], 1, 1) == ALLOW
    assert decide(code, machine, pair[column], 2, 1) == EPERM
    assert decide(code, machine, socket[column], 1, 1) == EPERM
    assert decide(code, machine, limit[column], 0, 1) == ALLOW
    assert decide(code, machine, limit[column], 4321, 1) == EPERM
    control = (72, 25)[column]
    assert decide(code, machine, control, 0, 1) == ALLOW  # F_GETFD
    assert decide(code, machine, control, 0, 1024) == EPERM  # F_SETLEASE
    priority = (141, 140)[column]
    assert decide(code, machine, priority, 0, 0, 5) == ALLOW  # os.nice
    assert decide(code, machine, priority, 2, 0, 5) == EPERM  # all processes of the user
    assert decide(code, machine, priority, 0, 77, 5) == EPERM


def test_the_network_opens_the_internet_but_no_local_sockets(machine: str) -> None:
    code = seccomp.program(machine=machine, network=True)
    number = (41, 198)[MACHINES[machine]]
    assert [decide(code, machine, number, domain) for domain in (2, 10)] == [ALLOW, ALLOW]
    assert {decide(code, machine, number, domain) for domain in (1, 16, 17, 40)} == {EPERM}


def test_landlock_is_complemented_by_version(machine: str) -> None:
    column = MACHINES[machine]

    def answers(abi: int, same_uid: bool) -> dict[str, int]:
        refuse, pretend = landlock.complement(abi, same_uid=same_uid)
        code = seccomp.program(machine=machine, refuse=refuse, pretend=pretend, signal_ownership=abi >= 6 or not same_uid)
        calls = {"kill": (62, 129), "truncate": (76, 45), "fchmodat": (268, 53), "fchownat": (260, 54), "memfd": (319, 279)}
        found = {name: decide(code, machine, numbers[column]) for name, numbers in calls.items()}
        return {**found, "F_SETOWN": decide(code, machine, (72, 25)[column], 0, 8)}

    oldest, newest = answers(1, True), answers(7, True)
    always = {"fchmodat": PRETENDED, "fchownat": EPERM, "memfd": EPERM}
    assert oldest == {**always, "kill": EPERM, "truncate": EPERM, "F_SETOWN": EPERM}
    assert newest == {**always, "kill": ALLOW, "truncate": ALLOW, "F_SETOWN": ALLOW}
    assert answers(1, False)["kill"] == ALLOW  # a uid of its own has nobody to kill


def test_no_jump_is_too_long() -> None:
    """A jump is one byte; the program must be built so that none needs more."""
    for machine in MACHINES:
        code = seccomp.program(machine=machine, network=True, refuse=seccomp.SIGNALS, pretend=seccomp.METADATA)
        assert len(code) % 8 == 0
        assert len(code) // 8 < 4096  # the kernel's limit
