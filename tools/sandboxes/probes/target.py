# ruff: noqa: E501  # programs in strings
"""The backend under test, as the probes see it: a way to run hostile code, and what is known of the place it runs in."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from agentrl import registry
from agentrl.sandbox import Exec, Sandbox, SandboxError, SandboxPool, SandboxSpec, Status

from . import marks
from .bait import Bait
from .probe import Broken, NotApplicable

SPEC = SandboxSpec(memory="256M", pids=64, disk="64M", output="64K", timeout=30.0, cpu=20.0)
"""What a backend is asked to hold to. The probes go a few times beyond it, never further: 400 processes, 1 GB, 200 MB of files."""
SLOTS = 2
BY_FORCE = (Status.MEMORY, Status.KILLED, Status.TIMEOUT, Status.OUTPUT)
ANSWER = re.compile(r"<agentrl>(.*?)</agentrl>", re.DOTALL)

HEAD = """
import json, os, sys, time
def module(name):
    try: return __import__(name)
    except ImportError: return None
ctypes, signal, socket, resource, threading, mmap, subprocess = map(module, ("ctypes", "signal", "socket", "resource", "threading", "mmap", "subprocess"))
libc = ctypes.CDLL(None, use_errno=True) if ctypes else None
def tell(value): print("<agentrl>" + json.dumps(value) + "</agentrl>", flush=True)
def works(action):
    try: return action() is not False
    except BaseException: return False
def got(**actions): tell([name for name, action in actions.items() if works(action)])
def name_myself():
    if libc and libc.prctl(15, MARK.encode(), 0, 0, 0) == 0: return
    with open("/proc/self/comm", "w") as file: file.write(MARK)
works(name_myself)
"""
"""What every program starts with, after the facts of the bait."""

LOOK = """
def starts():
    pid = os.fork()
    if pid == 0: os._exit(0)
    os.waitpid(pid, 0)
def threads():
    thread = threading.Thread(target=int); thread.start(); thread.join()
def runs(): return subprocess.run([sys.executable, "-c", "print(7)"], capture_output=True, text=True).stdout == "7\\n"
got(ctypes=lambda: libc.getpid() > 0, fork=starts, threads=threads, signals=lambda: os.kill(os.getpid(), 0), sockets=lambda: socket.AF_UNIX,
    mmap=lambda: mmap.mmap(-1, 4096).close(), proc=lambda: os.listdir("/proc/self"), programs=runs,
    descriptors=lambda: os.close(os.dup(1)))
"""
SHOW = "time.sleep(1.5); tell(True)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """How to open the backend, here or in another process."""

    name: str
    """Of the registry, module:Name, or path.py:Name."""
    options: Mapping[str, Any] = field(default_factory=dict)

    async def open(self, spec: SandboxSpec, slots: int) -> SandboxPool:
        """Raises UsageError, IsolationError."""
        pool: SandboxPool = await registry.find("sandbox", self.name).open(spec, slots=slots, **self.options)
        return pool

    @property
    def is_remote(self) -> bool:
        """Its limits are those its server was started with."""
        return self.name == "remote"


@dataclass(slots=True, kw_only=True)
class Target:
    backend: Backend
    spec: SandboxSpec
    pool: SandboxPool
    bait: Bait
    slots: int = SLOTS
    features: frozenset[str] = frozenset()
    """Of probe.FEATURES."""
    sees_processes: bool = False
    """The sandbox's processes are processes of this machine that carry their mark."""

    async def look_around(self) -> None:
        """Finds out what the place is like. Raises SandboxError when it does not even run a harmless program."""
        found, done = await self.attack(LOOK)
        if not isinstance(found, list):
            raise SandboxError(f"{self.backend.name} does not run a harmless program: {done.render(500)!r}")
        self.features = frozenset(found)
        _, seen = await marks.most_marked(self.bait.mark, self.attack(SHOW))
        self.sees_processes = seen > 0

    def program(self, code: str, **more: Any) -> str:
        """A whole program: facts, helpers, and what it is to do. `more` are further facts."""
        facts = {**self.bait.facts(), **limits(self.spec), **more}
        return "\n".join([*(f"{name} = {value!r}" for name, value in facts.items()), HEAD, code])

    async def attack(self, code: str, *, timeout: float | None = None, stdin: str = "", **more: Any) -> tuple[Any, Exec]:
        """(what the program told last, or None; how it ended), in a fresh sandbox."""
        async with self.sandbox() as sandbox:
            done = await sandbox.python(self.program(code, **more), timeout=timeout, stdin=stdin)
        return answer(done.stdout), done

    async def got_nothing(self, code: str, **options: Any) -> None:
        """Runs a program that tells what it got hold of. Raises Broken when that is anything, or nobody knows."""
        found, done = await self.attack(code, **options)
        if found is None:
            raise Broken(f"the program ended without an answer: {ending(done)}")
        if found:
            raise Broken(f"it got {', '.join(map(str, found)) if isinstance(found, list) else found}")

    @contextlib.asynccontextmanager
    async def sandbox(self, pool: SandboxPool | None = None) -> AsyncIterator[Sandbox]:
        """A fresh one. What the backend does not offer at all makes a probe not applicable."""
        made = await (pool or self.pool).acquire()
        try:
            yield made
        except NotImplementedError as error:
            raise NotApplicable(
                f"the backend does not offer it: {error}" if str(error) else "the backend does not offer it"
            ) from None
        finally:
            await made.aclose()

    @contextlib.asynccontextmanager
    async def another(self, slots: int = 1, **changes: Any) -> AsyncIterator[SandboxPool]:
        """A pool of its own, with other limits."""
        pool = await self.backend.open(replace(self.spec, **changes), slots)
        try:
            yield pool
        finally:
            await pool.aclose()

    async def is_gone(self) -> None:
        """Raises Broken when a process of a probe still lives; ends it then."""
        if not await marks.until(lambda: not marks.marked(self.bait.mark)):
            count = await asyncio.to_thread(marks.kill_marked, self.bait.mark)
            raise Broken(f"{count} of its processes lived on")

    async def works(self) -> None:
        """Raises Broken when a harmless program no longer gives its result."""
        done = await asyncio.wait_for(self._two(), 60)
        if done.stdout.strip() != "2":
            raise Broken(f"afterwards a harmless program ended so: {ending(done)}")

    async def _two(self) -> Exec:
        async with self.sandbox() as sandbox:
            return await sandbox.python("print(1 + 1)")


def limits(spec: SandboxSpec) -> dict[str, int]:
    """As facts of a program; sizes in MiB."""
    return {"MEMORY": spec.memory_bytes >> 20, "PIDS": spec.pids, "DISK": spec.disk_bytes >> 20}


def answer(text: str) -> Any:
    """What the program told last; None when it told nothing. Tools may have put other text around it."""
    for body in reversed(ANSWER.findall(text)):
        with contextlib.suppress(ValueError):
            return json.loads(body)
    return None


def ending(done: Exec) -> str:
    """A few words for the report."""
    last = done.stderr.strip().rpartition("\n")[2] or done.stdout.strip().rpartition("\n")[2]
    return f"{done.status}, exit code {done.exit_code}{f', {last[:120]!r}' if last else ''}"
