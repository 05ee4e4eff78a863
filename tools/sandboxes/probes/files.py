# ruff: noqa: E501  # programs in strings
"""Files: nothing of the host is read or changed, by the code or through what the host does with the code's files."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import agentrl

from . import marks
from .probe import Broken, Group, require
from .target import Target, ending

probe = Group("files")
PROJECT = str(Path(agentrl.__file__).parents[1])
REFUSED = (OSError, ValueError)

HOST = """
def read(path): return lambda: open(path, "rb").read(10) != b""
paths = [BAIT, f"/proc/1/root{BAIT}", f"/proc/{HOST}/root{BAIT}", f"/proc/self/root{BAIT}", "../" * 30 + BAIT, PROJECT + "/pyproject.toml",
    PROJECT + "/agentrl/sandbox.py", PROJECT + "/README.md", "/root/.bashrc", "/root/.profile", "/etc/shadow", "/etc/sudoers", "/etc/gshadow"]
tell([path for path in paths if works(read(path))])"""


@probe("files of the host")
async def host_files(target: Target) -> None:
    await target.got_nothing(HOST, PROJECT=PROJECT)


HOMES = """
needed = [os.path.expanduser("~"), sys.base_prefix, sys.prefix, os.__file__, os.path.realpath(sys.executable), sys.executable, *sys.path]
def strange(path): return [name for name in os.listdir(path) if name in THERE[path] and not any(f"{n}/".startswith(f"{path}/{name}/") for n in needed)]
tell([f"{path}/{strange(path)[0]}" for path in THERE if works(lambda: strange(path)[0])])"""


@probe("homes and mounts of the host")
async def homes(target: Target) -> None:
    """A folder of that name may be there; what is in the host's may not."""
    places = ["/root", "/home", "/Users", "/mnt", "/media", "/srv", str(target.bait.folder), str(target.bait.folder.parent)]
    there: dict[str, list[str]] = {}
    for place in places:
        with contextlib.suppress(OSError):
            there[place] = os.listdir(place)[:1000]
    await target.got_nothing(HOMES, THERE=there)


PROC = """
pids = [HOST, VICTIM, os.getppid(), 1]
def has(path): return lambda: CANARY[0] + CANARY[1] in open(path, errors="replace").read()
def opens(path): return lambda: os.listdir(path)[0]
tell([path for pid in pids for path in (f"/proc/{pid}/environ", f"/proc/{pid}/cmdline") if works(has(path))]
    + [path for pid in (HOST, VICTIM) for path in (f"/proc/{pid}/fd", f"/proc/{pid}/cwd/", f"/proc/{pid}/root/") if works(opens(path))]
    + [path for pid in {os.getppid(), 1} - {os.getpid()} for path in (f"/proc/{pid}/fd", f"/proc/{pid}/environ") if works(lambda: os.listdir(path) if path.endswith("fd") else open(path).read(1)[0])])"""


@probe("processes of the host, by /proc", "proc")
async def proc(target: Target) -> None:
    await target.got_nothing(PROC)


DEVICES = """
def opens(path, flags): return lambda: os.close(os.open(path, flags))
def node(kind, major, minor):
    path = f"{MARK}-node{major}-{minor}"
    def make():
        try: os.mknod(path, kind | 0o600, os.makedev(major, minor)); os.close(os.open(path, os.O_RDONLY))
        finally: works(lambda: os.unlink(path))
    return make
paths = ["/dev/mem", "/dev/kmem", "/dev/port", "/dev/kmsg", "/dev/kvm", "/dev/fuse", "/dev/net/tun", "/dev/loop-control", "/dev/sda", "/dev/vda",
    "/dev/nvme0n1", "/dev/mapper/control", "/dev/nvidiactl", "/dev/dri/card0", "/dev/input/event0", "/dev/uinput", "/dev/userfaultfd", "/dev/vhost-net"]
tell([path for path in paths if works(opens(path, os.O_RDONLY))] + [f"a made {name}" for name, kind, major, minor in (("disk", 0o060000, 8, 0),
    ("virtual disk", 0o060000, 254, 0), ("memory device", 0o020000, 1, 1), ("kernel log", 0o020000, 1, 11)) if works(node(kind, major, minor))])"""


@probe("devices")
async def devices(target: Target) -> None:
    await target.got_nothing(DEVICES)


