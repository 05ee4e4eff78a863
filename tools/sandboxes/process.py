"""The host's side of one zygote: starts it at one level of isolation, holds its slots, and ends it.

Not a policy of which level to take; that is the pool's.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from agentrl.sandbox import SandboxSpec

from . import cgroup, interpreter
from .link import SlotLink
from .zygote import folder
from .zygote.settings import LANDLOCK, NAMESPACE, Settings

START_TIMEOUT = 120.0  # seconds; a loaded machine imports NumPy slowly
STOP_TIMEOUT = 10.0
FIRST_UID = 1000
PROGRAM = "import sys; sys.path.insert(0, sys.argv[1]); from zygote.master import main; main(int(sys.argv[2]))"
HERE = Path(__file__).parent


class StartFailed(OSError):
    """The zygote could not be started at this level; the text says at which step and why."""


class Zygote:
    """Made by `start`. `dead` is set when its process has ended."""

    def __init__(self, level: str) -> None:
        self.level = level
        self.cgroup: cgroup.Groups | None = None
        self.cgroup_problem = ""
        self.slots: list[SlotLink] = []
        self.missing: list[str] = []
        self._link: socket.socket | None = None
        self._popen: subprocess.Popen[bytes] | None = None
        self._scratch: Path | None = None
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  # until `aclose`
        self._ending = ""

    @classmethod
    async def start(cls, spec: SandboxSpec, slots: int, level: str, *, use_cgroup: bool = True) -> Zygote:
        """Raises StartFailed."""
        self = cls(level)
        try:
            if use_cgroup:
                self._make_cgroup(spec, slots)
            if level == LANDLOCK:
                self._scratch = _make_scratch(slots)
            await self._launch(spec, slots)
            async with asyncio.timeout(START_TIMEOUT):
                await asyncio.gather(*(slot.started() for slot in self.slots))
        except TimeoutError:
            await self.aclose()
            raise StartFailed(f"it gave no sign of life within {START_TIMEOUT:g} s{self._last_words()}") from None
        except (OSError, RuntimeError) as error:
            await self.aclose()
            raise StartFailed(f"{error or type(error).__name__}{self._last_words()}") from None
        except BaseException:
            await self.aclose()
            raise
        return self

    @property
    def dead(self) -> bool:
        return self._popen is None or self._popen.poll() is not None or any(slot.dead for slot in self.slots)

    @property
    def watched(self) -> tuple[str, ...]:
        """Limits that no part of the kernel holds: a job is looked at a hundred times a second."""
        uncounted = () if self.cgroup else ("memory",)
        return uncounted if self.level == NAMESPACE else (*uncounted, "processes", "disk")

    @property
    def isolation(self) -> str:
        return "namespace+cgroup" if self.level == NAMESPACE and self.cgroup else self.level

    def kill(self) -> None:
        """At once, without waiting; everything inside goes with it."""
        if self._popen is not None:
            self._popen.kill()
        for slot in self.slots:
            slot.close()

    async def aclose(self) -> None:
        """Ends everything inside and removes what was made on the host. Idempotent."""
        for slot in self.slots:
            slot.close()
        if self._link is not None:
            self._link.close()
        if self._popen is not None:
            await asyncio.to_thread(_wait, self._popen)
        if self.cgroup is not None:
            groups, self.cgroup = self.cgroup, None
            await asyncio.to_thread(groups.remove)
        if self._scratch is not None:
            await asyncio.to_thread(_remove_scratch, self._scratch)
            self._scratch = None
        if not self._log.closed:
            self._ending = self._last_words()
            self._log.close()

    def _make_cgroup(self, spec: SandboxSpec, slots: int) -> None:
        # Files are in memory, too. Should they fill it, even the slot could not go on: that much is added to the limit
        files = max(0, spec.disk_bytes - spec.memory_bytes // 2)
        try:
            self.cgroup = cgroup.make(slots, spec.memory_bytes + files, spec.pids)
        except cgroup.NoCgroup as error:
            self.cgroup_problem = str(error)

    async def _launch(self, spec: SandboxSpec, slots: int) -> None:
        with contextlib.ExitStack() as inherited:
            link, theirs = _pair(inherited)
            self._link = link
            host = os.pidfd_open(os.getpid())
            inherited.callback(os.close, host)
            pairs = [_pair(inherited) for _ in range(slots)]
            self.slots = [SlotLink(ours, self._last_words) for ours, _ in pairs]
            groups = self._open_groups(inherited)
            links = [(theirs.fileno(), *(groups[i] if groups else (-1,))) for i, (_, theirs) in enumerate(pairs)]
            fds = [theirs.fileno(), host, *(fd for one in links for fd in one if fd >= 0)]
            settings = self._settings(spec, slots, host, links, max(fds) + 32)
            self._popen = subprocess.Popen(  # noqa: ASYNC220  # a few milliseconds, once; asyncio's needs a child watcher
                [sys.executable, "-I", "-S", "-B", "-X", "utf8", "-c", PROGRAM, str(HERE), str(theirs.fileno())],
                pass_fds=fds,
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                env={"LANG": "C.UTF-8", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "2"},
                cwd="/",
            )
        link.setblocking(False)
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(START_TIMEOUT):
            await loop.sock_sendall(link, settings.to_json())
            answer = json.loads(await loop.sock_recv(link, 1 << 16) or b'{"error": "it ended before it was ready"}')
        if "error" in answer:
            raise StartFailed(answer["error"])
        self.missing += answer["problems"]

    def _open_groups(self, inherited: contextlib.ExitStack) -> list[tuple[int, ...]]:
        """For each slot: the file of out-of-memory kills, then those that move a process."""
        opened = []
        for group in self.cgroup.slots if self.cgroup else ():
            paths = [(group.oom, os.O_RDONLY), *((path, os.O_WRONLY) for path in group.procs)]
            fds = tuple(os.open(path, flags | os.O_CLOEXEC) for path, flags in paths)
            for fd in fds:
                inherited.callback(os.close, fd)
            opened.append(fds)
        return opened

    def _settings(self, spec: SandboxSpec, slots: int, host: int, links: list[tuple[int, ...]], open_below: int) -> Settings:
        seen = interpreter.view(spec.packages, network=spec.network)
        self.missing += seen.missing
        path = f"{os.path.dirname(seen.executable)}:/usr/local/bin:/usr/bin:/bin"
        return Settings(
            level=self.level,
            slots=slots,
            memory=spec.memory_bytes,
            pids=spec.pids,
            disk=spec.disk_bytes,
            cpu=spec.cpu,
            network=spec.network,
            env={"PATH": path, **(spec.env or {})},
            readable=seen.readable,
            masked=seen.masked,
            packages=seen.packages,
            import_path=seen.import_path,
            preload=seen.preload,
            host=host,
            links=tuple(links),
            open_below=open_below,
            cgroup=self.cgroup.version if self.cgroup else "",
            scratch=str(self._scratch or ""),
            own_uid=_own_uid(self.level, seen),
            first_uid=FIRST_UID,
        )

    def _last_words(self) -> str:
        if self._log.closed:
            return self._ending
        self._log.seek(0)
        lines = self._log.read()[-2000:].decode("utf-8", "replace").strip().splitlines()
        return f" ({lines[-1]})" if lines else ""


def _pair(stack: contextlib.ExitStack) -> tuple[socket.socket, socket.socket]:
    """(ours, theirs); theirs is closed here once the zygote has it."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    stack.callback(theirs.close)
    return ours, theirs


