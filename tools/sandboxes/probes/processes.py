# ruff: noqa: E501  # programs in strings
"""Processes: how many there may be, that none outlives its run, and that none reaches those of others."""

from __future__ import annotations

import asyncio
import os

from agentrl.sandbox import Status

from . import marks
from .probe import Broken, Group, NotApplicable, require
from .target import BY_FORCE, Target, ending

probe = Group("processes")
TOLERANCE = 6  # processes of the sandbox itself that may count along

FORKS = """
made = 0
try:
    for _ in range(400):
        if os.fork() == 0: time.sleep(20); os._exit(0)
        made += 1
except OSError: pass
tell(made); time.sleep(.3)"""


@probe("fork bomb", "fork")
async def fork_bomb(target: Target) -> str:
    (made, done), most = await marks.most_marked(target.bait.mark, target.attack(FORKS))
    await target.is_gone()
    return _bounded(target, max(made or 0, most - 1), forced=made is None and done.status in BY_FORCE, told=ending(done))


def _bounded(target: Target, count: int, *, forced: bool, told: str) -> str:
    """Where processes are counted by watching, a few more may be there for a moment before all are killed."""
    allowed = 3 * target.spec.pids if forced else target.spec.pids + TOLERANCE
    require(count <= allowed, f"{count} at once; at most {target.spec.pids} are allowed ({told})")
    return f"{count} at once"


FORKS_OF_FORKS = """
tickets, fill = os.pipe()
os.set_blocking(tickets, False)
os.write(fill, b"x" * 400)  # each fork takes one, so that there is an end where nothing else makes one
end = time.monotonic() + 2
while time.monotonic() < end:
    try: os.read(tickets, 1); os.fork()
    except OSError: time.sleep(.01)
time.sleep(20)"""


@probe("fork bomb whose forks fork", "fork")
async def forks_of_forks(target: Target) -> str:
    (_, done), most = await marks.most_marked(target.bait.mark, target.attack(FORKS_OF_FORKS, timeout=1.5))
    await target.is_gone()
    require(done.status in BY_FORCE or done.status is Status.ERROR, f"it was let end by itself: {ending(done)}")
    return _bounded(target, most - 1, forced=True, told=ending(done))


THREADS = """
made = 0
try:
    for _ in range(400): threading.Thread(target=time.sleep, args=(20,), daemon=True).start(); made += 1
except (RuntimeError, MemoryError): pass
tell(made); os._exit(0)"""


@probe("thread bomb", "threads")
async def thread_bomb(target: Target) -> str:
    made, done = await target.attack(THREADS)
    await target.is_gone()
    return _bounded(target, made or 0, forced=made is None and done.status in BY_FORCE, told=ending(done))


DAEMON = """
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for fd in range(3): os.close(fd)
        time.sleep(60)
    os._exit(0)
time.sleep(.2); tell(True)"""


@probe("daemon", "fork", seen=True)
async def daemon(target: Target) -> None:
    """A double fork with a session of its own, no stream of the run left open."""
    told, done = await target.attack(DAEMON)
    require(told is not None, f"the program did not get so far: {ending(done)}")
    await target.is_gone()


HOLDER = """
if os.fork() == 0: os.setsid(); time.sleep(60); os._exit(0)
tell(True)"""


@probe("daemon that holds stdout", "fork")
async def daemon_with_stdout(target: Target) -> str:
    _, done = await target.attack(HOLDER, timeout=20.0)
    await target.is_gone()
    require(done.wall_s < 15.0, f"the run was held up for {done.wall_s:.1f} s")
    return f"the run ended after {done.wall_s:.2f} s"


SHELL_DAEMON = """
ln -s "$(command -v sh)" {mark}
$(command -v setsid) ./{mark} -c 'sleep 60; :' > /dev/null 2>&1 &
sleep .3"""


@probe("daemon of a shell", "programs", seen=True)
async def daemon_of_a_shell(target: Target) -> None:
    async with target.sandbox() as sandbox:
        done, seen = await marks.most_marked(target.bait.mark, sandbox.run(SHELL_DAEMON.format(mark=target.bait.mark)))
        await target.is_gone()
    if not seen:
        raise NotApplicable(f"no process of the mark's name came to be, so nobody can tell: {ending(done)}")


