"""Calls one function of a candidate's code many times. It has the inputs, never what is expected of them.

The candidate shares this process, so it can write what it likes into the results; but all it could write is values,
and which values are right is known only outside.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from mmap import mmap
from types import ModuleType
from typing import Any, NoReturn

from . import script, values, wire
from .leave import leave

MODULE = "solution"
MAX_TEXT = 500  # characters of an error


def serve(request: bytes, results: int, page: mmap) -> NoReturn:
    """`request`: {"code", "function", "inputs": [a text of values.dumps(tuple of arguments), ...]}."""
    write, clock, stamp = os.write, time.monotonic, wire.PAGE.pack_into
    asked = json.loads(request)
    quiet = os.open("/dev/null", os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(quiet, fd)
    os.close(quiet)

    def tell(kind: bytes, text: str) -> None:
        body = text.encode("utf-8", "backslashreplace")
        whole = wire.RECORD.pack(kind, len(body)) + body
        try:
            complete = write(results, whole) == len(whole)
        except OSError:
            complete = False
        if not complete:  # no space left: what followed would be read as part of this
            leave(wire.TOO_LARGE)

    try:
        function = _load(asked["code"], asked["function"])
    except BaseException as error:
        tell(wire.REFUSED, describe(error))
        leave(0)
    tell(wire.LOADED, "")
    for given in asked["inputs"]:
        stamp(page, 0, clock())
        kind, text = _answer(function, given)
        tell(kind, text)
    leave(0)


def _load(code: str, function: str) -> Callable[..., Any]:
    source = code.encode("utf-8", "surrogatepass")
    module = script.start(source, MODULE)
    exec(compile(source, script.NAME, "exec", dont_inherit=True), module.__dict__)
    return _find(module, function)


def _find(module: ModuleType, dotted: str) -> Callable[..., Any]:
    """`f`, or `Solution.f`: a class on the way is instantiated without arguments."""
    found: Any = module
    for part in dotted.split("."):
        found = getattr(found() if isinstance(found, type) else found, part, None)
        if found is None:
            raise NameError(f"the code defines no {dotted!r}")
    if not callable(found):
        raise TypeError(f"{dotted!r} is no function")
    return found


def _answer(
    function: Callable[..., Any],
    given: str,
    loads: Callable[[str], Any] = values.loads,
    dumps: Callable[[Any], str] = values.dumps,
) -> tuple[bytes, str]:
    try:
        return wire.VALUE, dumps(function(*loads(given)))
    except BaseException as error:
        return wire.RAISED, describe(error)


def describe(error: BaseException) -> str:
    try:
        text = str(error)
    except BaseException:  # the candidate's own exception class
        text = "?"
    return f"{type(error).__name__}: {text}"[:MAX_TEXT] if text else type(error).__name__
