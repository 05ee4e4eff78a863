"""The local sandbox: untrusted code on this machine, shut in by the kernel, at a few milliseconds per execution.

A zygote (see `zygote/`) has isolated itself and imported NumPy once; each execution is a fork of it. Levels:
namespace+cgroup (root, or a delegated cgroup), namespace (any user, where the system allows it), landlock (a default
container). What is given is probed by starting it, never assumed; nothing falls below what the SandboxSpec accepts.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from typing import Any

from agentrl.errors import UsageError, nearest
from agentrl.sandbox import IsolationError, SandboxError, SandboxLost, SandboxSpec

from . import systems
from .fifo import Fifo
from .link import SlotLink
from .process import StartFailed, Zygote
from .slot_sandbox import SlotSandbox
from .zygote.settings import LANDLOCK, NAMESPACE

LEVELS = {
    "auto": (NAMESPACE, LANDLOCK),
    "landlock": (NAMESPACE, LANDLOCK),
    "namespace": (NAMESPACE,),
    "namespace+cgroup": (NAMESPACE,),
}
"""What is tried, best first, for what SandboxSpec.isolation accepts."""
ADVICE = """To allow it, one of:
  - user namespaces: sysctl -w user.max_user_namespaces=10000 kernel.unprivileged_userns_clone=1;
    on Ubuntu 23.10 and later also kernel.apparmor_restrict_unprivileged_userns=0
  - in Docker: --security-opt seccomp=unconfined --security-opt systempaths=unconfined
  - a kernel of 5.13 or later with Landlock (lsm=...,landlock)
  - sandbox.backend=unsafe_local runs the code without any isolation"""

log = logging.getLogger(__name__)


class LocalPool:
    """Sandboxes on this machine. Made by `open`; used by one event loop.

    >>> pool = await LocalPool.open(SandboxSpec(), slots=2)          # doctest: +SKIP
    >>> sandbox = await pool.acquire()                               # doctest: +SKIP
    >>> (await sandbox.python("print(1 + 1)")).stdout                # doctest: +SKIP
    '2\\n'
    """

    def __init__(self, spec: SandboxSpec, slots: int, levels: Sequence[str], use_cgroup: bool) -> None:
        self._spec, self._slots, self._levels, self._use_cgroup = spec, slots, levels, use_cgroup
        self._zygote: Zygote | None = None
        self._free: Fifo[SlotLink] = Fifo()
        self._starting = asyncio.Lock()
        self._closed = False
        self.isolation = "none"

    @classmethod
    async def open(
        cls, spec: SandboxSpec | None = None, slots: int = 8, *, level: str | None = None, use_cgroup: bool = True
    ) -> LocalPool:
        """`slots` sandboxes at once. `level` and `use_cgroup` pin one kind of isolation, for tests. Raises IsolationError."""
        spec = spec or SandboxSpec()
        systems.check("local")
        _check(spec, slots)
        pool = cls(spec, slots, (level,) if level else LEVELS[spec.isolation], use_cgroup)
        await pool._start()
        return pool

    @property
    def watched(self) -> tuple[str, ...]:
        """Limits that are watched rather than held by the kernel: they may be passed for some hundredths of a second."""
        return self._zygote.watched if self._zygote is not None else ()

    async def __aenter__(self) -> LocalPool:
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self.aclose()

    async def acquire(self) -> LocalSandbox:
        """A fresh sandbox; waits in arrival order while all are in use. Raises SandboxError."""
        while True:
            if self._closed or self._zygote is None or self._zygote.dead:
                await self._revive()
            slot = await self._free.get()
            if slot is not None and not slot.dead:
                slot.lend()
                return LocalSandbox(self, slot, self._spec)

    async def aclose(self) -> None:
        """Ends all sandboxes. Idempotent."""
        self._closed = True
        self._free.clear()
        if self._zygote is not None:
            await self._zygote.aclose()

    async def _revive(self) -> None:
        """A new zygote where the old one died. Its users have got SandboxLost."""
        async with self._starting:
            if self._closed:
                raise SandboxError("the pool is closed")
            if self._zygote is not None and self._zygote.dead:
                log.error("the sandboxes' process has ended; it is started anew")
                with contextlib.suppress(OSError):  # what it left is removed by the next run
                    await self._zygote.aclose()
                self._free.clear()
                await self._start()

    async def _start(self) -> None:
        problems = []
        for level in self._levels:
            try:
                zygote = await Zygote.start(self._spec, self._slots, level, use_cgroup=self._use_cgroup)
            except StartFailed as error:
                problems.append(f"{level}: {error}")
                continue
            if self._spec.isolation == "namespace+cgroup" and zygote.isolation != "namespace+cgroup":
                problems.append(f"cgroup: {zygote.cgroup_problem}")
                await zygote.aclose()
                continue
            self._adopt(zygote, problems)
            return
        reasons = "\n".join(f"  - {problem}" for problem in problems)
        raise IsolationError(f"this machine cannot give the isolation {self._spec.isolation!r}:\n{reasons}\n{ADVICE}")

    def _adopt(self, zygote: Zygote, problems: list[str]) -> None:
        self._zygote, self.isolation = zygote, zygote.isolation
        if problems:
            log.warning("sandboxes at level %s; not possible here: %s", self.isolation, "; ".join(problems))
        if self.watched:
            limits = " and ".join(self.watched)
            log.warning("sandboxes at level %s: limits of %s are watched, not held by the kernel", self.isolation, limits)
        if zygote.missing:
            log.warning("not to be had in the sandbox: %s", ", ".join(zygote.missing))
        for slot in zygote.slots:
            self._free.put(slot)

    def _release(self, slot: SlotLink) -> None:
        if not slot.dead and not self._closed:
            slot.give_back()
            self._free.put(slot)
        elif not self._closed:
            self._free.wake()  # so that someone who waits starts a new zygote

    def _give_up(self) -> None:
        """A slot that cannot even be stopped may hold anything: all of them are started anew."""
        if self._zygote is not None:
            self._zygote.kill()
        self._free.wake()


class LocalSandbox(SlotSandbox):
    """One slot, held until `aclose`."""

    def __init__(self, pool: LocalPool, slot: SlotLink, spec: SandboxSpec) -> None:
        super().__init__(spec)
        self._pool, self._slot = pool, slot

    async def alive(self) -> bool:
        return not (self._closed or self._slot.dead or self._slot.lost)

    async def aclose(self) -> None:
        """Kills what runs and gives the slot back; it is emptied before its next use. Idempotent."""
        if self._closed:
            return
        self._closed = True
        try:
            if self._slot.busy:
                await asyncio.shield(self._stop())
        finally:
            self._pool._release(self._slot)

    async def _stop(self) -> None:
        try:
            await self._slot.stop()
        except TimeoutError:
            self._pool._give_up()

    def _live(self) -> SlotLink:
        if self._closed:
            raise SandboxError("the sandbox is closed")
        if self._slot.dead or self._slot.lost:
            raise SandboxLost("the sandbox died; its files are gone")
        return self._slot


def _check(spec: SandboxSpec, slots: int) -> None:
    if spec.isolation not in LEVELS:
        raise UsageError(f"sandbox isolation {spec.isolation!r} does not exist; {nearest(spec.isolation, LEVELS)}")
    for name, value in (("slots", slots), ("memory", spec.memory_bytes), ("pids", spec.pids), ("disk", spec.disk_bytes)):
        if value < 1:
            raise UsageError(f"a sandbox's {name} must be at least 1, not {value}")
    if spec.timeout <= 0 or spec.cpu <= 0:
        raise UsageError("a sandbox's timeout and cpu must be above 0 seconds")
