"""Finds a thing by its name: bundled, from an installed package's entry points, `module:Name`, or `path/to/file.py:Name`.

The same names work in every process, since nothing is registered by running code.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from agentrl.errors import UsageError, nearest

BUNDLED: dict[str, dict[str, str]] = {
    "env": {
        "code_sandbox": "agentrl.envs.code_sandbox:CodeSandbox",
        "guess_number": "agentrl.envs.guess_number:GuessNumber",
    },
    "grader": {
        "function_cases": "agentrl.tools.graders:function_cases",
        "stdin_cases": "agentrl.tools.graders:stdin_cases",
        "pytest_cases": "agentrl.tools.graders:pytest_cases",
        "sql_result": "agentrl.tools.graders:sql_result",
        "math_equal": "agentrl.tools.graders:math_equal",
        "db_state": "agentrl.tools.graders:db_state",
    },
    "tool": {"python": "agentrl.tools.python:python"},
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
    """All registered names of a kind and where each points to; installed packages' entry points included."""
    group = entry_points(group=f"agentrl.{kind}s")
    return {**BUNDLED[kind], **{point.name: point.value for point in group}}


def find(kind: str, name: str) -> Any:
    """The object behind a name. Raises UsageError with the nearest valid names.

    >>> find("env", "code_sandbox").__name__            # doctest: +SKIP
    'CodeSandbox'
    """
    known = names(kind)
    target = known.get(name, name)
    if ":" not in target:
        raise UsageError(f"there is no {kind} {name!r}; {nearest(name, known)} (or give module:Name, or path/to/file.py:Name)")
    where, _, attribute = target.rpartition(":")
    module = _file(Path(where).expanduser().resolve()) if where.endswith(".py") else _module(where, kind, name)
    if not hasattr(module, attribute):
        public = [n for n in vars(module) if not n.startswith("_")]
        raise UsageError(f"{where} holds no {attribute!r}; {nearest(attribute, public)}")
    return getattr(module, attribute)


def _module(where: str, kind: str, name: str) -> ModuleType:
    try:
        return importlib.import_module(where)
    except ModuleNotFoundError as error:
        if error.name is not None and (where == error.name or where.startswith(error.name + ".")):
            raise UsageError(f"{kind} {name!r} names the module {where!r}, which cannot be found; is it installed?") from None
        raise


@cache
def _file(path: Path) -> ModuleType:
    if not path.is_file():
        raise UsageError(f"there is no file {path}")
    # The same name in every process, so that what one pickles another finds once it has loaded the file.
    name = f"agentrl_user_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:12]}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickle look a class's module up
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]  # half a module must not be found by a later import
        raise
    return module
