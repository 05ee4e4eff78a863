"""Finds a thing by its name: bundled, from an installed package's entry points, `module:Name`, or `path/to/file.py:Name`.

The same names work in every process, since nothing is registered by running code.
"""

from __future__ import annotations

import importlib
from contextlib import nullcontext
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from agentrl.blame import frames, one_line, shown
from agentrl.errors import UsageError, nearest
from agentrl.load import load, neighbors
from agentrl.suggest import close

BUNDLED: dict[str, dict[str, str]] = {
    "env": {
        "code_sandbox": "agentrl.envs.code_sandbox:CodeSandbox",
        "countdown": "agentrl.envs.countdown:Countdown",
        "frozen_lake": "agentrl.envs.frozen_lake:FrozenLake",
        "guess_number": "agentrl.envs.guess_number:GuessNumber",
        "kuhn_poker": "agentrl.envs.kuhn_poker:KuhnPoker",
        "math_calc": "agentrl.envs.math_calc:MathCalc",
        "minesweeper": "agentrl.envs.minesweeper:Minesweeper",
        "search_qa": "agentrl.envs.search_qa:SearchQA",
        "sokoban": "agentrl.envs.sokoban:Sokoban",
        "sudoku": "agentrl.envs.sudoku:Sudoku",
        "tictactoe": "agentrl.envs.tictactoe:TicTacToe",
        "wordle": "agentrl.envs.wordle:Wordle",
    },
    "grader": {
        "function_cases": "agentrl.tools.graders:function_cases",
        "stdin_cases": "agentrl.tools.graders:stdin_cases",
        "pytest_cases": "agentrl.tools.graders:pytest_cases",
        "sql_result": "agentrl.tools.graders:sql_result",
        "math_equal": "agentrl.tools.graders:math_equal",
        "db_state": "agentrl.tools.graders:db_state",
    },
    "policy": {},
    "tool": {
        "answer": "agentrl.tools.answer:answer",
        "browser": "agentrl.tools.browser:Browser",
        "calculator": "agentrl.tools.calculator:calculator",
        "files": "agentrl.tools.files:Files",
        "mcp": "agentrl.tools.mcp:Mcp",
        "openapi": "agentrl.tools.openapi:OpenApi",
        "python": "agentrl.tools.python:python",
        "search": "agentrl.tools.search:Search",
        "shell": "agentrl.tools.shell:shell",
        "sql": "agentrl.tools.sql:Sql",
    },
    "engine": {
        "torch": "agentrl.rollout.engines.torch_engine:TorchEngine",
        "scripted": "agentrl.rollout.engines.scripted:ScriptedEngine",
    },
    "backend": {
        "local": "agentrl.trainers.backends.local:LocalBackend",
        "scripted": "agentrl.trainers.backends.scripted:ScriptedBackend",
    },
    "sandbox": {
        "local": "agentrl.tools.sandboxes.local:LocalPool",
        "docker": "agentrl.tools.sandboxes.docker:DockerPool",
        "remote": "agentrl.tools.sandboxes.remote:RemotePool",
        "wasm": "agentrl.tools.sandboxes.wasm:WasmPool",
        "unsafe_local": "agentrl.tools.sandboxes.unsafe_local:UnsafeLocalPool",
        "scripted": "agentrl.tools.sandboxes.scripted:ScriptedPool",
    },
}


def names(kind: str) -> dict[str, str]:
    """All registered names of a kind and where each points to; installed packages' entry points included. None of these can
    take a bundled name over."""
    group = entry_points(group=f"agentrl.{kind}s")
    return {**{point.name: point.value for point in group}, **BUNDLED[kind]}


def find(kind: str, name: str, *, beside: Path | None = None) -> Any:
    """The object behind a name. `beside`: the folder of the file that the name stands in; a relative path is looked for there
    first, and then in the current folder.

    Raises UsageError with the nearest valid names, and for an author's module that cannot be imported with file and line.

    >>> find("env", "code_sandbox").__name__            # doctest: +SKIP
    'CodeSandbox'
    """
    bundled = BUNDLED[kind].get(name)  # reading the entry points costs 3 ms, and each episode asks for its tools
    known = {} if bundled or ":" in name else names(kind)
    target = bundled or known.get(name, name)
    if ":" not in target:
        raise UsageError(f"there is no {kind} {name!r}; {nearest(name, known)} (or give module:Name, or path/to/file.py:Name)")
    where, _, attribute = target.rpartition(":")
    if where.startswith(".") and not where.endswith(".py"):
        raise UsageError(f"{kind} {name!r} names neither a module nor a file; write module:Name, or path/to/file.py:Name")
    if bundled:  # what fails here is no fault of an author
        return getattr(importlib.import_module(where), attribute)
    try:
        module = _file(where, beside) if where.endswith(".py") else _module(where, kind, name, beside)
    except (Exception, SystemExit) as error:
        if isinstance(error, UsageError) and not frames(error):
            raise
        raise UsageError(f"{kind} {label(name)} cannot be loaded: {one_line(error)}") from error
    if not hasattr(module, attribute):
        raise UsageError(f"{label(where)} holds no {attribute!r}; {nearest(attribute, _own(module))}")
    return getattr(module, attribute)


def absolute(name: str) -> str:
    """A name that means the same from every folder: path/to/file.py:Name with its whole path, any other as it is.

    >>> absolute("my_pkg.envs:Mine")
    'my_pkg.envs:Mine'
    """
    where, colon, attribute = name.rpartition(":")
    return f"{Path(where).expanduser().absolute()}{colon}{attribute}" if where.endswith(".py") else name


def label(name: str) -> str:
    """A name as a person reads it: a file relative to the current folder."""
    where, colon, attribute = name.rpartition(":")
    return f"{shown(where)}{colon}{attribute}" if where.endswith(".py") else shown(name) if name.endswith(".py") else name


def _module(where: str, kind: str, name: str, beside: Path | None) -> ModuleType:
    try:
        with neighbors(beside) if beside is not None else nullcontext():
            return importlib.import_module(where)
    except ModuleNotFoundError as error:
        if error.name is not None and (where == error.name or where.startswith(error.name + ".")):
            file = Path(*where.split(".")).with_suffix(".py")
            hint = f"did you mean {file}:{name.rpartition(':')[2]}?" if file.is_file() else "is it installed?"
            raise UsageError(f"{kind} {name!r} names the module {where!r}, which cannot be found; {hint}") from None
        raise


def _file(where: str, beside: Path | None) -> ModuleType:
    path = Path(where).expanduser()
    places = [path] if beside is None or path.is_absolute() else [beside / path, path]
    for place in places:
        if place.is_file():
            return load(place.resolve())
    there = [str(path.parent / file.name) for file in places[0].parent.glob("*.py")]
    hint = close(where, there)
    raise UsageError(f"there is no file {' nor '.join(dict.fromkeys(map(str, places)))}{'; ' if hint else ''}{hint}")


def _own(module: ModuleType) -> list[str]:
    """What a module defines itself; all that it holds where it defines nothing."""
    public = {name: thing for name, thing in vars(module).items() if not name.startswith("_")}
    own = [name for name, thing in public.items() if getattr(thing, "__module__", None) == module.__name__]
    return own or list(public)