SETTINGS = """
def writable(path): return lambda: os.close(os.open(path, os.O_WRONLY))  # opened, never written
paths = ["/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sysrq-trigger", "/proc/sys/vm/overcommit_memory", "/proc/self/loginuid",
    "/proc/sys/fs/binfmt_misc/register", "/sys/kernel/uevent_helper", "/sys/power/state", "/proc/self/attr/current.x", "/proc/acpi/wakeup", "/proc/mtrr"]
for top in ("/sys/fs/cgroup", "/sys/fs/cgroup/memory", "/sys/fs/cgroup/pids", "/sys/fs/cgroup/unified"):
    paths += [f"{top}/{name}" for name in ("cgroup.procs", "release_agent", "memory.max", "memory.limit_in_bytes", "pids.max", "cgroup.subtree_control")]
tell([path for path in paths if works(writable(path))])"""


@probe("settings of the kernel, control groups")
async def settings(target: Target) -> None:
    await target.got_nothing(SETTINGS)


LOG = """
def addresses(): return any(line.split()[0].strip("0") for line in open("/proc/kallsyms").readlines()[:50])
def ring(): return libc.syscall(116 if os.uname().machine == "aarch64" else 103, 3, ctypes.create_string_buffer(4096), 4096) > 0
got(addresses=addresses, log=ring, memory=lambda: open("/proc/kcore", "rb").read(4) != b"", keys=lambda: open("/proc/keys").read() != "",
    timers=lambda: open("/proc/timer_list").read(1) != "", slabs=lambda: open("/proc/slabinfo").read(1) != "")"""


@probe("what the kernel tells", "ctypes")
async def kernel_log(target: Target) -> None:
    await target.got_nothing(LOG)


WRITE = """
import encodings
def create(folder): return lambda: open(f"{folder}/{MARK}-evil", "x").close()
def rewrite(path): # its first byte, with what it is: nothing changes but the time
    def work():
        with open(path, "r+b", buffering=0) as file: first = file.read(1); file.seek(0); file.write(first)
    return work
def link(path): return lambda: os.link(path, f"{path}.{MARK}-evil")
def stamp(path): return os.stat(path).st_mtime_ns if works(lambda: os.stat(path)) else 0
folders = [os.path.dirname(os.__file__), os.path.dirname(sys.executable), os.path.dirname(encodings.__file__), "/", "/usr", "/usr/bin", "/usr/lib",
    "/etc", "/etc/cron.d", "/dev", "/var", "/var/spool/cron", "/root", PROJECT] + list(getattr(module("numpy"), "__path__", []))
files = [os.__file__, os.path.realpath(sys.executable), "/bin/sh", "/etc/passwd", "/etc/hosts", PROJECT + "/pyproject.toml"]
folders = [folder for folder in folders if folder not in (os.path.expanduser("~"), os.getcwd(), "")]
if TRY: tell([[f"{f}/{MARK}-evil" for f in folders if works(create(f))] + [f"{f}.{MARK}-evil" for f in files if works(link(f))], [f for f in files if works(rewrite(f))]])
else: tell([[f"{f}/{MARK}-evil" for f in folders if os.path.exists(f"{f}/{MARK}-evil")], {f: stamp(f) for f in files}])"""


@probe("writing to the system and its Python")
async def write_system(target: Target) -> str:
    """On the host nothing may change, and nothing that the next sandbox sees; a copy of its own is the code's to spoil."""
    before, done = await target.attack(WRITE, PROJECT=PROJECT, TRY=False)
    require(before is not None, ending(done))
    host = {path: _changed(path) for path in before[1]}
    tried, done = await target.attack(WRITE, PROJECT=PROJECT, TRY=True)
    require(tried is not None, ending(done))
    created, rewritten = tried
    try:
        here = [path for path in created if _changed(path) is not None] + [
            path for path in rewritten if host[path] != _changed(path)
        ]
        after, done = await target.attack(WRITE, PROJECT=PROJECT, TRY=False)
    finally:
        for path in created:
            with contextlib.suppress(OSError):
                os.unlink(path)
    require(not here, f"on the host it wrote {', '.join(here[:4])}")
    require(after is not None, ending(done))
    changed = [path for path, when in after[1].items() if path in rewritten and when != before[1][path]]
    require(not after[0] and not changed, f"the next sandbox finds {', '.join([*after[0], *changed][:4])}")
    return f"it changed a copy of its own: {', '.join([*created, *rewritten][:2])}" if created or rewritten else "all refused"


def _changed(path: str) -> int | None:
    """When the host's file was last written; None where the host has none of that name."""
    try:
        return os.lstat(os.path.realpath(path)).st_mtime_ns
    except OSError:
        return None


HARM = """
works(lambda: open(BAIT, "a").write("harm"))
works(lambda: open(BAIT_FOLDER + "/new", "w").close())
works(lambda: os.truncate(BAIT, 1)); works(lambda: os.link(BAIT, MARK + "-linked")); works(lambda: os.link(BAIT, BAIT_FOLDER + "/linked"))
works(lambda: os.rename(BAIT, BAIT + ".gone"))
tell([])"""