FUNCTION_DAEMON = """
def f(x):
    import ctypes, os, time
    if os.fork() == 0:
        os.setsid(); ctypes.CDLL(None).prctl(15, MARK.encode(), 0, 0, 0); time.sleep(60); os._exit(0)
    time.sleep(.2)
    return x"""


@probe("daemon of a graded function", "fork", "ctypes", seen=True)
async def daemon_of_a_function(target: Target) -> None:
    code = f"MARK = {target.bait.mark!r}\n{FUNCTION_DAEMON}"
    async with target.sandbox() as sandbox:
        called = await sandbox.call_many(code, "f", [(1,)], timeout=10.0)
        await target.is_gone()
    require(len(called) == 1, f"{len(called)} results of one call")


DEAF = """
for number in range(1, 65):
    works(lambda: signal.signal(number, signal.SIG_IGN))
for _ in range(3):
    if os.fork() == 0: os.setsid()
while True: time.sleep(.01)"""


@probe("all signals ignored", "fork", "signals")
async def deaf(target: Target) -> str:
    _, done = await target.attack(DEAF, timeout=1.0)
    await target.is_gone()
    require(done.status is Status.TIMEOUT, ending(done))
    return f"ended after {done.wall_s:.2f} s, allowed 1.00"


@probe("stopped by itself", "signals")
async def stopped(target: Target) -> str:
    """SIGSTOP: what is stopped takes no other signal than the last."""
    _, done = await target.attack("os.kill(os.getpid(), signal.SIGSTOP); time.sleep(30)", timeout=1.0)
    await target.is_gone()
    require(done.status is Status.TIMEOUT, ending(done))
    return f"ended after {done.wall_s:.2f} s, allowed 1.00"


SIGNALS = """
works(lambda: os.kill(VICTIM, signal.SIGURG))  # harmless to whoever else gets it
works(lambda: os.kill(-1, signal.SIGURG))
tell([])"""


@probe("signals to others", "signals")
async def signals(target: Target) -> None:
    """The bait's process says itself whether one came."""
    try:
        await target.got_nothing(SIGNALS)
    finally:
        harm = target.bait.signals()
        if harm:
            raise Broken(f"a process of the host: {harm[0]}")


ASK_PARENT = "parent = os.getppid(); tell(bool(parent) and works(lambda: os.kill(parent, 0))); time.sleep(1)"
KILL_PARENT = (
    "parent = os.getppid(); os.kill(parent, signal.SIGKILL) if parent else None; time.sleep(.2); tell(os.getppid() == parent)"
)


@probe("its parent", "signals", seen=True)
async def parent(target: Target) -> str:
    """Whoever started it may be a part of its own run; killing it must harm no other. The host looks first whom it would hit."""
    run = asyncio.ensure_future(target.attack(ASK_PARENT))
    parents: set[int] = set()
    while not run.done():
        above = marks.parents()
        parents |= {above[pid] for pid in marks.marked(target.bait.mark) if pid in above}
        await asyncio.wait([run], timeout=0.05)
    may, done = await run
    require(may is not None, ending(done))
    if not may:
        return "no right to signal it"
    mine = marks.above(os.getpid())
    require(not parents & mine, f"it may kill process {min(parents & mine or {0})}, which is none of the sandbox's")
    neighbor = asyncio.ensure_future(target.attack("time.sleep(1.5); tell('alive')"))
    await asyncio.sleep(0.3)
    survived, _ = await target.attack(KILL_PARENT)
    told, done = await neighbor
    require(told == "alive", f"another sandbox ended with it: {ending(done)}")
    return "it is immune" if survived else "it is a part of the same run"


RIGHTS_OVER = """
others = {HOST, VICTIM, os.getppid(), 1} - {os.getpid(), 0}
def limit(pid): return lambda: resource.prlimit(pid, resource.RLIMIT_CORE, resource.getrlimit(resource.RLIMIT_CORE))
def nice(pid): return lambda: os.setpriority(os.PRIO_PROCESS, pid, os.getpriority(os.PRIO_PROCESS, pid))
def affinity(pid): return lambda: os.sched_setaffinity(pid, os.sched_getaffinity(pid))
tell([f"{name} of process {pid}" for pid in others for name, right in (("the limits", limit), ("the priority", nice), ("the cores", affinity))
    if works(right(pid))])"""


