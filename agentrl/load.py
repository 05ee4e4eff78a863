"""An author's Python file as a module: loaded once, with the files beside it importable.

Its name is the same in every process, so that what one pickles another finds once it has loaded the file.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import ModuleType

_brought: dict[str, Path] = {}
"""Modules that were imported from beside a file -> the folder that they lie in."""


@cache
def load(path: Path) -> ModuleType:
    """`path` is absolute. Raises FileNotFoundError, and whatever the file itself raises; then nothing of it stays."""
    if not path.is_file():
        raise FileNotFoundError(path)
    name = f"agentrl_user_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:12]}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickle look a class's module up
    try:
        with neighbors(path.parent):
            spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]  # half a module must not be found by a later import
        raise
    return module


@contextmanager
def neighbors(folder: Path) -> Iterator[None]:
    """In the body, `import helper` finds the helper.py of `folder` first. Afterwards `folder` is the last place to be looked
    at, so that an import inside a method works, too, and yet shadows nothing.

    Two folders may each have a helper.py: the one of another author's folder is not taken for this folder's.
    """
    _forget(name for name, where in list(_brought.items()) if where != folder and _lies_in(name, folder))
    before = set(sys.modules)
    sys.path[:] = [str(folder), *(place for place in sys.path if place != str(folder))]
    importlib.invalidate_caches()  # a file that was written a moment ago
    try:
        yield
    except BaseException:
        _forget(set(_new(before, folder)))
        raise
    finally:
        sys.path[:] = [*(place for place in sys.path if place != str(folder)), str(folder)]
    _brought.update(dict.fromkeys(_new(before, folder), folder))


def sources(folder: Path) -> list[Path]:
    """The files of `folder` that were imported from beside an author's file."""
    modules = [sys.modules[name] for name, where in _brought.items() if where == folder and name in sys.modules]
    return sorted({Path(module.__file__) for module in modules if module.__file__})


def _new(before: set[str], folder: Path) -> Iterator[str]:
    """Modules that lie beside an author's file and were not there `before`. Not agentrl, in whose checkout a file may lie."""
    for name in sys.modules.keys() - before:
        top = name.partition(".")[0]
        package = sys.modules.get(top)
        places = {getattr(package, "__file__", None), *getattr(package, "__path__", ())}
        if top != "agentrl" and places & {str(folder / f"{top}.py"), str(folder / top)}:
            yield name


def _lies_in(name: str, folder: Path) -> bool:
    top = name.partition(".")[0]
    return (folder / f"{top}.py").is_file() or (folder / top).is_dir()


def _forget(names: Iterator[str] | set[str]) -> None:
    for name in names:
        sys.modules.pop(name, None)
        _brought.pop(name, None)