@probe("changing a file of the host")
async def harm(target: Target) -> None:
    """It is everyone's to write, by its mode; the host looks at it afterwards."""
    await _untouched(target, target.got_nothing(HARM))


METADATA = """
works(lambda: os.chmod(BAIT, 0o777)); works(lambda: os.utime(BAIT, (1, 1))); works(lambda: os.setxattr(BAIT, "user.evil", b"1"))
works(lambda: os.chown(BAIT, os.getuid() + 1, -1)); works(lambda: os.unlink(BAIT))
tell([])"""


@probe("modes, times and owners of the host's files")
async def metadata(target: Target) -> None:
    await _untouched(target, target.got_nothing(METADATA))


async def _untouched(target: Target, work: Awaitable[None]) -> None:
    try:
        await work
    finally:
        found = target.bait.harm()
        if found:
            raise Broken(f"on the host, {'; '.join(found)}")


async def _linked(target: Target, sandbox: Any) -> None:
    for kind, name, to in (("symlink", "file", "BAIT"), ("symlink", "folder", "BAIT_FOLDER"), ("link", "hard", "BAIT")):
        await sandbox.python(target.program(f"os.{kind}({to}, {target.bait.mark + name!r})"))


@probe("a link that the host reads")
async def link_read(target: Target) -> None:
    async with target.sandbox() as sandbox:
        await _linked(target, sandbox)
        for path in ("file", f"folder/{target.bait.file.name}", "hard"):
            path = target.bait.mark + path
            with contextlib.suppress(*REFUSED):
                data = await sandbox.read(path)
                require(target.bait.canary.encode() not in data, f"reading {path!r} gave the host's file")


@probe("a link that the host writes to")
async def link_write(target: Target) -> None:
    async def work() -> None:
        async with target.sandbox() as sandbox:
            await _linked(target, sandbox)
            for path in ("file", f"folder/{target.bait.file.name}", "folder/new", "hard"):
                with contextlib.suppress(*REFUSED):
                    await sandbox.write(target.bait.mark + path, b"harm")

    await _untouched(target, work())


@probe("paths that leave the folder")
async def paths(target: Target) -> None:
    file = str(target.bait.file)

    async def work() -> None:
        async with target.sandbox() as sandbox:
            for path in (file, f"{'../' * 30}{file}", f"x/../../../../../../../../{file}", f"./{file}", f"..{file}"):
                with contextlib.suppress(*REFUSED):
                    data = await sandbox.read(path)
                    require(target.bait.canary.encode() not in data, f"reading {path!r} gave the host's file")
                with contextlib.suppress(*REFUSED):
                    await sandbox.write(path, b"harm")

    await _untouched(target, work())


SWAP = """
place, real = MARK + "-place", MARK + "-real"
works(lambda: os.mkdir(place))
if os.fork() == 0:
    os.setsid(); end = time.monotonic() + 20
    while time.monotonic() < end:
        for step in (lambda: os.rename(place, real), lambda: os.symlink(BAIT_FOLDER, place), lambda: os.unlink(place), lambda: os.rename(real, place)):
            works(step)
    os._exit(0)
tell(True)"""


@probe("a link that is swapped while the host writes", "fork")
async def swapped(target: Target) -> None:
    place = f"{target.bait.mark}-place"

    async def work() -> None:
        async with target.sandbox() as sandbox:
            await sandbox.python(target.program(SWAP))
            for turn in range(100):
                with contextlib.suppress(*REFUSED):
                    await sandbox.write(f"{place}/swapped{turn}", b"harm")
                with contextlib.suppress(*REFUSED):
                    data = await sandbox.read(f"{place}/{target.bait.file.name}")
                    require(target.bait.canary.encode() not in data, "reading gave the host's file")

    await _untouched(target, work())
    await target.is_gone()


@probe("a file that never ends")
async def pipe(target: Target) -> None:
    """A FIFO, a link to a device: the host must not wait for them."""
    async with target.sandbox() as sandbox:
        fifo, zero = f"{target.bait.mark}-fifo", f"{target.bait.mark}-zero"
        await sandbox.python(target.program(f"os.mkfifo({fifo!r})"))
        await sandbox.python(target.program(f"os.symlink('/dev/zero', {zero!r})"))
        for path in (fifo, zero):
            try:
                data = await asyncio.wait_for(sandbox.read(path), target.spec.timeout + 20)
            except REFUSED:
                continue
            except TimeoutError:
                raise Broken(f"the host hangs on {path!r}") from None
            require(not data, f"{len(data)} bytes of {path!r} were read")


