"""The life of one forked child: it shuts itself in and becomes the program of its job.

Text of a job enters only here, never the slot, so that no later job can find it in its memory.
"""

from __future__ import annotations

import os
import signal
import stat
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from mmap import mmap
from typing import Any, NoReturn

from . import cage as cages
from . import calls, forking, script, wire
from .cage import Cage, Step

CHUNK = 1 << 16
TAKING_INPUT = (wire.PYTHON, wire.EXEC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What every child of a slot finds."""

    steps: Sequence[Step]
    """Into the cage."""
    home: str
    ruleset: int
    """A file descriptor that the steps need, or -1."""
    page: mmap
    reseed: Callable[[bytes], None]
    open_below: int
    """All file descriptors are below this."""


def main(mode: bytes, files: Sequence[int], around: Surroundings) -> NoReturn:
    """Never returns. `files`: descriptors of code, stdout, stderr and, where there is one, the fourth file of the mode."""
    try:
        code, data = _settle(mode, files, around)
        cages.follow(around.steps)
        _enter(around.home)
        perform(mode, code, data, around)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(121)


def rehearse(cage: Cage) -> NoReturn:
    """Only shuts itself in: exit code 0 when that works here."""
    try:
        cages.follow(cage.steps())
        os.chdir(cage.home)
        os._exit(0 if cages.is_closed() else 120)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(121)


def _settle(mode: bytes, files: Sequence[int], around: Surroundings) -> tuple[bytes, int]:
    """Gives the code and the fourth file, if that is not the input. Closes all but it, 0 to 2, and what the steps need."""
    code, out, err, *more = files
    os.dup2(out, 1)
    os.dup2(err, 2)
    text = os.pread(code, os.lseek(code, 0, os.SEEK_END), 0)
    data = more[0] if more else -1
    if data >= 0 and mode in TAKING_INPUT:
        os.dup2(data, 0)
        data = -1
    start = 3
    for fd in sorted((data, around.ruleset)):
        if fd >= 0:
            os.closerange(start, fd)
            start = fd + 1
    os.closerange(start, around.open_below)
    return text, data


def _enter(home: str) -> None:
    """The working folder, which an earlier program of the same sandbox may have removed."""
    try:
        os.chdir(home)
    except OSError:
        os.makedirs(home, exist_ok=True)
        os.chmod(home, 0o700)
        os.chdir(home)


def perform(mode: bytes, code: bytes, data: int, around: Surroundings) -> NoReturn:
    """`data`: the fourth file of READ, WRITE and CALL."""
    if mode in (wire.PYTHON, wire.CALL):
        forking.restore()
        around.reseed(code)
    if mode == wire.PYTHON:
        script.run(code)
    if mode == wire.CALL:
        calls.serve(code, data, around.page)
    if mode == wire.EXEC:
        _execute(code)
    path = code.decode("utf-8", "surrogateescape")
    _file(path, lambda real: _copy_out(real, data) if mode == wire.READ else _copy_in(real, data))


def _execute(arguments: bytes) -> NoReturn:
    """Exit codes as a shell's: 127 not found, 126 not executable."""
    argv = arguments.decode("utf-8", "surrogateescape").split("\0")
    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
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
