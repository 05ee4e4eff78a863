"""The images that containers are made of: this machine's own Python packed up, or a given image with the worker added.

The first needs no registry and no build: a tar of the interpreter, its library, the packages asked for, a shell and the
usual small tools. Each is made once and found again by a tag that names what went into it.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from agentrl.errors import UsageError

from . import interpreter

REPOSITORY = "agentrl-sandbox"
WORKER_HOME = "/opt/agentrl"
HERE = Path(__file__).parent
WORKER_FILES = ("__init__.py", "memfd.py", "docker_frames.py", "docker_worker.py", "zygote/*.py")
START = f"import sys; sys.path.insert(0, {WORKER_HOME!r}); from sandboxes.docker_worker import main; main(sys.argv[1])"
TOOLS = (
    "awk", "base64", "basename", "bash", "cat", "chmod", "cmp", "comm", "cp", "cut", "date", "dd", "df", "diff",
    "dirname", "du", "echo", "env", "expr", "false", "file", "find", "grep", "gzip", "head", "id", "join", "ln", "ls",
    "md5sum", "mkdir", "mkfifo", "mktemp", "mv", "nl", "od", "paste", "printf", "ps", "pwd", "readlink", "realpath",
    "rm", "rmdir", "sed", "seq", "sh", "sha256sum", "sleep", "sort", "split", "stat", "tac", "tail", "tar", "tee",
    "test", "timeout", "touch", "tr", "true", "uname", "uniq", "wc", "which", "xargs", "xxd", "yes",
)  # fmt: skip
LEFT_OUT = {"site-packages", "dist-packages", "test", "tests", "idlelib", "ensurepip", "turtledemo", "tkinter", "lib2to3"}
"""Folders of the standard library."""
LOADED = """
import ctypes, sys
for name in sys.argv[1:]:
    try: ctypes.CDLL(name)
    except OSError: pass
class Info(ctypes.Structure): _fields_ = [("address", ctypes.c_void_p), ("name", ctypes.c_char_p)]
Callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(Info), ctypes.c_size_t, ctypes.c_void_p)
def show(info, size, data):
    if b"/" in info.contents.name: print(info.contents.name.decode())
    return 0
ctypes.CDLL(None).dl_iterate_phdr(Callback(show), None)
"""
"""Prints what is loaded with the shared objects it is given: one process, where ldd would start one for each."""
COVERED = ("/tmp/", "/dev/shm/")
"""Where a container has file systems of its own over what the image holds: the host's files from there lie elsewhere in it."""
MOVED = f"{WORKER_HOME}/host"
FIRST_UID, UIDS = 50_000, 1_000
"""Users of the containers, one after the other: the kernel counts pipes and signals per uid, containers or not."""
FAR_FROM_LINUX = "python:3.12-slim"
"""Where this machine's own Python cannot run in a container."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    name: str
    python: str
    """The interpreter's path inside."""
    path: str
    """PATH inside."""
    import_path: tuple[str, ...]
    preload: tuple[str, ...]


def inside(path: str) -> str:
    """Where a path of the host lies in the image.

    >>> inside("/usr/lib/python3"), inside("/tmp/venv/lib/numpy")
    ('/usr/lib/python3', '/opt/agentrl/host/tmp/venv/lib/numpy')
    """
    return MOVED + path if path.startswith(COVERED) else path


def prepare(api: Any, packages: Sequence[str], given: str | None) -> Image:
    """Finds the image or makes it; takes seconds the first time. `api`: docker.APIClient. Raises UsageError, APIError."""
    if given is None and sys.platform.startswith("linux"):
        return _of_this_machine(api, packages)
    name = _with_worker(api, given or FAR_FROM_LINUX)
    path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    return Image(name=name, python="python3", path=path, import_path=(), preload=(*interpreter.PRELOAD, *packages))