SETUID = """
import shutil, stat
path = os.path.abspath(f"{MARK}-setuid")
shutil.copy(sys.executable, path)
works(lambda: os.chmod(path, 0o6755))
probe = "import os; print(os.getuid() != os.geteuid() or os.getgid() != os.getegid())"
gained = works(lambda: subprocess.run([path, "-I", "-S", "-c", probe], capture_output=True, text=True).stdout == "True\\n")
helpers = [p for p in ("/usr/bin/su", "/usr/bin/sudo", "/usr/bin/passwd", "/usr/bin/mount") if works(lambda: os.stat(p).st_mode & stat.S_ISUID and os.stat(p).st_uid == 0)]
nosuid = libc.prctl(39, 0, 0, 0, 0) == 1
works(lambda: os.unlink(path))
tell((["rights of a file of its own"] if gained else []) + ([] if nosuid else helpers))"""


@probe("set-uid programs", "programs", "ctypes")
async def setuid(target: Target) -> None:
    """None of its own gives rights; those of the system neither, where no_new_privs is on."""
    await target.got_nothing(SETUID)


SOCKETS = """
def reaches(path):
    def connect():
        with socket.socket(socket.AF_UNIX) as s: s.settimeout(2); s.connect(path)
    return connect
paths = ["/var/run/docker.sock", "/run/docker.sock", "/run/containerd/containerd.sock", "/run/podman/podman.sock", "/run/dbus/system_bus_socket",
    "/run/systemd/private", "/run/systemd/notify", "/dev/log", "/run/snapd.socket", "/tmp/.X11-unix/X0", "/var/run/nscd/socket"]
paths += [os.environ[name] for name in ("SSH_AUTH_SOCK", "DBUS_SESSION_BUS_ADDRESS", "DOCKER_HOST") if name in os.environ]
tell([path for path in paths if works(reaches(path.removeprefix("unix://").removeprefix("unix:path=")))])"""


@probe("sockets of the host's services", "sockets")
async def services(target: Target) -> None:
    await target.got_nothing(SOCKETS)


LEAVE = """
import builtins
for place in (".", "/tmp", "/var/tmp", "/dev/shm", os.path.expanduser("~"), "/"):
    works(lambda: open(f"{place}/{MARK}-left", "w").close())
os.environ["AGENTRL_LEFT"] = "1"; builtins.agentrl_left = 1; json.agentrl_left = 1
tell(True)"""
FIND = """
import builtins
found = [place for place in (".", "/tmp", "/var/tmp", "/dev/shm", os.path.expanduser("~"), "/") if os.path.exists(f"{place}/{MARK}-left")]
tell(found + (["the environment"] if "AGENTRL_LEFT" in os.environ else []) + (["builtins"] if hasattr(builtins, "agentrl_left") else [])
    + (["a module"] if hasattr(json, "agentrl_left") else []))"""


@probe("what the last one left")
async def left(target: Target) -> None:
    """Files, variables, patched modules: the next sandbox knows nothing of them."""
    try:
        for _ in range(3):  # the next may be any of the pool's
            await target.attack(LEAVE)
        for _ in range(3):
            await target.got_nothing(FIND)
    finally:
        await asyncio.to_thread(marks.remove_marked, target.bait.mark)


RESISTANT = r"""
os.mkdir(MARK + "-locked"); os.chdir(MARK + "-locked")
os.makedirs("locked/inner"); open("locked/inner/file", "w").close()
for name in ("new\nline", "-rf", "\udcff", "x" * 250, " ", "*"): works(lambda: os.mkdir("locked/" + name))
works(lambda: os.symlink("/", "locked/root")); works(lambda: os.symlink("loop", "loop")); works(lambda: os.mkfifo("locked/fifo"))
works(lambda: os.chmod("locked/inner", 0)); works(lambda: os.chmod("locked", 0)); works(lambda: os.chmod(".", 0))
tell(True)"""


@probe("files that resist removal")
async def resistant(target: Target) -> None:
    for _ in range(3):
        told, done = await target.attack(RESISTANT)
        require(told is True, ending(done))
    for _ in range(3):
        found, done = await target.attack("tell([name for name in os.listdir('.') if MARK in name])")
        require(found == [], f"the next one finds {found} ({ending(done)})")


@probe("its own files are kept from run to run")
async def kept(target: Target) -> None:
    """Written by the host, changed by code, read by the host."""
    async with target.sandbox() as sandbox:
        data = bytes(range(256)) * 100
        await sandbox.write("folder/data.bin", data)
        done = await sandbox.python("d = open('folder/data.bin', 'rb').read(); open('back.bin', 'wb').write(d[::-1])")
        require(done.ok, ending(done))
        require(await sandbox.read("back.bin") == data[::-1], "other bytes came back")
