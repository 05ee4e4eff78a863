"""The file system that sandboxed code sees: a small tmpfs, read-only, with what Python needs bound into it.

Built once by the master and shared by all slots; each slot adds its own /tmp and /proc.
"""

from __future__ import annotations

import os
import re

from . import linux
from .linux import MS_BIND, MS_NODEV, MS_NOEXEC, MS_NOSUID, MS_PRIVATE, MS_RDONLY, MS_REC, MS_REMOUNT, mount
from .settings import Settings

DEVICES = ("null", "zero", "full", "random", "urandom")
OLD, NEW = "/old", "/new"
UNDER_TMP = "/.tmp"  # what of the host's /tmp is visible, for slots to bind over their own /tmp
OCTAL = re.compile(rb"\\([0-7]{3})")  # how mountinfo writes spaces and the like
PRESERVED = {  # statvfs flag: mount flag; a bind mount in a user namespace may not drop these
    os.ST_NOSUID: MS_NOSUID,
    os.ST_NODEV: MS_NODEV,
    os.ST_NOEXEC: MS_NOEXEC,
    os.ST_NOATIME: 1024,
    os.ST_NODIRATIME: 2048,
    os.ST_RELATIME: 1 << 21,
}


def build(settings: Settings) -> None:
    """Makes the new root this process's root. Needs CAP_SYS_ADMIN and a mount namespace of its own. Raises OSError."""
    mount("none", "/", None, MS_REC | MS_PRIVATE)
    mount("tmpfs", "/tmp", "tmpfs", MS_NOSUID | MS_NODEV, "size=4m,mode=755")
    os.mkdir("/tmp" + OLD)
    os.mkdir("/tmp" + NEW)
    linux.pivot_root("/tmp", "/tmp" + OLD)  # so that nothing of the host's own /tmp is covered
    os.chdir("/")
    mount("tmpfs", NEW, "tmpfs", MS_NOSUID | MS_NODEV, "size=4m,mode=755")
    for path in settings.readable:
        expose(path)
    for path in settings.masked:
        if os.path.isdir(NEW + path):
            mount("tmpfs", NEW + path, "tmpfs", MS_NOSUID | MS_NODEV, "size=1m,mode=755")
    for path in settings.packages:
        expose(path)
    _furnish(settings)
    mount_proc(NEW)  # while the host's is still in sight: the kernel lets a user namespace mount only what it sees
    _make_readonly()
    os.chdir(NEW)
    linux.pivot_root(".", ".")
    linux.unmount(".")
    os.chdir("/")


def expose(path: str) -> None:
    """Binds a host path to the same name inside; links on the way are made anew, as they are."""
    at, rest, hops = "", [part for part in path.split("/") if part], 0
    while rest:
        part = rest.pop(0)
        if part == "..":
            at = os.path.dirname(at)
            continue
        at += "/" + part
        if os.path.islink(OLD + at):
            target = os.readlink(OLD + at)
            if not os.path.lexists(NEW + at):
                os.symlink(target, NEW + at)
            hops += 1
            if hops > 40:
                return  # a loop of links is visible as one
            rest = [piece for piece in target.split("/") if piece] + rest
            at = "" if target.startswith("/") else os.path.dirname(at)
        elif rest and os.path.isdir(OLD + at):
            os.makedirs(NEW + at, exist_ok=True)
        elif not os.path.exists(OLD + at):
            return
    if at and not _same(OLD + at, NEW + at):
        _bind(OLD + at, NEW + at)


def _same(old: str, new: str) -> bool:
    """Already visible: below something that is bound."""
    return os.path.exists(new) and os.path.samefile(old, new)


def _bind(source: str, target: str) -> None:
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))
    mount(source, target, None, MS_BIND | MS_REC)


def _furnish(settings: Settings) -> None:
    """The few files and devices that programs take for granted."""
    for folder in ("/dev", "/etc", "/tmp", "/proc", "/var", UNDER_TMP):
        os.makedirs(NEW + folder, exist_ok=True)
    for name in DEVICES:
        _bind(f"{OLD}/dev/{name}", f"{NEW}/dev/{name}")
    links = {"/dev/fd": "/proc/self/fd", "/dev/stdin": "fd/0", "/dev/stdout": "fd/1", "/dev/stderr": "fd/2"}
    for link, target in {**links, "/dev/shm": "/tmp/.shm", "/var/tmp": "/tmp"}.items():
        os.symlink(target, NEW + link)
    uids = range(settings.first_uid, settings.first_uid + settings.slots)
    _write("/etc/passwd", "".join(f"sandbox:x:{uid}:{uid}::/tmp/work:/bin/sh\n" for uid in uids))
    _write("/etc/group", "".join(f"sandbox:x:{uid}:\n" for uid in uids))
    if not os.path.lexists(NEW + "/etc/hosts"):  # with the network on, it is the host's
        _write("/etc/hosts", "127.0.0.1 localhost\n")


def _write(path: str, text: str) -> None:
    with open(NEW + path, "w", encoding="utf-8") as file:
        file.write(text)


def _make_readonly() -> None:
    """Every mount below the new root, one by one: a recursive bind takes writable mounts along."""
    with open(f"{OLD}/proc/self/mountinfo", "rb") as lines:
        points = [OCTAL.sub(lambda found: bytes([int(found[1], 8)]), line.split()[4]) for line in lines]
    for point in map(os.fsdecode, points):
        if (point == NEW or point.startswith(NEW + "/")) and not point.startswith((NEW + "/dev/", NEW + "/proc")):
            flags = os.statvfs(point).f_flag
            kept = sum(flag for has, flag in PRESERVED.items() if flags & has)
            mount("none", point, None, MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV | kept)


def slot_mounts(settings: Settings) -> frozenset[str]:
    """A slot's own /tmp and /proc. Gives the names in /tmp that belong to the read-only part and must be left alone."""
    kept = os.listdir("/tmp")
    if kept:
        mount("/tmp", UNDER_TMP, None, MS_BIND | MS_REC)
    inodes = max(1024, settings.disk // 8192)
    mount("tmpfs", "/tmp", "tmpfs", MS_NOSUID | MS_NODEV, f"size={settings.disk},nr_inodes={inodes},mode=1777")
    for name in kept:
        source, target = f"{UNDER_TMP}/{name}", f"/tmp/{name}"
        if os.path.islink(source):
            os.symlink(os.readlink(source), target)
        else:
            _bind(source, target)
    mount_proc("", f"subset=pid,hidepid=invisible,gid={os.getgid()}")  # our group is the slot's, which must see its processes
    return frozenset(kept)


def mount_proc(root: str = "", options: str | None = None) -> None:
    mount("proc", root + "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, options)
