"""Going back to the newest checkpoint that is still what was written.

No kill can spoil a checkpoint (`checkpoint.py`); a disk can, and so can a person. A damaged one is said, and the one before
it is taken: what was trained since is trained again from the episodes on disk, and comes out the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from agentrl.errors import Damaged

from .checkpoint import FILES, POINTER, Checkpoint, checksums, read


def restore(folder: Path, load: Callable[[Path], None], say: Callable[[str], None]) -> Checkpoint | None:
    """Loads (`Backend.load`) the newest whole checkpoint under `folder` and returns it; None when none was ever saved. `say`
    is told of each that is damaged. Raises Damaged when all are."""
    damaged = []
    for place in _newest_first(folder):
        try:
            checkpoint = read(place)
            check(checkpoint)
        except (ValueError, OSError) as error:
            damaged.append(f"{place} is damaged: {error}")
            continue
        for text in damaged:
            say(f"{text}; going on from {checkpoint.folder.name}, the steps after it are trained again")
        load(checkpoint.folder)
        return checkpoint
    if damaged:
        raise Damaged(
            f"{'; '.join(damaged)}; no other checkpoint is left. To train all steps again from the episodes on disk, take the "
            f"folder {folder} away"
        )
    return None


def check(checkpoint: Checkpoint) -> None:
    """Raises ValueError, which names the file, unless its files are those that were written."""
    written = checkpoint.state.get(FILES)
    if not isinstance(written, dict) or not written:
        raise ValueError("state.json does not say which files belong to it")
    found = checksums(checkpoint.folder)
    for name, (size, crc) in written.items():
        if name not in found:
            raise ValueError(f"{name} is missing")
        if found[name][0] != size:
            raise ValueError(f"{name} has {found[name][0]:,} bytes of {size:,}")
        if found[name][1] != crc:
            raise ValueError(f"the checksum of {name} does not match")


def _newest_first(folder: Path) -> Iterator[Path]:
    """What `latest` names, then the others by step. Without `latest`, none was ever saved whole."""
    pointer = folder / POINTER
    if not pointer.is_file():
        return
    named = folder / pointer.read_text(errors="replace").strip()
    yield named
    others = sorted((path for path in folder.glob("step-*") if path != named), key=lambda path: path.name, reverse=True)
    yield from others
