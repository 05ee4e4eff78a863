"""The table of all config keys, read from `agentrl/config.py`: name, type, default, and what its docstring says.

Not a second list: the types and defaults come from the dataclasses, the words from the attribute docstrings.
"""

from __future__ import annotations

import ast
import dataclasses
import difflib
import inspect
import re
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from agentrl import config
from agentrl.errors import nearest

SYNONYMS = {
    "learning_rate": "trainer.lr",
    "batch_size": "trainer.prompts_per_step",
    "train_batch_size": "trainer.prompts_per_step",
    "group_size": "trainer.samples_per_prompt",
    "num_generations": "trainer.samples_per_prompt",
    "n_samples": "trainer.samples_per_prompt",
    "max_steps": "trainer.steps",
    "num_steps": "trainer.steps",
    "beta": "trainer.kl_coef",
    "clip_ratio": "trainer.clip_high",
    "grad_clip": "trainer.max_grad_norm",
    "max_tokens": "sampling.max_new_tokens",
    "max_completion_length": "sampling.max_new_tokens",
    "max_turns": "env.args.max_turns",
    "name": "run",
    "device": "backend.name",
}
"""What other frameworks call our keys, for the answer to a key that does not exist."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One key.

    >>> table()["trainer.lr"].kind
    'a number'
    """

    name: str
    type: Any
    default: Any
    doc: str

    @property
    def kind(self) -> str:
        """The type in words, for messages."""
        words = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
        if self.type in words:
            return words[self.type]
        return "a mapping, as in {a: 1}" if self.is_mapping else "a list of numbers, as in [0.9,0.95]"

    @property
    def is_mapping(self) -> bool:
        """Keys below it are free: env.args.max_turns, for one."""
        return typing.get_origin(self.type) is dict


@cache
def table() -> Mapping[str, Key]:
    """All keys by their dotted names, in the order of `agentrl/config.py`."""
    return {key.name: key for key in _keys(config.Config, "", _docs())}


def sections() -> list[str]:
    """The names before the first dot: env, model, trainer, ..."""
    return list(dict.fromkeys(name.partition(".")[0] for name in table() if "." in name))


def known(name: str) -> bool:
    """Is it a key, or one below a mapping?"""
    return name in table() or owner(name) is not None


def owner(name: str) -> Key | None:
    """The mapping that a free key lies in: env.args for env.args.max_turns."""
    parts = name.split(".")
    for stop in range(1, len(parts)):
        key = table().get(".".join(parts[:stop]))
        if key is not None and key.is_mapping:
            return key
    return None


def suggest(name: str) -> str:
    """A clause with the nearest keys: the same last part elsewhere, another framework's word, or the nearest spelling."""
    section, _, last = name.rpartition(".")
    same = [key for key in table() if key.rpartition(".")[2] == last]
    words = [SYNONYMS[word] for word in difflib.get_close_matches(last, SYNONYMS, n=1, cutoff=0.8)]
    inside = [key for key in table() if key.startswith(f"{section}.")] if section else []
    longer = [key for key in inside if key.rpartition(".")[2].startswith(last)]
    spelt = difflib.get_close_matches(last, [key.removeprefix(f"{section}.") for key in inside], n=2, cutoff=0.7)
    found = [*same, *words, *longer, *(f"{section}.{key}" for key in spelt)]
    if found:
        return f"did you mean {' or '.join(map(repr, dict.fromkeys(found[:3])))}?"
    if inside:
        return f"keys of {section!r}: {', '.join(key.removeprefix(f'{section}.') for key in inside)}"
    return nearest(name, [*sections(), *(key for key in table() if "." not in key)])


def first_sentence(text: str) -> str:
    """The first sentence of a text, whole, in one line: help that is cut in its middle says something else.

    >>> first_sentence("Find a number\\n  by halving, e.g. 50. Needs no sandbox.")
    'Find a number by halving, e.g. 50.'
    """
    paragraph = " ".join(text.strip().partition("\n\n")[0].split())
    found = re.match(r".*?[.!?][)\"'`]?(?=\s+[A-Z`\"(]|$)", paragraph)
    return found[0] if found else paragraph


def _keys(cls: type, prefix: str, docs: Mapping[tuple[str, str], str]) -> Iterator[Key]:
    hints = typing.get_type_hints(cls)
    for item in dataclasses.fields(cls):
        kind = hints[item.name]
        if dataclasses.is_dataclass(kind):
            assert isinstance(kind, type)
            yield from _keys(kind, f"{prefix}{item.name}.", docs)
            continue
        factory = item.default_factory
        default = item.default if factory is dataclasses.MISSING else factory()
        doc = docs.get((cls.__name__, item.name), "")
        yield Key(name=f"{prefix}{item.name}", type=kind, default=default, doc=doc)


@cache
def _docs() -> Mapping[tuple[str, str], str]:
    """(class, attribute) -> the docstring that stands below the attribute; (class, "") -> that of the class."""
    out: dict[tuple[str, str], str] = {}
    for node in ast.parse(inspect.getsource(config)).body:
        if not isinstance(node, ast.ClassDef):
            continue
        out[node.name, ""] = " ".join((ast.get_docstring(node) or "").split())
        for attribute, below in zip(node.body, node.body[1:], strict=False):
            if isinstance(attribute, ast.AnnAssign) and isinstance(attribute.target, ast.Name) and _is_text(below):
                text = ast.literal_eval(below.value)  # type: ignore[attr-defined]
                out[node.name, attribute.target.id] = " ".join(text.split())
    return out


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
