"""Temporary folders of sandboxes that are plain folders of this machine, named for the process they belong to.

What a killed process left is removed by the next one that opens such a pool (on Linux, where one can tell for certain).
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from pathlib import Path

from . import cgroup
from .zygote import folder


def make(kind: str) -> str:
    """A new one, `agentrl-<pid>-<start>-<kind>-...`. Raises OSError."""
    tag = cgroup.process_tag() if sys.platform.startswith("linux") else f"{os.getpid()}-0"
    return tempfile.mkdtemp(prefix=f"{cgroup.PREFIX}-{tag}-{kind}-")


def remove_left_over(kind: str) -> None:
    if not sys.platform.startswith("linux"):
        return
    for path in Path(tempfile.gettempdir()).glob(f"{cgroup.PREFIX}-*-*-{kind}-*"):
        if cgroup.is_left_over(path.name):
            with contextlib.suppress(OSError):  # another user's, or someone else removes it, too
                folder.remove(str(path))
