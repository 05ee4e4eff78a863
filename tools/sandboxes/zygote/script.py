"""Runs a text of Python as `python -c` would, in this process, and ends the process with its exit code."""

from __future__ import annotations

import atexit
import builtins
import linecache
import sys
import threading
import traceback
from types import ModuleType
from typing import NoReturn, TextIO

from .leave import leave

NAME = "main.py"
DEEP, SHOWN = 5000, 100  # frames of a traceback


def run(code: bytes) -> NoReturn:
    module = start(code)
    status = 0
    try:
        exec(compile(code, NAME, "exec", dont_inherit=True), module.__dict__)
    except SystemExit as end:
        status = exit_status(end)
    except BaseException as error:
        _report(error)
        status = 1
    try:
        threading._shutdown()  # type: ignore[attr-defined]  # waits for threads, as the interpreter's own end does
        atexit._run_exitfuncs()
    except BaseException as error:
        _report(error)
        status = status or 1
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BaseException:  # the user's object, or a full output: as the interpreter, which then exits with 120
            status = status or 120
    leave(status & 255)


def start(code: bytes, name: str = "__main__") -> ModuleType:
    """A clean module with streams of its own. Tracebacks and `inspect` find the source lines."""
    sys.argv = ["-c"]
    sys.path.insert(0, "")
    module = ModuleType(name)
    module.__builtins__ = builtins  # type: ignore[attr-defined]
    sys.modules[name] = module
    # Line by line, so that what was printed before a deadline is seen
    sys.stdout = _stream(1)
    sys.stderr = _stream(2)
    sys.stdin = open(0, encoding="utf-8", errors="surrogateescape", closefd=False)  # noqa: SIM115  # open until the end
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr  # type: ignore[misc]
    lines = code.decode("utf-8", "replace").splitlines(keepends=True)
    linecache.cache[NAME] = (len(code), None, lines, NAME)
    return module


def _stream(fd: int) -> TextIO:
    return open(fd, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)


def exit_status(end: SystemExit) -> int:
    if end.code is None:
        return 0
    if isinstance(end.code, int):
        return end.code
    print(end.code, file=sys.stderr)
    return 1


def _report(error: BaseException) -> None:
    """The traceback, from the user's first frame on; of an endless recursion its end, for all of it takes seconds."""
    frames = error.__traceback__
    own = frames.tb_next if frames is not None else None
    depth, at = 0, own
    while at is not None and depth <= DEEP:
        depth, at = depth + 1, at.tb_next
    traceback.print_exception(type(error), error, own, limit=None if depth <= DEEP else -SHOWN)
