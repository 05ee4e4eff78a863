"""The zygote's first process: isolates itself once, imports once, forks the slots and forks them anew when they die.

Consumes its settings from the host, once; produces one answer, ready or why not. Ends when the host does.
"""

from __future__ import annotations

import importlib
import json
import os
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from typing import NoReturn

from . import ending, forking, landlock, linux, namespaces, rehearsal, root, script, seccomp, watch, wire
from .cage import Cage
from .settings import NAMESPACE, Settings
from .slot import Links, Slot

BACKOFF = 0.1
"""Seconds before a slot that lived shortly is started anew; doubled with each such life."""
SHORT_LIFE = 1.0
SHORT_LIVES = 4
"""In a row: then there is no use in trying, and the zygote ends."""
LANDLOCK_FIRST_UID = 231_000
"""As root without namespaces: uids of the host that nobody has, and that are not those of the namespace level."""


def main(control: int) -> NoReturn:
    link = socket.socket(fileno=control)
    settings = Settings.from_json(link.recv(1 << 20))
    try:
        _isolate(settings)
        problems = _prepare(settings)
        master = Master(link, settings)
        for index in range(settings.slots):
            master.start(index)
    except Exception as error:
        link.send(json.dumps({"error": f"{type(error).__name__}: {error}"}).encode())
        traceback.print_exc()
        os._exit(1)
    link.send(json.dumps({"ready": True, "problems": problems}).encode())
    master.serve()


def _isolate(settings: Settings) -> None:
    if not seccomp.supported():
        raise OSError(f"no table of system calls for {os.uname().machine}")
    if settings.level != NAMESPACE:
        if not landlock.version():
            raise OSError("this kernel has no Landlock")
        linux.prctl(linux.PR_SET_CHILD_SUBREAPER, 1)
        return
    if settings.own_uid:
        namespaces.enter_as_root(settings)
    else:
        namespaces.enter_as_user(settings)
    namespaces.fork_into_pid_namespace(settings.open_below)
    if settings.own_uid:
        root.mount_proc()  # over the one of the host's pid namespace
    else:
        root.build(settings)