def _own_uid(level: str, seen: interpreter.View) -> bool:
    """Root gives each slot a uid of its own. With Landlock, only if that uid could reach the interpreter."""
    if os.getuid() != 0 or not _is_initial_user_namespace():
        return level == LANDLOCK and os.getuid() == 0 and _reachable(seen.executable)
    return level == NAMESPACE or _reachable(seen.executable)


def _is_initial_user_namespace() -> bool:
    return Path("/proc/self/uid_map").read_text().split() == ["0", "0", str(2**32 - 1)]


def _reachable(path: str) -> bool:
    """By any user: every folder on the real way may be passed."""
    real = Path(os.path.realpath(path))
    return all(folder.stat().st_mode & 0o001 for folder in real.parents)


def _make_scratch(slots: int) -> Path:
    """Folders for the slots, in memory where there is a /dev/shm. Removes those that killed runs have left."""
    base = Path("/dev/shm") if os.access("/dev/shm", os.W_OK | os.X_OK) else Path(tempfile.gettempdir())
    for name in os.listdir(base):
        if cgroup.is_left_over(name):
            with contextlib.suppress(OSError):  # another user's
                _remove_scratch(base / name)
    scratch = Path(tempfile.mkdtemp(prefix=f"{cgroup.PREFIX}-{cgroup.process_tag()}-", dir=base))
    scratch.chmod(0o711)
    for index in range(slots):
        (scratch / str(index)).mkdir(mode=0o711)
    return scratch


def _remove_scratch(scratch: Path) -> None:
    """Hostile code has been in it: a tree of any depth must not keep the next run from starting."""
    folder.remove(str(scratch))


def _wait(popen: subprocess.Popen[bytes]) -> None:
    try:
        popen.wait(STOP_TIMEOUT)
    except subprocess.TimeoutExpired:
        popen.kill()
        popen.wait()
