"""Emptying a folder that hostile code has filled: any depth, any modes, any links, without recursion.

Everything below is dead when this runs, so nothing changes underneath.
"""

from __future__ import annotations

import contextlib
import math
import os
import stat
from collections.abc import Sequence, Set
from typing import NamedTuple

from . import watch

LONG = 3000
"""Characters of a path, beyond which a kept folder is left as it is: the kernel takes 4096, the entries' names included."""
DEEP = 8
"""Deeper folders are moved up before they are emptied, so that no path grows beyond what the kernel takes."""


def snapshot(folder: str, untouched: Set[str] = frozenset()) -> frozenset[str]:
    """All paths below, relative, but those at or below `untouched`. What is nested too deep to be named is left out."""
    found, stack = [], [""]
    while stack:
        at = stack.pop()
        with contextlib.suppress(OSError), os.scandir(os.path.join(folder, at)) as entries:
            for entry in entries:
                path = os.path.join(at, entry.name)
                if path in untouched:
                    continue
                found.append(path)
                if entry.is_dir(follow_symlinks=False):
                    stack.append(path)
    return frozenset(found)


def empty(folder: str, keep: Set[str] = frozenset(), untouched: Set[str] = frozenset()) -> None:
    """Removes all but the relative paths in `keep`; what is added in a kept folder goes, too. Raises OSError.

    Nothing at or below the names in `untouched` is even looked at.
    """
    stack = [""]
    while stack:
        at = stack.pop()
        with os.scandir(os.path.join(folder, at)) as entries:
            found = list(entries)
        for entry in found:
            path = os.path.join(at, entry.name)
            if path in untouched:
                continue
            if path not in keep:
                remove(entry.path)
            elif entry.is_dir(follow_symlinks=False) and len(path) < LONG:
                os.chmod(entry.path, 0o700 | entry.stat(follow_symlinks=False).st_mode & 0o7777)
                stack.append(path)


def remove(path: str) -> None:
    """Removes a file, or a folder with all in it."""
    if not stat.S_ISDIR(os.lstat(path).st_mode):
        os.unlink(path)
        return
    with contextlib.suppress(OSError):
        os.rmdir(path)
        return
    _fell(path)


def _fell(top: str) -> None:
    """Depth first with a stack; a folder that lies too deep is moved up to the top, and its turn comes last."""
    stack, moved = [(top, 0)], 0
    while stack:
        at, depth = stack[-1]
        os.chmod(at, 0o700)  # it may have been made unreadable
        with os.scandir(at) as entries:
            found = list(entries)
        folders = [entry for entry in found if entry.is_dir(follow_symlinks=False)]
        for entry in found:
            if entry not in folders:
                os.unlink(entry.path)
        if depth < DEEP:
            stack += [(entry.path, depth + 1) for entry in folders]
        else:
            for entry in folders:
                moved += 1
                stack.insert(1, (_move_up(entry.path, top, moved), 1))
        if depth == DEEP or not folders:
            os.rmdir(at)
            stack.remove((at, depth))


def _move_up(path: str, top: str, count: int) -> str:
    name = f"{top}/.moved{count}"
    while os.path.lexists(name):
        name += "_"
    os.chmod(path, 0o700)  # its own ".." changes with the move
    os.rename(path, name)
    return name


class Place(NamedTuple):
    """A folder that is to be there, empty. -1: an owner is not changed."""

    path: str
    mode: int
    uid: int
    gid: int


def renew(folder: str, places: Sequence[Place], untouched: Set[str]) -> None:
    """Empties it but for `untouched`, and makes the places in it anew. Quick where there are only these, and they are empty."""
    try:
        for place in places:
            os.rmdir(place.path)
    except OSError:
        empty(folder, untouched=untouched)
    else:
        if len(os.listdir(folder)) > len(untouched):
            empty(folder, untouched=untouched)
    for path, mode, uid, gid in places:
        os.mkdir(path)
        os.chmod(path, mode)  # whatever the umask
        if uid >= 0:
            os.chown(path, uid, gid)


def restore(path: str, mode: int) -> None:
    """What an owner can leave on a folder that stays: mode, times, attributes."""
    os.chmod(path, mode)
    os.utime(path, (0, 0))
    for name in os.listxattr(path):
        os.removexattr(path, name)


def shrink(folder: str, limit: int) -> bool:
    """Removes the largest files until all that is left is within `limit` bytes, as `watch.disk_bytes` counts them.

    False where files are not what fills it, or where it cannot be counted: then it has to be emptied.
    """
    over = watch.disk_bytes(folder) - limit
    if over == math.inf:
        return False
    files = [os.path.join(at, name) for at, _, names in os.walk(folder) for name in names]
    for size, path in sorted(((os.lstat(path).st_blocks * 512, path) for path in files), reverse=True):
        if over <= 0:
            break
        os.unlink(path)
        over -= max(size, watch.ENTRY)
    return over <= 0
