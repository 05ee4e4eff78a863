"""The life of one forked child: it waits for a task, shuts itself in beforehand, and becomes the program.

Everything up to `take` is done while the slot is idle, so that it costs a job no time. Text of a job enters only here,
never the slot, so that no later job can find it in its memory.
"""

from __future__ import annotations

import os
import signal
import socket
import stat
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from mmap import mmap
from typing import Any, NoReturn

from . import calls, script, wire
from .cage import Cage

JOBS_FD = 3
FIRST_FREE = 4
CHUNK = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    mode: bytes
    text: str
    code: int
    """A file descriptor, as the next: code or data in."""
    data: int
    """Data out (READ, CALL)."""


def main(jobs: int, cage: Cage, floor: int, page: mmap, reseed: Callable[[bytes], None], open_below: int) -> NoReturn:
    """Never returns. `floor` is the lowest job number that is still to be done; all descriptors are below `open_below`."""
    try:
        if jobs != JOBS_FD:
            os.dup2(jobs, JOBS_FD)
        if cage.ruleset is None:
            os.closerange(FIRST_FREE, open_below)
        else:  # which cage.close uses up
            os.closerange(FIRST_FREE, cage.ruleset)
            os.closerange(cage.ruleset + 1, open_below)
        cage.close()
        task = take(socket.socket(fileno=JOBS_FD), floor, page)
        if task is None:
            os._exit(0)
        _enter(cage.home)
        perform(task, page, reseed)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(121)


def rehearse(cage: Cage) -> NoReturn:
    """Only shuts itself in: exit code 0 when that works here."""
    try:
        cage.close()
        os.chdir(cage.home)
        os._exit(0 if cage.is_closed() else 120)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(121)


def take(jobs: socket.socket, floor: int, page: mmap) -> Task | None:
    """Waits for a task. File descriptors 0 to 2 are its own afterwards. None when the host is gone."""
    while True:
        message, fds = wire.receive(jobs)
        if not message:
            return None
        number, mode = wire.TASK.unpack_from(message)
        if number >= floor:
            break
        for fd in fds:  # a job that was given up before anyone took it
            os.close(fd)
    wire.PAGE.pack_into(page, 0, number, 0.0)
    code, out, err, data_or_input = [*fds, -1][:4]
    os.dup2(out, 1)
    os.dup2(err, 2)
    takes_input = mode in (wire.PYTHON, wire.EXEC) and data_or_input >= 0
    if takes_input:
        os.dup2(data_or_input, 0)
    jobs.close()
    code, data = _renumber(code, -1 if takes_input else data_or_input)
    return Task(mode=mode, text=message[wire.TASK.size :].decode("utf-8", "surrogateescape"), code=code, data=data)


def _renumber(code: int, data: int) -> tuple[int, int]:
    """Moves the two descriptors to 3 and 4 and closes all others."""
    high = [os.dup2(fd, 20 + i, inheritable=False) if fd >= 0 else -1 for i, fd in enumerate((code, data))]
    low = [os.dup2(fd, 3 + i, inheritable=False) if fd >= 0 else -1 for i, fd in enumerate(high)]
    os.closerange(4 if data < 0 else 5, 64)
    return low[0], low[1]


def _enter(home: str) -> None:
    """The working folder, which an earlier program of the same sandbox may have removed."""
    try:
        os.chdir(home)
    except OSError:
        os.makedirs(home, exist_ok=True)
        os.chmod(home, 0o700)
        os.chdir(home)


def perform(task: Task, page: mmap, reseed: Callable[[bytes], None]) -> NoReturn:
    if task.mode == wire.READ:
        _file(task.text, lambda path: _copy_out(path, task.data))
    if task.mode == wire.WRITE:
        _file(task.text, lambda path: _copy_in(path, task.code))
    code = read_all(task.code)
    os.close(task.code)
    if task.mode == wire.EXEC:
        _execute(code)
    if task.mode == wire.CALL:
        calls.serve(code, task.data, page, reseed)
    reseed(code)
    script.run(code)


def read_all(fd: int) -> bytes:
    size, data = os.fstat(fd).st_size, b""
    while len(data) < size:
        data += os.pread(fd, size - len(data), len(data))
    return data


def _execute(arguments: bytes) -> NoReturn:
    """Exit codes as a shell's: 127 not found, 126 not executable."""
    argv = arguments.decode("utf-8", "surrogateescape").split("\0")
    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    os.closerange(3, 64)
    try:
        os.execvp(argv[0], argv)
    except OSError as error:
        os.write(2, os.fsencode(f"{argv[0]}: {error.strerror}\n"))
        os._exit(127 if isinstance(error, FileNotFoundError) else 126)


def _file(path: str, action: Callable[[str], Any]) -> NoReturn:
    """Nothing else runs in the sandbox meanwhile, so what is checked here is what is opened."""
    home = os.getcwd()
    try:
        real = os.path.realpath(os.path.join(home, path))
        if not path or not real.startswith(home + "/"):
            _fail(wire.FILE_OUTSIDE, f"{path!r} leads out of the working folder")
        action(real)
    except FileNotFoundError:
        _fail(wire.FILE_MISSING, f"there is no file {path!r}")
    except OSError as error:
        _fail(wire.FILE_FAILED, f"{path!r}: {error.strerror}")
    os._exit(wire.FILE_OK)


def _fail(code: int, text: str) -> NoReturn:
    os.write(2, text.encode("utf-8", "backslashreplace"))
    os._exit(code)


def _copy_out(path: str, target: int) -> None:
    source = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)  # a FIFO must not hold us
    if not stat.S_ISREG(os.fstat(source).st_mode):
        _fail(wire.FILE_FAILED, f"{os.path.basename(path)!r} is no regular file")
    while chunk := os.read(source, CHUNK):
        os.write(target, chunk)


def _copy_in(path: str, source: int) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if os.path.lexists(path) and not stat.S_ISREG(os.lstat(path).st_mode):
        _fail(wire.FILE_FAILED, f"{os.path.basename(path)!r} is no regular file")
    target = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o644)
    at = 0
    while chunk := os.pread(source, CHUNK, at):
        at += len(chunk)
        while chunk:
            chunk = chunk[os.write(target, chunk) :]
    sys.stdout.flush()