def _prepare(settings: Settings) -> list[str]:
    """The environment and the modules that every execution starts with. Gives what could not be imported."""
    os.environ.clear()
    os.environ.update({"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1"})
    os.environ.update({"USER": "sandbox", "LOGNAME": "sandbox"})
    os.environ.update({"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "2", **settings.env})
    sys.path.remove(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    sys.path += settings.import_path
    script.furnish()
    problems = []
    for name in settings.preload:
        try:
            importlib.import_module(name)
        except ImportError as error:
            problems.append(f"{name}: {error}")
    rehearsal.settle()
    return problems


class Master:
    def __init__(self, link: socket.socket, settings: Settings) -> None:
        self.link, self.settings = link, settings
        self.epochs = [0] * settings.slots
        self.slots: dict[int, int] = {}  # pid: index
        self.born: dict[int, float] = {}  # pid: monotonic time
        self.short_lives = [0] * settings.slots
        self.reseed = forking.reseeder([os.path.basename(path) for path in settings.packages])
        self.filter = _filter(settings)
        self.busy_uid = 0
        if settings.level != NAMESPACE and not settings.own_uid:  # then the limit counts all that the user runs
            self.busy_uid = watch.threads_of_uid(os.getuid()) + settings.slots * (settings.pids + 2)

    def start(self, index: int) -> None:
        self.epochs[index] += 1
        pid = namespaces.fork_slot(self.settings, self.settings.level == NAMESPACE)
        if pid == 0:
            try:
                self._slot(index)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(99)
        self.slots[pid] = index
        self.born[pid] = time.monotonic()

    def serve(self) -> NoReturn:
        """Starts dead slots anew; ends with the host."""
        poll = select.poll()
        poll.register(self.link, select.POLLIN)
        poll.register(self.settings.host, select.POLLIN)
        while not poll.poll(100):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    break
                if pid in self.slots:
                    self._again(pid, status)
        self._end(0)

    def _end(self, status: int) -> NoReturn:
        if self.settings.level != NAMESPACE:  # there, all inside dies with us
            ending.kill_descendants(0, False)
        os._exit(status)

    def _again(self, pid: int, status: int) -> None:
        index = self.slots.pop(pid)
        if self.settings.level != NAMESPACE:
            self._kill_strays()
        lived = time.monotonic() - self.born.pop(pid)
        short = self.short_lives[index] = self.short_lives[index] + 1 if lived < SHORT_LIFE else 0
        if short >= SHORT_LIVES:
            self._end(1)
        print(f"slot {index} ended with status {status} and is started anew", file=sys.stderr, flush=True)
        time.sleep(BACKOFF * 2**short if short else 0)
        self.start(index)

    def _kill_strays(self) -> None:
        """What a dead slot has left is now below us."""
        everyone = watch.parents()
        below = [pid for pid, parent in everyone.items() if parent == os.getpid() and pid not in self.slots]
        for pid in [*below, *(deeper for stray in below for deeper in watch.descendants(stray, lambda: everyone))]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue

    def _slot(self, index: int) -> NoReturn:
        control, oom, *groups = self.settings.links[index]
        mine = {control, self.settings.host, *groups} | ({oom} if oom >= 0 else set())
        for fd in range(3, self.settings.open_below):
            if fd not in mine:
                _close(fd)
        for group in groups:  # one per controller: the slot, and all it forks, belongs to the group from now on
            os.write(group, b"0")
            os.close(group)
        # Process 1 of a namespace is immune to signals from inside that it has no handler for, and there is none
        links = Links(line=wire.Line(socket.socket(fileno=control)), host=self.settings.host, oom=oom)
        build = self._in_namespace if self.settings.level == NAMESPACE else self._with_landlock
        build(index, links).serve()

    def _in_namespace(self, index: int, links: Links) -> Slot:
        settings = self.settings
        linux.unshare(linux.CLONE_NEWNS, "mount of a slot")
        kept = root.slot_mounts(settings)
        home = "/tmp/work"
        while os.path.basename(home) in kept:
            home += "_"
        linux.drop_bounding_set()
        if not settings.own_uid:  # else our uid keeps us apart from the code, and the change of uid hides it in turn
            linux.prctl(linux.PR_SET_DUMPABLE, 0)
        linux.prctl(linux.PR_SET_NO_NEW_PRIVS, 1)
        seccomp.install(self.filter)
        uid = settings.first_uid + index if settings.own_uid else None
        cage = self._cage(home, "/tmp", uid, None)
        return self._make(index, links, cage, "/tmp", kept, ending.kill_namespace)

    def _with_landlock(self, index: int, links: Links) -> Slot:
        settings = self.settings
        os.setsid()
        linux.prctl(linux.PR_SET_CHILD_SUBREAPER, 1)
        linux.drop_bounding_set()
        linux.prctl(linux.PR_SET_DUMPABLE, 0)
        linux.prctl(linux.PR_SET_NO_NEW_PRIVS, 1)
        ground = f"{settings.scratch}/{index}"
        rules = landlock.ruleset([*settings.readable, *settings.packages], settings.masked, ground, settings.network)
        uid = LANDLOCK_FIRST_UID + index if settings.own_uid else None
        cage = self._cage(f"{ground}/work", f"{ground}/tmp", uid, rules)
        return self._make(index, links, cage, ground, frozenset(), ending.kill_descendants)

    def _cage(self, home: str, temporary: str, uid: int | None, rules: int | None) -> Cage:
        settings = self.settings
        os.environ.update({"HOME": home, "TMPDIR": temporary})
        return Cage(
            home=home,
            temporary=temporary,
            uid=uid,
            memory=settings.memory,
            pids=settings.pids,
            disk=settings.disk,
            cpu=settings.cpu,
            counted=bool(settings.cgroup),
            in_namespace=rules is None,
            base_address_space=watch.own_size()[0],
            filter=self.filter if rules is not None else None,
            ruleset=rules,
            processes_before=self.busy_uid,
        )

    def _make(
        self, index: int, links: Links, cage: Cage, ground: str, kept: frozenset[str], kill_all: Callable[[int, bool], None]
    ) -> Slot:
        own = os.getpid()
        return Slot(
            links=links,
            cage=cage,
            epoch=self.epochs[index],
            ground=ground,
            kept=kept,
            reseed=self.reseed,
            open_below=self.settings.open_below,
            kill_all=kill_all,
            others=watch.others_in_namespace if cage.in_namespace else lambda: watch.living_below(own),
        )


def _filter(settings: Settings) -> bytes:
    if settings.level == NAMESPACE:
        return seccomp.program(network=settings.network, refuse=() if settings.cgroup else seccomp.MEMFD)
    abi = landlock.version()
    refuse, pretend = landlock.complement(abi, same_uid=not settings.own_uid)
    owns = abi >= 6 or settings.own_uid
    return seccomp.program(network=settings.network, refuse=refuse, pretend=pretend, signal_ownership=owns)


def _close(fd: int) -> None:
    try:
        os.close(fd)
    except OSError:
        return
