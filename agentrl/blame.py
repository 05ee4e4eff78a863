"""Where a fault stands in an author's own code: file, line and method, without the frames of the framework.

Authors write environments, tools and rewards. What is worked out here goes into one-line messages (`one_line`) and into
the records of episodes (`frames`); nothing is caught or printed.
"""

from __future__ import annotations

import ast
import inspect
import sysconfig
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from agentrl.errors import UsageError
from agentrl.suggest import suggestion

BLAMED = "_agentrl_blamed"
"""Attribute of an exception: the author's function whose value was wrong. An attribute, since the exception goes through the
hands of asyncio and of authors before anyone asks."""

MOST = 12
"""Frames that are kept of a traceback: the outermost two and the last ones. A recursion without an end has a thousand."""

_STDLIB = sysconfig.get_path("stdlib")
_INSTALLED = frozenset(("site-packages", "dist-packages"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """One place in the code.

    >>> str(Frame(file="mine.py", line=4, name="Mine.step", source="return 1 / 0"))
    'mine.py:4 in Mine.step\\n    return 1 / 0'
    """

    file: str
    """Relative to the current folder where it lies below it."""
    line: int
    name: str = ""
    """The function with its class; empty at the top of a module."""
    source: str = ""

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}{f' in {self.name}' if self.name else ''}"

    def __str__(self) -> str:
        return f"{self.place}\n    {self.source}" if self.source else self.place


def frames(error: BaseException) -> tuple[Frame, ...]:
    """The author's frames of an error, outermost first; those of its cause where it has none itself. Where an author's code
    has raised nothing but returned what it should not have (see `blaming`): the function that did. Else empty."""
    for one in _chain(error):
        if found := _authors(one):
            return found
    for one in _chain(error):
        if function := getattr(one, BLAMED, None):
            given = definition(function)
            return (given,) if given is not None else ()
    return ()


def innermost(error: BaseException) -> tuple[Frame, ...]:
    """The last frame of an error, whose code it may be. Empty for one that was never raised."""
    last = list(_chain(error))[-1]
    return tuple(_frame(frame, line) for frame, line in list(traceback.walk_tb(last.__traceback__))[-1:])


@contextmanager
def blaming(function: Callable[..., Any]) -> Iterator[None]:
    """What is raised in the body is the fault of what `function` has returned, unless an author's frame is in it."""
    try:
        yield
    except Exception as error:
        if not hasattr(error, BLAMED):
            setattr(error, BLAMED, function)
        raise


def one_line(error: BaseException) -> str:
    """Place, type, message, and the nearest valid name where one was misspelt.

    >>> one_line(KeyError("x"))
    "KeyError: 'x'"
    """
    found = frames(error)
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    kind = "" if isinstance(error, UsageError) else type(error).__name__
    source = f": {found[-1].source}" if isinstance(error, SyntaxError) and found and found[-1].source else ""
    parts = [found[-1].place if found else "", kind, " ".join(text.split())]
    return (
        ": ".join(filter(None, parts))
        + source
        + suggestion(error, near=next((frame for frame, _ in reversed(author_frames(error))), None))
    )


def definition(thing: Any) -> Frame | None:
    """Where a class, function or method is written; None where that cannot be found out."""
    thing = inspect.unwrap(getattr(thing, "__func__", thing))
    name = _plain(getattr(thing, "__qualname__", ""))
    code = getattr(thing, "__code__", None)
    if code is not None:
        return Frame(file=shown(code.co_filename), line=code.co_firstlineno, name=name)
    try:
        return Frame(file=shown(inspect.getfile(thing)), line=inspect.getsourcelines(thing)[1], name=name)
    except (OSError, TypeError):
        return None


def stands(thing: Any) -> str:
    """As in "mine.py:8", to begin a message about a class or function with; its name where its file is not known."""
    found = definition(thing)
    return f"{found.file}:{found.line}" if found is not None else str(getattr(thing, "__qualname__", thing))


def attribute(cls: type, name: str) -> str:
    """As in "mine.py:6": the line that sets an attribute of a class, or where its class begins."""
    owner = next((base for base in cls.__mro__ if name in vars(base)), cls)
    try:
        lines, start = inspect.findsource(owner)
    except (OSError, TypeError):
        return stands(owner)
    classes = [node for node in ast.walk(ast.parse("".join(lines))) if isinstance(node, ast.ClassDef)]
    found = [node for node in classes if node.name == owner.__name__ and start + 1 in (node.lineno, _first(node))]
    at = [line.lineno for node in found for line in node.body if name in _targets(line)]
    return f"{shown(inspect.getfile(owner))}:{at[-1]}" if at else stands(owner)


def _first(node: ast.ClassDef) -> int:
    return min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])


def _targets(node: ast.stmt) -> set[str]:
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return {node.name}
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return {target.id for target in targets if isinstance(target, ast.Name)}


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error, its cause, and so on. What is merely its context is another story."""
    seen: set[int] = set()
    one: BaseException | None = error
    while one is not None and id(one) not in seen:
        seen.add(id(one))
        yield one
        one = one.__cause__


def author_frames(error: BaseException) -> list[tuple[FrameType, int]]:
    """(frame, line) of what is neither the framework's nor a library's. An author's package may itself be installed: where
    nothing else is left, only the standard library is taken out."""
    found = [(frame, line) for frame, line in traceback.walk_tb(error.__traceback__) if not _framework(frame)]
    found = [(frame, line) for frame, line in found if not _stdlib(frame.f_code.co_filename)]
    own = [(frame, line) for frame, line in found if _INSTALLED.isdisjoint(Path(frame.f_code.co_filename).parts)]
    return own or found


def _authors(error: BaseException) -> tuple[Frame, ...]:
    found = [_frame(frame, line) for frame, line in author_frames(error)]
    if isinstance(error, SyntaxError) and error.filename and Path(error.filename).is_file():
        source = (error.text or "").strip()
        found.append(Frame(file=shown(error.filename), line=error.lineno or 0, source=source))
    return tuple(found if len(found) <= MOST else [*found[:2], *found[2 - MOST :]])


def _framework(frame: FrameType) -> bool:
    """Bundled environments are written as anyone's are."""
    module = str(frame.f_globals.get("__name__", ""))
    return (module == "agentrl" or module.startswith("agentrl.")) and not module.startswith("agentrl.envs.")


def _stdlib(file: str) -> bool:
    return file.startswith(("<frozen", "<string")) or (file.startswith(_STDLIB) and _INSTALLED.isdisjoint(Path(file).parts))


def _frame(frame: FrameType, line: int) -> Frame:
    code = frame.f_code
    source = traceback.FrameSummary(code.co_filename, line, code.co_name).line or ""
    return Frame(file=shown(code.co_filename), line=line, name=_plain(code.co_qualname), source=source.strip())


def _plain(qualified: str) -> str:
    """Without the functions around it; a module has no name."""
    name = qualified.rpartition("<locals>.")[2]
    return "" if name == "<module>" else name


def shown(file: str) -> str:
    """Relative to the current folder where it lies below it."""
    try:
        return str(Path(file).resolve().relative_to(Path.cwd()))
    except (OSError, ValueError):
        return file