def _of_this_machine(api: Any, packages: Sequence[str]) -> Image:
    seen = interpreter.view(packages)
    if seen.missing:
        raise UsageError(f"not installed, so not to be had in the sandbox: {', '.join(seen.missing)}")
    python = os.path.realpath(getattr(sys, "_base_executable", sys.executable))
    tree = Tree()
    for path in _roots(python, seen.packages):
        tree.add(path)
    tree.links.update({path: os.readlink(path) for path in ("/bin", "/sbin", "/lib", "/lib64") if os.path.islink(path)})
    tag = f"{REPOSITORY}:host-{tree.key()}"
    if not _exists(api, tag):
        for path in _libraries(python, list(tree.files.values())):
            tree.add(path)
        with tempfile.NamedTemporaryFile(suffix=".tar") as file:
            tree.write(file.name, inside(python))
            api.import_image_from_file(file.name, repository=REPOSITORY, tag=tag.partition(":")[2])
    path = f"{os.path.dirname(inside(python))}:/usr/local/bin:/usr/bin:/bin"
    import_path = tuple(inside(folder) for folder in seen.import_path)
    return Image(name=tag, python=inside(python), path=path, import_path=import_path, preload=seen.preload)


def _roots(python: str, packages: Sequence[str]) -> list[str]:
    """Files and folders of the host that go into the image, but for the shared libraries they load."""
    folders = [sysconfig.get_paths()["stdlib"], sysconfig.get_paths()["platstdlib"], *packages]
    tools = [found for name in TOOLS if (found := shutil.which(name, path="/usr/local/bin:/usr/bin:/bin"))]
    return list(dict.fromkeys([python, *folders, *tools]))


def _libraries(python: str, files: Sequence[str]) -> list[str]:
    """Absolute paths of what the loader would load for these programs and modules, the loader included."""
    modules = [name for name in files if name.endswith(".so") or ".so." in name]
    done = subprocess.run([python, "-I", "-S", "-c", LOADED, *modules], capture_output=True, text=True, check=True)
    tools = [name for name in files if name.startswith(("/usr/bin/", "/bin/"))]
    listed = subprocess.run(
        ["ldd", python, *tools], capture_output=True, text=True, check=False
    ).stdout  # fails for static ones
    return sorted({*done.stdout.splitlines(), *re.findall(r"(?:=> |^\t)(/\S+)", listed, re.MULTILINE)})


@dataclass(slots=True)
class Tree:
    """What goes into a tar: links and files of the host, each under its own name, or where `inside` says."""

    files: dict[str, str] = field(default_factory=dict)
    """Path inside: path on the host."""
    links: dict[str, str] = field(default_factory=dict)
    """Path inside: where it points to."""

    def add(self, path: str) -> None:
        real = self._resolve(path)
        if not os.path.isdir(real):
            self.files[inside(real)] = real
            return
        for folder, names, files in os.walk(real):
            top = folder == real
            names[:] = [name for name in names if not (top and name in LEFT_OUT)]
            for name in files:
                if not name.endswith((".a", ".opt-1.pyc", ".opt-2.pyc")):
                    at = os.path.join(folder, name)
                    if os.path.islink(at):
                        self._resolve(at)
                    if os.path.isfile(at):
                        self.files[inside(os.path.realpath(at))] = os.path.realpath(at)

    def _resolve(self, path: str) -> str:
        """The real path; every link on the way there becomes one in the image."""
        at, rest, hops = "", [part for part in path.split("/") if part], 0
        while rest:
            part = rest.pop(0)
            if part == "..":
                at = os.path.dirname(at).rstrip("/")
                continue
            at += "/" + part
            if os.path.islink(at) and hops < 40:
                hops += 1
                target = os.readlink(at)
                self.links[inside(at)] = inside(target)
                rest = [piece for piece in target.split("/") if piece and piece != "."] + rest
                at = "" if target.startswith("/") else os.path.dirname(at).rstrip("/")
        return at

    def key(self) -> str:
        """Of all that goes in: names, sizes and times of the host's files, the loader's index, the worker's own text."""
        digest = hashlib.sha256(repr(sorted(self.links.items())).encode())
        for name in sorted([*self.files.values(), *(["/etc/ld.so.cache"] if os.path.exists("/etc/ld.so.cache") else [])]):
            state = os.stat(name)
            digest.update(f"{name}\0{state.st_size}\0{state.st_mtime_ns}\0".encode("utf-8", "surrogateescape"))
        digest.update(worker_key().encode())
        return digest.hexdigest()[:20]

    def write(self, target: str, python: str) -> None:
        with tarfile.open(target, "w") as tar:
            for name in ("tmp", "proc", "sys", "dev", "var", "run", "etc"):
                _add(tar, name, tarfile.DIRTYPE, mode=0o1777 if name == "tmp" else 0o755)
            for name, where in sorted(self.links.items()):
                _add(tar, name, tarfile.SYMTYPE, link=where)
            for name, source in sorted(self.files.items()):
                _add_file(tar, name, source)
            for name in ("usr/local/bin/python", "usr/local/bin/python3"):
                _add(tar, name, tarfile.SYMTYPE, link=python)
            _add(tar, "etc/passwd", data=_passwd().encode())
            add_worker(tar)


