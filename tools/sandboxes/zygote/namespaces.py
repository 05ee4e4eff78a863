"""Leaving the host: the namespaces of the master and of the slots, and whose uids they hold."""

from __future__ import annotations

import contextlib
import os
from typing import NoReturn

from . import linux, root
from .settings import Settings

ALL = (
    linux.CLONE_NEWNS
    | linux.CLONE_NEWPID
    | linux.CLONE_NEWIPC
    | linux.CLONE_NEWUTS
    | linux.CLONE_NEWCGROUP
    | linux.CLONE_NEWUSER
)
RANGE_START, RANGE = 200_000, 65_536
"""Host uids that root maps into the sandbox: above what people and services get."""


def enter_as_root(settings: Settings) -> None:
    """Builds the root while all host paths are reachable, then moves into a user namespace with a range of uids."""
    go, done = os.pipe()
    answer, tell = os.pipe()
    mapper = os.fork()
    if mapper == 0:
        os.close(done)
        os.close(answer)
        _write_maps(os.getppid(), go, tell)
    os.close(go)
    os.close(tell)
    try:
        linux.unshare(linux.CLONE_NEWNS, "mount")
        root.build(settings)
        linux.unshare(_flags(settings), "user, mount, pid, net, ipc, uts, cgroup")
        os.write(done, b"1")
        message = os.read(answer, 1000).decode()
    finally:
        os.close(done)
        os.close(answer)
        os.waitpid(mapper, 0)
    if message != "ok":
        raise PermissionError(message or "mapping uids failed")
    os.setresgid(0, 0, 0)
    os.setgroups([])
    os.setresuid(0, 0, 0)
    linux.prctl(linux.PR_SET_DUMPABLE, 1)  # the change of uid took it away, and with it access to our own /proc files


def _write_maps(target: int, go: int, tell: int) -> NoReturn:
    """Runs in a helper that stays outside: the map must be written with the host's rights."""
    message = "the zygote ended before its uids were mapped"
    if os.read(go, 1):
        try:
            for name in ("uid_map", "gid_map"):
                with open(f"/proc/{target}/{name}", "w") as file:
                    file.write(f"0 {RANGE_START} {RANGE}")
            message = "ok"
        except OSError as error:
            message = f"writing uid_map: {error}"
    with contextlib.suppress(BrokenPipeError):
        os.write(tell, message.encode())
    os._exit(0)


def enter_as_user(settings: Settings) -> None:
    """One user namespace with the caller's own uid, under the name of the first slot's."""
    uid, gid = os.getuid(), os.getgid()
    linux.unshare(_flags(settings), "user, mount, pid, net, ipc, uts, cgroup")
    map_one(settings.first_uid, uid, gid)


def map_one(inside: int, uid: int, gid: int) -> None:
    for name, text in (("setgroups", "deny"), ("uid_map", f"{inside} {uid} 1"), ("gid_map", f"{inside} {gid} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def fork_into_pid_namespace(open_below: int) -> None:
    """Goes on as process 1 of the new namespace; the outer process waits for it and ends as it does."""
    inner = os.fork()
    if inner:
        os.closerange(3, open_below)
        _, status = os.waitpid(inner, 0)
        os._exit(1 if status else 0)
    linux.prctl(linux.PR_SET_PDEATHSIG, 9)
    linux.sethostname(b"sandbox")


def fork_slot(settings: Settings, own_namespace: bool) -> int:
    """0 in the slot, its pid in the master. The slot is process 1 of its own pid namespace, and a child of the master."""
    if not own_namespace:
        return os.fork()
    read, write = os.pipe()
    between = os.fork()
    if between:
        os.close(write)
        pid = os.read(read, 20)
        os.close(read)
        os.waitpid(between, 0)
        if not pid:
            raise OSError("a slot's process could not be started")
        return int(pid)
    os.close(read)
    if settings.own_uid:
        linux.unshare(linux.CLONE_NEWPID, "pid of a slot")
    else:  # a user namespace of its own, so that RLIMIT_NPROC counts each slot alone
        linux.unshare(linux.CLONE_NEWUSER | linux.CLONE_NEWPID, "user, pid of a slot")
        map_one(settings.first_uid, settings.first_uid, settings.first_uid)
    pid_inside = os.fork()
    if pid_inside:
        os.write(write, str(pid_inside).encode())
        os._exit(0)
    os.close(write)
    return 0


def _flags(settings: Settings) -> int:
    return ALL if settings.network else ALL | linux.CLONE_NEWNET
