"""The nearest valid name for what Python itself could not find: a module, an attribute, a variable, a keyword.

Works on the exception and the frames it passed through; says nothing where nothing is close.
"""

from __future__ import annotations

import builtins
import inspect
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from agentrl.errors import nearest

_KEYWORD = re.compile(r"([\w.]+)\(\) got an unexpected keyword argument '(\w+)'")
_NAME = re.compile(r"cannot import name '(\w+)' from '([\w.]+)'")


def suggestion(error: BaseException, *, near: FrameType | None = None) -> str:
    """A clause to end the error's text with, or nothing. `near`: the frame in which the author wrote the wrong name.

    >>> suggestion(NameError("name 'lenn' is not defined", name="lenn"))
    "; did you mean 'len'?"
    """
    if "did you mean" in str(error).lower():
        return ""
    text = next((text for kind, say in _BY_KIND if isinstance(error, kind) and (text := say(error, near))), "")
    return f"; {text}" if text else ""


def close(wrong: str, names: Iterable[str]) -> str:
    """The one nearest name where any is near, else nothing: a list of all would not help. Private ones are not offered."""
    text = nearest(wrong, [name for name in names if wrong.startswith("_") or not name.startswith("_")], count=1)
    return text if text.startswith("did you mean") else ""


def _module(error: Any, near: FrameType | None) -> str:
    folder = Path(near.f_code.co_filename).parent if near is not None else None
    beside = {path.stem for path in folder.iterdir() if path.suffix == ".py" or path.is_dir()} if folder else set()
    missing = str(error.name or "").partition(".")[0]
    return close(missing, beside) or close(missing, sys.stdlib_module_names - {missing}) or "is it installed?"


def _imported(error: Any, near: FrameType | None) -> str:
    if "no known parent package" in str(error):
        return "a file stands for itself and is no package: write 'import helper' for the helper.py beside it"
    found = _NAME.search(str(error))
    return close(found[1], vars(sys.modules[found[2]])) if found and found[2] in sys.modules else ""


def _attribute(error: Any, near: FrameType | None) -> str:
    return close(error.name, dir(error.obj)) if error.name and error.obj is not None else ""


def _variable(error: Any, near: FrameType | None) -> str:
    known = {*near.f_locals, *near.f_globals} if near is not None else set()
    return close(error.name, {*known, *vars(builtins)}) if error.name else ""


def _keyword(error: Any, near: FrameType | None) -> str:
    found = _KEYWORD.search(str(error))
    function = _called(found[1], error) if found else None
    if found is None or function is None:
        return ""
    parameters = inspect.signature(function).parameters.values()
    return nearest(found[2], [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)])


def _called(qualified: str, error: BaseException) -> Callable[..., Any] | None:
    """The function or class that Python names in the message; it is looked for where the call was made, and among ours."""
    path = [part for part in qualified.split(".") if part != "__init__"]
    for names in _namespaces(error):
        found: Callable[..., Any] | None = names.get(path[0])
        for part in path[1:]:
            found = getattr(found, part, None)
        if callable(found):
            return found
    return None


def _namespaces(error: BaseException) -> Iterator[dict[str, Any]]:
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    for frame in reversed(frames):
        yield frame.f_locals
        yield frame.f_globals
    yield vars(sys.modules["agentrl"])


_BY_KIND: tuple[tuple[type[BaseException], Callable[[Any, FrameType | None], str]], ...] = (
    (ModuleNotFoundError, _module),
    (ImportError, _imported),
    (AttributeError, _attribute),
    (NameError, _variable),
    (TypeError, _keyword),
)
