"""Things of the host that sandboxed code must not reach, and that tell by themselves when it does.

Listening sockets that notice a connection, a process that notices a signal, a file that has the wrong content once it was
written to. So the verdict does not depend on what the hostile code says of itself. All of it is ours: harm to it harms no one.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

VICTIM = """
import os, signal
for number in (signal.SIGURG, signal.SIGTERM, signal.SIGUSR1):
    signal.signal(number, lambda *_: os.write(1, b"s"))
os.write(1, b"r")
while os.read(0, 1): pass
"""


class Bait:
    """Use as a context manager. `token` is new each time, so that nothing is taken for another check's."""

    def __init__(self) -> None:
        self.token = secrets.token_hex(4)
        self.mark = f"agentrl{self.token}"
        """15 characters, the most that a process's name can have."""
        self.canary = f"CANARY-{secrets.token_hex(8)}"
        self.variable = f"AGENTRL_BAIT_{self.token.upper()}"
        self.abstract_name = f"\0agentrl-bait-{self.token}"

    def __enter__(self) -> Bait:
        with contextlib.ExitStack() as stack:
            # Not below /tmp, which many sandboxes replace by one of their own and so hide without meaning to
            base = "/var/tmp" if os.access("/var/tmp", os.W_OK) else None
            self.folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="agentrl-bait-", dir=base)))
            self.folder.chmod(0o755)
            self.file = self.folder / f"canary-{self.token}"
            self.sockets = {name: stack.enter_context(made) for name, made in self._sockets().items()}
            self.reset_file()
            os.environ[self.variable] = self.canary
            stack.callback(os.environ.pop, self.variable)
            self.victim = self._victim()
            stack.callback(self._end_victim)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def reset_file(self) -> None:
        self.file.unlink(missing_ok=True)
        self.file.write_text(self.canary)
        self.file.chmod(0o666)  # by its mode anyone may write it: only the sandbox is in the way
        os.utime(self.file, ns=(10**18, 10**18))
        self._before = self._state()

    def harm(self) -> list[str]:
        """What was done to the file and its folder since the last time; puts them right again."""
        now = self._state()
        found = [f"{name} is {now[name]!r}, was {was!r}" for name, was in self._before.items() if now[name] != was]
        if found:
            for path in self.folder.iterdir():
                if path not in (self.file, self.folder / "socket"):
                    path.unlink()
            self.reset_file()
        return found

    def _state(self) -> dict[str, Any]:
        names = sorted(path.name for path in self.folder.iterdir())
        if not self.file.exists():
            return {"the bait's folder": names, "content": None, "mode": None, "owner": None, "times": None, "links": None}
        about = self.file.stat()
        return {
            "the bait's folder": names,
            "content": self.file.read_text(errors="replace")[:200],
            "mode": oct(about.st_mode),
            "owner": (about.st_uid, about.st_gid),
            "times": about.st_mtime_ns,
            "links": about.st_nlink,
        }

    def _sockets(self) -> dict[str, socket.socket]:
        made = {"TCP": _listening(socket.AF_INET, ("127.0.0.1", 0)), "UDP": socket.socket(socket.AF_INET, socket.SOCK_DGRAM)}
        made["UDP"].bind(("127.0.0.1", 0))
        made["unix socket"] = _listening(socket.AF_UNIX, str(self.folder / "socket"))
        os.chmod(self.folder / "socket", 0o777)
        if sys.platform.startswith("linux"):
            made["abstract socket"] = _listening(socket.AF_UNIX, self.abstract_name)
        with contextlib.suppress(OSError):  # no IPv6 on this machine
            made["IPv6"] = _listening(socket.AF_INET6, ("::1", 0))
        for each in made.values():
            each.setblocking(False)
        return made

    def reached(self, name: str) -> bool:
        """Whether anything came to one of the sockets since the last time."""
        if name not in self.sockets:
            return False
        bait, came = self.sockets[name], False
        while select.select([bait], [], [], 0)[0]:
            came = True
            if bait.type == socket.SOCK_DGRAM:
                bait.recv(1000)
            else:
                bait.accept()[0].close()
        return came

    def port(self, name: str) -> int:
        return int(self.sockets[name].getsockname()[1]) if name in self.sockets else 0

    def _victim(self) -> subprocess.Popen[bytes]:
        victim = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", VICTIM, f"--password={self.canary}"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env={self.variable: self.canary},
        )  # fmt: skip
        assert victim.stdout is not None
        assert os.read(victim.stdout.fileno(), 1) == b"r"
        os.set_blocking(victim.stdout.fileno(), False)
        return victim

    def signals(self) -> list[str]:
        """What has been done to the process that waits to be harmed."""
        assert self.victim.stdout is not None
        with contextlib.suppress(BlockingIOError):
            if self.victim.poll() is None and os.read(self.victim.stdout.fileno(), 1000):
                return ["it got a signal"]
        return [] if self.victim.poll() is None else ["it was ended"]

    def _end_victim(self) -> None:
        for stream in (self.victim.stdin, self.victim.stdout):
            assert stream is not None
            stream.close()
        with contextlib.suppress(ProcessLookupError):
            self.victim.send_signal(signal.SIGKILL)
        self.victim.wait()

    def facts(self) -> dict[str, Any]:
        """What hostile code may know and use, by the names it has in a probe's program."""
        half = len(self.canary) // 2
        return {
            "MARK": self.mark,
            "HOST": os.getpid(),
            "VICTIM": self.victim.pid,
            "BAIT": str(self.file),
            "BAIT_FOLDER": str(self.folder),
            "CANARY": (self.canary[:half], self.canary[half:]),  # in two: the program itself must not hold what it looks for
            "VARIABLE": (self.variable[:10], self.variable[10:]),
            "TCP": self.port("TCP"),
            "UDP": self.port("UDP"),
            "TCP6": self.port("IPv6"),
            "UNIX": str(self.folder / "socket"),
            "ABSTRACT": self.abstract_name,
        }


def _listening(family: int, address: Any) -> socket.socket:
    made = socket.socket(family)
    try:
        made.bind(address)
        made.listen()
    except OSError:
        made.close()
        raise
    return made
