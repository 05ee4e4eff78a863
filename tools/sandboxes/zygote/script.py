"""Runs a text of Python as `python -c` would, in this process, and ends the process with its exit code."""

from __future__ import annotations

import _signal  # what `signal` wraps: it is spared the wrapper's work
import atexit
import builtins
import linecache
import site
import sys
import threading
import traceback
from types import ModuleType
from typing import NoReturn

from .leave import leave

NAME = "main.py"
DEEP, SHOWN = 5000, 100  # frames of a traceback


def furnish() -> None:
    """In the master, once: what `python -c` has at its start. The streams are there, and serve whatever is at 0 to 2."""
    sys.argv = ["-c"]
    sys.path.insert(0, "")
    sys.modules["__main__"] = ModuleType("__main__")
    for stream in (sys.stdout, sys.stderr):  # line by line, so that what was printed before a deadline is seen
        stream.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)  # type: ignore[union-attr]
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)  # the slot must have no handler; see _slot in master.py
    site.setquit()  # exit() and quit(), which -S leaves out
    site.setcopyright()
    site.sethelper()


def run(code: bytes) -> NoReturn:
    module = start(code)
    _signal.signal(_signal.SIGINT, _signal.default_int_handler)
    status = 0
    try:
        exec(compile(code, NAME, "exec", dont_inherit=True), module.__dict__)
    except SystemExit as end:
        status = exit_status(end)
    except BaseException as error:
        report(error)
        status = 1
    try:
        if len(threading._active) > 1 or threading._threading_atexits:  # type: ignore[attr-defined]
            threading._shutdown()  # type: ignore[attr-defined]  # waits for threads, as the interpreter's own end does
        atexit._run_exitfuncs()
    except BaseException as error:
        report(error)
        status = status or 1
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BaseException:  # the user's object, or a full output: as the interpreter, which then exits with 120
            status = status or 120
    leave(status & 255)


def start(code: bytes, name: str = "__main__") -> ModuleType:
    """A clean module. Tracebacks and `inspect` find the source lines."""
    module = ModuleType(name)
    module.__builtins__ = builtins  # type: ignore[attr-defined]
    sys.modules[name] = module
    lines = code.decode("utf-8", "replace").splitlines(keepends=True)
    linecache.cache[NAME] = (len(code), None, lines, NAME)
    return module


def exit_status(end: SystemExit) -> int:
    if end.code is None:
        return 0
    if isinstance(end.code, int):
        return end.code
    print(end.code, file=sys.stderr)
    return 1


def report(error: BaseException) -> None:
    """The traceback, from the user's first frame on; of an endless recursion its end, for all of it takes seconds."""
    frames = error.__traceback__
    own = frames.tb_next if frames is not None else None
    depth, at = 0, own
    while at is not None and depth <= DEEP:
        depth, at = depth + 1, at.tb_next
    traceback.print_exception(type(error), error, own, limit=None if depth <= DEEP else -SHOWN)