@probe("limits and priorities of others", "fork")
async def limits_of_others(target: Target) -> None:
    """Each is set to what it is, so that nothing changes where it works."""
    await target.got_nothing(RIGHTS_OVER)


TRACE = """
def call(number, *args):
    if libc.syscall(number, *args) < 0: raise OSError
arm, remote = os.uname().machine == "aarch64", (ctypes.c_ulong * 2)()
def seize(pid): return lambda: call(117 if arm else 101, 0x4206, pid, 0, 0)  # which, unlike attach, stops nobody
def memory(pid): return lambda: open(f"/proc/{pid}/mem", "rb").close()
def maps(pid): return lambda: open(f"/proc/{pid}/maps").read(1) != ""
parent = os.getppid()
others = {HOST, VICTIM, parent} - {os.getpid(), 0}
tell([f"{name} of process {pid}" for pid in others for name, way in (("trace", seize), ("memory", memory), ("maps", maps)) if works(way(pid))]
    + (["memory of its parent, by a call"] if parent and works(lambda: call(270 if arm else 310, parent, remote, 1, remote, 1, 0)) else []))"""


@probe("memory of others, traced or read", "ctypes", "fork")
async def trace(target: Target) -> None:
    await target.got_nothing(TRACE)


NEIGHBOR = """
found = []
for pid in os.listdir("/proc") if works(lambda: os.listdir("/proc")) else []:
    if not pid.isdigit() or int(pid) == os.getpid(): continue
    if works(lambda: SECRET[0] + SECRET[1] in open(f"/proc/{pid}/cmdline").read()): found.append("its arguments")
    if works(lambda: "AGENTRL_NEIGHBOR" in open(f"/proc/{pid}/environ").read()): found.append("its environment")
for place in (".", "/tmp", "/var/tmp", "/dev/shm", ".."):
    if works(lambda: os.stat(f"{place}/{MARK}-neighbor")): found.append(f"its file, in {place}")
tell(found)"""
STAYS = """
for place in (".", "/tmp", "/dev/shm"):
    works(lambda: open(f"{place}/{MARK}-neighbor", "w").close())
if subprocess and works(lambda: os.fork):
    os.environ["AGENTRL_NEIGHBOR"] = "x"
    works(lambda: subprocess.Popen([sys.executable, "-c", "import time; time.sleep(10)", SECRET[0] + SECRET[1]]))
time.sleep(3); os._exit(0)"""


@probe("the neighbor's processes and files")
async def neighbors(target: Target) -> None:
    """Two sandboxes at once."""
    secret = ("neighbor", target.bait.token)
    staying = asyncio.ensure_future(target.attack(STAYS, SECRET=secret))
    try:
        await asyncio.sleep(1.0)  # it needs a moment to be there; that it is late shows as a pass at worst
        await target.got_nothing(NEIGHBOR, SECRET=secret)
    finally:
        await staying
        await asyncio.to_thread(marks.remove_marked, target.bait.mark)


ORPHANS = """
for _ in range(5):
    if os.fork() == 0:
        if os.fork() == 0: time.sleep(.01)
        os._exit(0)
tell(True)"""


@probe("zombies", "fork", seen=True)
async def zombies(target: Target) -> str:
    before = marks.zombies_below(os.getpid())
    for _ in range(10):
        await target.attack(ORPHANS)
    clean = await marks.until(lambda: not marks.zombies_below(os.getpid()) - before)
    require(clean, f"{len(marks.zombies_below(os.getpid()) - before)} of 100 orphans stay as zombies")
    return "none of 100 orphans"


RIGHTS = """
probe = "import ctypes; h=ctypes.create_string_buffer(bytes([34,5,8,32,0,0,0,0])); d=ctypes.create_string_buffer(24); ctypes.CDLL(None).capget(h,d); print(any(d.raw), ctypes.CDLL(None).prctl(39,0,0,0,0))"
def rights(text): return [what for what, word, good in zip(("capabilities", "the way to new rights (no_new_privs is off)"), text.split(), ("False", "1")) if word != good]
import io, contextlib
with contextlib.redirect_stdout(io.StringIO()) as own: exec(probe)
executed = subprocess.run([sys.executable, "-I", "-c", probe], capture_output=True, text=True).stdout
tell(rights(own.getvalue()) + [f"{what}, after exec" for what in rights(executed)] + (["uid 0"] if os.getuid() and works(lambda: os.setuid(0)) else []))"""


