"""What a fork changes in Python's own state, done in a child only where its program could tell.

`threading` and `random` hook into every fork, which costs more than the fork. A slot has one thread and no locks in use, so
nothing is wrong without the first; the generators are seeded for programs that could draw from them. To be imported before
anything that imports those two.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

DRAWING = (b"random", b"statistics")
"""Words without which nothing draws from the generators of `random` and NumPy, unless through another package or a file."""


def _import_without_hooks() -> tuple[dict[str, Any], ...]:
    """Gives the hooks. What was imported already keeps its own."""
    held: list[dict[str, Any]] = []
    real = os.register_at_fork
    os.register_at_fork = lambda **hooks: held.append(hooks)
    try:
        importlib.import_module("random")
        importlib.import_module("threading")
    finally:
        os.register_at_fork = real
    return tuple(held)


HELD = _import_without_hooks()


def restore() -> None:
    """In a child: its own forks are to be as usual."""
    for hooks in HELD:
        os.register_at_fork(**hooks)


def reseeder(packages: Sequence[str]) -> Callable[[bytes], None]:
    """Seeds the generators of `random` and, where it is imported already, of NumPy.

    It costs a tenth of an execution, so it is done for code that could draw from them: that says so, names one of `packages`
    other than NumPy, or could import a file.
    """
    import random

    generator = sys.modules.get("numpy.random")
    words = [*DRAWING, *(name.encode() for name in packages if name != "numpy")]

    def reseed(code: bytes) -> None:
        for word in words:
            if word in code:
                break
        else:
            if not os.listdir("."):
                return
        random.seed()
        if generator is not None:
            generator.seed(int.from_bytes(os.urandom(4), "little"))

    return reseed
