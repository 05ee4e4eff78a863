"""One `key=value` of the command line, read and checked on its own, so that its error names it.

Hydra's grammar reads the values; what is a group's option, a key, or a thing found by name is decided here. Composing is
done in `agentrl.compose`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentrl import keys, models, registry
from agentrl.errors import UsageError, nearest

BY_NAME = {
    "env": ("env.id", "env"),
    "model": ("model.id", ""),
    "engine": ("engine.name", "engine"),
    "backend": ("backend.name", "backend"),
    "sandbox": ("sandbox.backend", "sandbox"),
}
"""Groups whose value may also be a name, module:Name or path: (the key that takes it, the registry's kind or "")."""

DOUBLES = ("scripted",)
"""Made for tests, which build them with a script; a run cannot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A group's option: trainer=rloo."""

    group: str
    option: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """A key's value: trainer.lr=1e-5. `text` is what the person wrote."""

    key: str
    value: Any
    text: str


def read(text: str, groups: Mapping[str, Sequence[str]]) -> Choice | Value:
    """Reads one override; `groups` holds the options of each group. Raises UsageError."""
    name, equals, raw = text.partition("=")
    _check_prefix(name, text)
    name = name.lstrip("+")
    if not equals or not name:
        raise UsageError(_no_override(text, groups))
    if name in groups:
        return _chosen(name, raw.strip(), groups[name], text)
    if not keys.known(name):
        raise UsageError(f"there is no key {name!r}; {keys.suggest(name)}")
    return Value(key=name, value=_value(name, raw, text), text=text)


def _check_prefix(name: str, text: str) -> None:
    if name.startswith("~"):
        raise UsageError(f"{text!r}: keys cannot be deleted (~); write key=value to set another value")
    plain = name.lstrip("+")
    if name != plain and not keys.known(plain):
        raise UsageError(f"{text!r}: + cannot add a key that the schema does not have; {keys.suggest(plain)}")


def _no_override(text: str, groups: Mapping[str, Sequence[str]]) -> str:
    fitting = [f"{group}={text}" for group, options in groups.items() if text in options]
    hint = "for one: trainer.lr=1e-5"
    if fitting or keys.known(text):
        hint = f"did you mean '{fitting[0] if fitting else text + '=...'}'?"
    return f"{text!r} is no override; they read key=value; {hint}"


def _chosen(group: str, option: str, options: Sequence[str], text: str) -> Choice | Value:
    """A group's option, or else a name that goes to the group's key."""
    option = option.strip("'\"")
    if option.removesuffix(".yaml") in options:
        return Choice(group=group, option=option.removesuffix(".yaml"))
    if group not in BY_NAME:
        raise UsageError(f"there is no {group} {option!r}; {nearest(option, options)}")
    key, kind = BY_NAME[group]
    if kind:
        check_name(kind, option, options)
    else:
        check_model(option)
    return Value(key=key, value=option, text=text)


def check_name(kind: str, name: str, more: Iterable[str] = ()) -> None:
    """Is there such an env, engine, ...? Looks at names and files, runs nothing. Raises UsageError with the nearest."""
    if ":" in name and not name.endswith(":"):
        where = name.rpartition(":")[0]
        if where.endswith(".py") and not Path(where).expanduser().is_file():
            raise UsageError(f"there is no file {where} (for {kind}={name})")
        return
    if name.rstrip(":").endswith(".py"):
        raise UsageError(_class_missing(kind, name.rstrip(":")))
    known = {*registry.names(kind), *more}.difference(DOUBLES)
    if name not in known:
        raise UsageError(f"there is no {kind} {name!r}; {nearest(name, known)} (or give module:Name, or path/to/file.py:Name)")


def check_model(name: str) -> None:
    """Can it be a model: a known name, a hub id, or a folder? Asks no server. Raises UsageError with the nearest names."""
    plain = name.partition("@")[0]
    if not name or (plain not in models.names() and "/" not in name and not Path(name).expanduser().is_dir()):
        raise UsageError(
            f"there is no model {name!r}; {nearest(plain, models.names())} (or give a hub id, owner/name, or a folder)"
        )


def _class_missing(kind: str, path: str) -> str:
    """The answer to a file without a class: names the classes that stand in it."""
    file = Path(path).expanduser()
    if not file.is_file():
        return f"there is no file {path} (for {kind}={path})"
    try:
        found = [node.name for node in ast.parse(file.read_text()).body if isinstance(node, ast.ClassDef)]
    except SyntaxError as error:
        return f"{path} is no valid Python: line {error.lineno}: {error.msg}"
    hint = f"did you mean {' or '.join(f'{kind}={path}:{name}' for name in found[:3])}?" if found else "it holds no class"
    return f"{kind}={path}: the class is missing; {hint}"


def _value(key: str, raw: str, text: str) -> Any:
    """The value by Hydra's grammar; texts are taken as they stand, so that a path needs no quotes."""
    spec = keys.table().get(key)
    if spec is not None and spec.type is str and not (raw[:1] in "'\"" and raw[:1]):
        return raw
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        parsed = OverridesParser.create().parse_override(f"{key}={raw}")
    except HydraException:
        parsed = None
    if parsed is not None and parsed.is_sweep_override():
        raise UsageError(f"{text!r}: a run takes one value; start one run for each, or write a list as [a,b]")
    if parsed is None:
        if spec is None or spec.is_mapping or raw[:1] in ("[", "{", "'", '"'):
            raise UsageError(f"{text!r}: the value cannot be read; put special characters in quotes: {key}='\"...\"'")
        return raw
    return parsed.value()
