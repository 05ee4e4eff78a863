"""Process 1 of a container: a slot (see zygote/slot.py) whose host is at the other end of stdin and stdout.

Runs inside, from /opt/agentrl. It forks per execution, keeps deadlines and kills what is left, as the local sandbox does;
being process 1, nothing inside can kill it. No text of a job enters its own memory, which each later child could search:
what comes in is read straight into anonymous files, and what goes out is written straight from them.
"""

from __future__ import annotations

import importlib
import json
import mmap
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from . import docker_frames as frames
from . import memfd
from .zygote import ending, folder, forking, linux, rehearsal, script, seccomp, watch, wire
from .zygote.cage import Cage
from .zygote.slot import Links, Slot
from .zygote.wire import Fourth

IN, OUT = 10, 11
"""Where stdin and stdout are moved: 0 to 2 are the programs', and a child closes all from 3 to OPEN_BELOW."""
OPEN_BELOW = 64
GROUND, HOME, SHARED = "/tmp", "/tmp/work", "/dev/shm"
OOM_FILES = ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control")


def main(settings: str) -> NoReturn:
    """`settings`: JSON with memory, pids, disk (bytes), cpu (seconds), network, env, import_path, preload."""
    asked = json.loads(settings)
    os.umask(0o022)
    os.dup2(0, IN)
    os.dup2(1, OUT)
    quiet = os.open("/dev/null", os.O_RDWR)
    os.dup2(quiet, 0)
    os.dup2(2, 1)
    if not seccomp.supported():
        raise SystemExit(f"no table of system calls for {os.uname().machine}")
    reseed = _prepare(asked)
    linux.prctl(linux.PR_SET_DUMPABLE, 0)  # the code has our uid: it may not read our memory, nor trace us
    linux.prctl(linux.PR_SET_NO_NEW_PRIVS, 1)
    _slot(asked, reseed).serve()


def _prepare(asked: dict[str, Any]) -> Callable[[bytes], None]:
    """The environment and the modules that every execution starts with."""
    own = str(Path(__file__).parent.parent)
    sys.path[:] = [path for path in sys.path if path != own]
    os.environ.clear()
    os.environ.update({"LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1", "USER": "sandbox", "LOGNAME": "sandbox"})
    os.environ.update({"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "2"})
    os.environ.update({"HOME": HOME, "TMPDIR": GROUND, **asked["env"]})
    sys.path += asked["import_path"]
    script.furnish()
    for name in asked["preload"]:
        try:
            importlib.import_module(name)
        except ImportError as error:
            print(f"{name} cannot be imported: {error}", file=sys.stderr)
    rehearsal.settle()
    return forking.reseeder(asked["preload"])


def _slot(asked: dict[str, Any], reseed: Callable[[bytes], None]) -> Slot:
    never, _ = os.pipe()  # becomes readable when its writer is closed, which is never: stdin tells when the host is gone
    links = Links(line=Stream(), host=never, oom=_oom_file())
    cage = Cage(
        home=HOME,
        temporary=GROUND,
        uid=None,
        memory=asked["memory"],
        pids=asked["pids"],
        disk=asked["disk"],
        cpu=asked["cpu"],
        counted=True,
        in_namespace=True,
        base_address_space=watch.own_size()[0],
        filter=seccomp.program(network=asked["network"]),
        ruleset=None,
        processes_before=1 << 20,  # the container's pids limit holds; this one would count all containers of one uid
    )
    return Slot(
        links=links,
        cage=cage,
        epoch=1,
        ground=GROUND,
        kept=frozenset(),
        reseed=reseed,
        open_below=OPEN_BELOW,
        kill_all=ending.kill_namespace,
        others=watch.others_in_namespace,
    )


def _oom_file() -> int:
    for path in OOM_FILES:
        if os.path.exists(path):
            return os.open(path, os.O_RDONLY)
    return -1  # gVisor shows none: a kill for want of memory is then seen as a kill


class Stream:
    """The slot's line to its host. The host sends frames whole, so that one that has begun is soon there."""

    def __init__(self) -> None:
        self._number = 0
        self._flags = 0
        self._files: list[int] = []
        self._fourth = Fourth.NONE

    def fileno(self) -> int:
        return IN

    def drain(self) -> bool:
        """There is nothing: this slot has no other life than this."""
        return True

    def receive(self) -> tuple[bytes, list[int]]:
        """An order and, with a job, its files; b"" when the host is gone."""
        head = _exactly(frames.DOWN)
        if head is None:
            return b"", []
        order, sizes = head[: wire.ORDER.size], frames.HEAD.unpack(head[wire.ORDER.size :])
        kind, number, _, _, _, flags = wire.ORDER.unpack(order)
        if kind == wire.JOB:
            self._number, self._flags = number, flags
            if not self._take(*sizes):
                return b"", []
        return order, [os.dup(fd) for fd in self._files] if kind == wire.JOB else []

    def _take(self, code_size: int, out: int, err: int, data_size: int, fourth: int) -> bool:
        """The files of a job; False when the host is gone."""
        self._close()
        self._fourth = Fourth(fourth)
        self._files = [_filled(code_size), memfd.taking(out), memfd.taking(err)]
        if self._fourth is not Fourth.NONE:
            self._files.append(_fourth_file(self._fourth, data_size))
        return -1 not in self._files

    def send(self, report: bytes) -> None:
        """A report, and what the job it is of has written. Raises BrokenPipeError when the host is gone."""
        kind, number, *_ = wire.REPORT.unpack(report)
        outputs: list[int] = []
        if kind == wire.DONE and self._files and number == self._number:
            outputs = [*self._files[1:3], *(self._files[3:] if self._fourth in (Fourth.FIXED, Fourth.GROWING) else [])]
        written = [min(os.lseek(fd, 0, os.SEEK_CUR), os.fstat(fd).st_size) for fd in outputs]
        _write(report + frames.BACK.pack(*written, *[0] * (3 - len(written))))
        for fd, size in zip(outputs, written, strict=True):
            if size:
                with mmap.mmap(fd, size, prot=mmap.PROT_READ) as area, memoryview(area) as view:
                    _write(view)
        if outputs:
            self._close()
            if self._flags & wire.TIDY:
                folder.empty(SHARED)

    def _close(self) -> None:
        for fd in self._files:
            if fd >= 0:
                os.close(fd)
        self._files = []


def _fourth_file(fourth: Fourth, size: int) -> int:
    if fourth is Fourth.INPUT:
        return _filled(size)
    return memfd.taking(size) if fourth is Fourth.FIXED else memfd.growing()


def _exactly(size: int) -> bytes | None:
    """So many bytes of stdin; None at its end."""
    data = b""
    while len(data) < size:
        chunk = os.read(IN, size - len(data))
        if not chunk:
            return None
        data += chunk
    return data


def _filled(size: int) -> int:
    """An anonymous file with the next `size` bytes of stdin, which pass no memory of ours; -1 at the end of stdin."""
    fd = memfd.growing()
    os.ftruncate(fd, size)
    if not size:
        return fd
    with mmap.mmap(fd, size) as area, memoryview(area) as view:
        at = 0
        while at < size:
            got = os.readv(IN, [view[at:]])
            if not got:
                os.close(fd)
                return -1
            at += got
    return fd


def _write(data: bytes | memoryview) -> None:
    with memoryview(data) as view:
        at = 0
        while at < len(view):
            at += os.write(OUT, view[at:])