def _add_file(tar: tarfile.TarFile, name: str, source: str) -> None:
    """Readable by all, whatever its mode is here: the code is another user."""
    info = tar.gettarinfo(source, name.lstrip("/"))
    if not info.isreg():  # gettarinfo makes a second name of the same file a hard link, which is all the same
        tar.addfile(info)
        return
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    info.mode = 0o755 if info.mode & 0o111 else 0o644
    with open(source, "rb") as file:
        tar.addfile(info, file)


def _add(
    tar: tarfile.TarFile, name: str, kind: bytes = tarfile.REGTYPE, mode: int = 0o755, link: str = "", data: bytes = b""
) -> None:
    info = tarfile.TarInfo(name.lstrip("/"))
    info.type, info.mode, info.linkname, info.size = kind, mode, link, len(data)
    tar.addfile(info, io.BytesIO(data))


def _passwd() -> str:
    users = "".join(f"sandbox:x:{uid}:{uid}::/tmp/work:/bin/sh\n" for uid in range(FIRST_UID, FIRST_UID + UIDS))
    return "root:x:0:0::/:/bin/sh\n" + users


def worker_files() -> list[tuple[str, bytes]]:
    """(path inside, content) of the worker's modules, in a fixed order."""
    found = sorted(file for pattern in WORKER_FILES for file in HERE.glob(pattern))
    return [(str(PurePosixPath(WORKER_HOME, "sandboxes", file.relative_to(HERE))), file.read_bytes()) for file in found]


def worker_key() -> str:
    return hashlib.sha256(repr(worker_files()).encode()).hexdigest()


def add_worker(tar: tarfile.TarFile) -> None:
    for folder in (WORKER_HOME, f"{WORKER_HOME}/sandboxes", f"{WORKER_HOME}/sandboxes/zygote"):
        _add(tar, folder, tarfile.DIRTYPE)
    for name, data in worker_files():
        _add(tar, name, mode=0o644, data=data)


def _with_worker(api: Any, given: str) -> str:
    """A given image (pulled when it is not here) with the worker's files in it. Its python3 must be 3.11 or newer."""
    if not _exists(api, given):
        name, _, tag = given.rpartition(":") if ":" in given.rpartition("/")[2] else (given, "", "latest")
        api.pull(name, tag=tag)
    about = api.inspect_image(given)
    tag = "on-" + hashlib.sha256((about["Id"] + worker_key()).encode()).hexdigest()[:20]
    if not _exists(api, f"{REPOSITORY}:{tag}"):
        content = io.BytesIO()
        with tarfile.open(fileobj=content, mode="w") as tar:
            add_worker(tar)
        container = api.create_container(given, command=["true"])["Id"]
        try:
            api.put_archive(container, "/", content.getvalue())
            api.commit(container, repository=REPOSITORY, tag=tag)
        finally:
            api.remove_container(container, force=True)
    return f"{REPOSITORY}:{tag}"


def _exists(api: Any, name: str) -> bool:
    return bool(api.images(name=name, quiet=True))