@probe("capabilities and new rights", "ctypes", "programs")
async def rights(target: Target) -> None:
    await target.got_nothing(RIGHTS)


@probe("its user on the host", seen=True)
async def user(target: Target) -> str:
    """Seen from outside: root inside a user namespace is not root."""
    run = asyncio.ensure_future(target.attack("time.sleep(1.5)"))
    try:
        await marks.until(lambda: bool(marks.marked(target.bait.mark)))
        found: set[int] = set()
        for pid in marks.marked(target.bait.mark):
            found |= marks.uids(pid)
    finally:
        await run
    require(bool(found), "it was not seen")
    require(0 not in found, "it runs as root of this machine")
    return f"uid {', '.join(map(str, sorted(found)))}"


CALLS = """
arm = os.uname().machine == "aarch64"
buffer = ctypes.create_string_buffer(256)
REFUSED = (1, 13, 38)  # EPERM, EACCES, ENOSYS: whoever answers with another error has looked at what was asked
def tried(numbers):
    found = []
    for name, (x86, generic, *args) in numbers.items():
        pid = os.fork()
        if pid == 0:
            os._exit(0 if libc.syscall(generic if arm else x86, *args) < 0 and ctypes.get_errno() in REFUSED else 1)
        if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 1: found.append(name)
    tell(found)
"""

NAMESPACES = (
    CALLS
    + """
place = os.path.abspath(f"{MARK}-mount").encode()
os.mkdir(place)
tried(dict(unshare_user=(272, 97, 0x10000000), unshare_net=(272, 97, 0x40000000), unshare_mount=(272, 97, 0x20000),
    clone_user=(56, 220, 0x10000000 | 17, 0, 0, 0, 0), mount=(165, 40, b"none", place, b"tmpfs", 0, 0), chroot=(161, 51, place),
    open_tree=(428, 428, -100, b"/", 1), fsopen=(430, 430, b"tmpfs", 0), sethostname=(170, 161, os.uname().nodename.encode(), len(os.uname().nodename))))
libc.umount2(place, 2); os.rmdir(place)"""
)


@probe("namespaces and mounts", "ctypes", "fork")
async def namespaces(target: Target) -> None:
    """Each opens a part of the kernel that was only root's."""
    await target.got_nothing(NAMESPACES)


KERNEL = (
    CALLS
    + """
tried(dict(io_uring=(425, 425, 4, buffer), keyctl=(250, 219, 0, -3, 1), add_key=(248, 217, b"user", b"agentrl", b"v", 1, -2),
    userfaultfd=(323, 282, 1), bpf=(321, 280, 5, buffer, 128), perf_event_open=(298, 241, buffer, 0, -1, -1, 0),
    personality=(135, 92, 0x0040000), kcmp=(312, 272, 1, 1, 0, 0, 0), fanotify_init=(300, 262, 0, 0),
    open_by_handle_at=(304, 265, 3, buffer, 0), **({} if arm else {"x32": (0x40000000 + 39, 0)})))"""
)


@probe("system calls that reach deep", "ctypes", "fork")
async def kernel(target: Target) -> None:
    """Rarely needed, and where holes in the kernel were found."""
    await target.got_nothing(KERNEL)


SHARED = """
key = KEY
ids = libc.shmget(key, 4096, 0o1600), libc.semget(key, 1, 0o1600), libc.msgget(key, 0o1600)
tell([]); time.sleep(1)
if ids[0] >= 0: libc.shmctl(ids[0], 0, 0)
if ids[1] >= 0: libc.semctl(ids[1], 0, 0)
if ids[2] >= 0: libc.msgctl(ids[2], 0, 0)"""


@probe("shared memory of the host", "ctypes", "fork")
async def shared_memory(target: Target) -> None:
    """System V objects, looked for in the host's own tables while the program runs."""
    key = int(target.bait.token, 16) & 0x7FFFFFFF
    run = asyncio.ensure_future(target.attack(SHARED, KEY=key))
    try:
        found = await marks.until(lambda: key in marks.system_v_keys() or run.done(), 20.0) and key in marks.system_v_keys()
        told, done = await run
    finally:
        await run
    require(not found, "it made objects that all of this machine can see")
    require(told is not None, f"the program did not get so far: {ending(done)}")
