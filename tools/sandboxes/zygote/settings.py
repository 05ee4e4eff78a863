"""What the host tells the zygote at its start, once, as JSON over the master's socket (argv can be read by others)."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

NAMESPACE, LANDLOCK = "namespace", "landlock"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Sizes in bytes, times in seconds."""

    level: str
    """namespace | landlock"""
    slots: int
    memory: int
    pids: int
    disk: int
    cpu: float
    network: bool
    env: dict[str, str]
    readable: tuple[str, ...]
    """Host paths that are visible inside, read-only, under the same names."""
    masked: tuple[str, ...]
    """Folders in `readable` that are empty inside, but for `packages`."""
    packages: tuple[str, ...]
    """Host paths below `masked` that are visible all the same."""
    import_path: tuple[str, ...]
    """sys.path inside, after the standard library."""
    preload: tuple[str, ...]
    """Imported once, before forking; skipped where missing."""
    host: int
    """A pidfd of the host process. This and all in `links` are inherited file descriptors."""
    links: tuple[tuple[int, ...], ...]
    """For each slot: its socket, file of out-of-memory kills or -1, then cgroup.procs files."""
    open_below: int
    """All inherited descriptors, and those to come, are below this."""
    cgroup: str = ""
    """Empty, v1 or v2: which one holds memory and processes."""
    scratch: str = ""
    """Landlock only: a host folder with one folder per slot, which the code may write in."""
    own_uid: bool = False
    """The code runs under a uid of its own for each slot (as root only)."""
    first_uid: int = 1000
    """Of slot 0, as seen by the slot."""

    def to_json(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_json(cls, data: bytes) -> Settings:
        fields = json.loads(data)
        lists = ("readable", "masked", "packages", "import_path", "preload")
        links = tuple(tuple(link) for link in fields.pop("links"))
        return cls(links=links, **{**fields, **{name: tuple(fields[name]) for name in lists}})
