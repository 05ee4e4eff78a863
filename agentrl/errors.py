"""Errors a person has made and can mend. The command line prints them in one line, without a traceback."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UsageError(ValueError):
    """Something asked for cannot be had; the text names the key, value or file and the nearest valid ones."""


class Damaged(UsageError):
    """A file of a run no longer holds what was written; the text names it, and the line where it has lines."""


class MissingExtra(UsageError):
    """A feature needs a package that is not installed.

    >>> str(MissingExtra("vllm", extra="vllm"))
    "this needs the package 'vllm'; install it with: pip install 'agentrl-gym[vllm]'"
    """

    def __init__(self, package: str, *, extra: str) -> None:
        super().__init__(f"this needs the package {package!r}; install it with: pip install 'agentrl-gym[{extra}]'")


def nearest(wrong: str, valid: Iterable[str], count: int = 3) -> str:
    """A clause that names the nearest valid names, or all when there are few.

    >>> nearest("lerning_rate", ["lr", "learning_rate", "steps"])
    "did you mean 'learning_rate'?"
    >>> nearest("zzz", ["a", "b"])
    "valid: 'a', 'b'"
    """
    names = sorted(set(valid))
    close = difflib.get_close_matches(wrong, names, n=count, cutoff=0.6)
    if close:
        return f"did you mean {' or '.join(map(repr, close))}?"
    shown = ", ".join(map(repr, names[:12]))
    return f"valid: {shown}{', ...' if len(names) > 12 else ''}" if names else "there are none"
