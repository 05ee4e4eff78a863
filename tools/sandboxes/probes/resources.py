# ruff: noqa: E501  # programs in strings
"""Memory, CPU and disk: no limit is gone round by taking the same in another way, or in many processes."""

from __future__ import annotations

import time

from agentrl.sandbox import Exec, Status

from . import marks
from .probe import Group, NotApplicable, require
from .target import BY_FORCE, Target, ending

probe = Group("resources")
SLACK = 1.2
"""Of a limit that the kernel holds: the interpreter's own share, and the step in which a probe takes more."""
WATCHED = 2.0
"""Where memory is watched, not held, several processes may take that much of it for a moment."""

PIECE = "b'x' * (16 << 20)"
ONE = f"""
held = []
for taken in range(16, 3 * MEMORY + 1, 16):
    held.append({PIECE}); tell(taken)"""


def _held(target: Target, taken: int | None, done: Exec, slack: float = SLACK) -> str:
    limit = target.spec.memory_bytes >> 20
    require((taken or 0) <= limit * slack, f"{taken} MB were taken; {limit} are allowed ({ending(done)})")
    return f"stopped at {taken or 0} of {limit} MB"


@probe("memory of one process")
async def one_process(target: Target) -> str:
    return _held(target, *await target.attack(ONE))


MANY = f"""
pipes = {{}}
for _ in range(8):
    counter, count = os.pipe(); os.set_blocking(counter, False)
    pid = os.fork()
    if pid == 0:
        held = []
        for _ in range(MEMORY // 32):
            held.append({PIECE}); os.write(count, b"m"); time.sleep(.02)
        time.sleep(3); os._exit(0)
    pipes[pid] = counter
taken, most, end = dict.fromkeys(pipes, 0), 0, time.monotonic() + 3
while time.monotonic() < end:
    time.sleep(.02)
    for pid, counter in pipes.items():
        try: taken[pid] += 16 * len(os.read(counter, 10000))
        except BlockingIOError: pass
        if works(lambda: os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT).si_pid): taken[pid] = 0  # it is dead
    most = max(most, sum(taken.values())); tell(most)
sys.exit(3)"""


@probe("memory of many processes together", "fork")
async def many_processes(target: Target) -> str:
    """Eight that take half of the limit each."""
    taken, done = await target.attack(MANY)
    await target.is_gone()
    return _held(target, taken, done, WATCHED)


MAPPED = """
held = []
for taken in range(16, 3 * MEMORY + 1, 16):
    area = mmap.mmap(-1, 16 << 20); held.append(area)
    for page in range(0, 16 << 20, 4096): area[page] = 1
    tell(taken)"""


@probe("memory in shared mappings", "mmap")
async def mapped(target: Target) -> str:
    return _held(target, *await target.attack(MAPPED))


OUTSIDE = f"""
taken, held = 0, []
try:
    while taken < 3 * MEMORY:
        held.append(os.memfd_create(str(taken)))
        for _ in range(4): os.write(held[-1], {PIECE}); taken += 16; tell(taken)
except OSError: pass
tell(taken)"""


@probe("memory outside of processes", "fork")
async def outside(target: Target) -> str:
    """Anonymous files, which no limit of a process counts."""
    return _held(target, *await target.attack(OUTSIDE), slack=1.3)


@probe("an absurd request")
async def absurd(target: Target) -> str:
    """Refused at once, not tried."""
    _, done = await target.attack("held = bytearray(1 << 44)")
    require(not done.ok, "16 TB of memory were granted")
    return str(done.status)


@probe("running out of memory is called so")
async def out_of_memory(target: Target) -> None:
    """The model that wrote the code is to learn why it ended."""
    _, done = await target.attack(ONE.replace("tell(taken)", "pass"))
    require(done.status is Status.MEMORY, ending(done))


BURN = """
for _ in range(3): os.fork()
end = time.monotonic() + 25
while time.monotonic() < end: pass"""


@probe("CPU time of many processes together", "fork")
async def cpu(target: Target) -> str:
    """Eight processes that compute, with one second for all of them."""
    if target.backend.is_remote:
        raise NotApplicable("the limit is the server's, which does not tell it")
    limit = 1.0
    async with target.another(cpu=limit) as pool, target.sandbox(pool) as sandbox:
        begun = time.monotonic()
        done = await sandbox.python(target.program(BURN), timeout=20.0)
        wall = time.monotonic() - begun
    await target.is_gone()
    require(done.status is Status.TIMEOUT, ending(done))
    require(wall < 18.0, f"only the deadline ended it, after {wall:.1f} s; {limit:.0f} s of CPU were allowed")
    return f"ended after {wall:.1f} s"


DISK = """
taken, made = 0, []
for folder in (".", "/tmp", "/var/tmp", "/dev/shm", os.path.expanduser("~"), "/"):
    try:
        while taken < 3 * DISK:
            made.append(f"{folder}/{MARK}-fill{len(made)}")
            with open(made[-1], "wb", buffering=0) as file:
                for _ in range(2): taken += file.write(b"z" * (4 << 20)) >> 20; tell(taken)
            time.sleep(.01)
    except OSError: pass
for path in made: works(lambda: os.unlink(path))"""


@probe("disk")
async def disk(target: Target) -> str:
    """All places that can be written, together."""
    taken, done = await target.attack(DISK)
    limit = target.spec.disk_bytes >> 20
    ended = done.status in BY_FORCE  # where files are watched, not held, a few more may be written before that is seen
    require((taken or 0) <= limit * (2.5 if ended else 1.5), f"{taken} MB were written; {limit} are allowed ({ending(done)})")
    return f"stopped at {taken or 0} of {limit} MB"


INODES = """
made, folder = 0, f"{MARK}-many"
try:
    os.mkdir(folder)
    while made < 40000:
        open(f"{folder}/{made}", "w").close(); made += 1
        if made % 100 == 0: tell(made)
except OSError: pass
tell(made)
import shutil; shutil.rmtree(folder, ignore_errors=True)"""


@probe("many small files")
async def inodes(target: Target) -> str:
    made, done = await target.attack(INODES)
    require((made or 0) < 40_000, "40000 were made, and nothing said no")
    return f"stopped at {made} ({done.status})"


@probe("a file larger than the disk")
async def sparse(target: Target) -> str:
    """Empty space costs nothing to make; reading it on the host must not cost its size."""
    size = 3 * target.spec.disk_bytes
    async with target.sandbox() as sandbox:
        await sandbox.python(target.program(f"with open(MARK + '-sparse', 'wb') as file: file.truncate({size})"))
        try:
            data, grown = await marks.largest(marks.memory, sandbox.read(f"{target.bait.mark}-sparse"))
        except (OSError, ValueError) as error:
            return f"refused: {str(error)[:60]}"
    require(len(data) < size, f"the host read {len(data) >> 20} MB of nothing; {target.spec.disk_bytes >> 20} are allowed")
    require(grown < target.spec.disk_bytes, f"reading it took {grown >> 20} MB of the host's memory")
    return f"{len(data)} bytes were read"


FILES = """
made = 0
try:
    while made < 20000: os.open(os.devnull, os.O_RDONLY); made += 1
except OSError: pass
tell(made)"""


@probe("open files")
async def open_files(target: Target) -> str:
    made, done = await target.attack(FILES)
    require(made is not None, ending(done))
    if made == 0:
        raise NotApplicable("there is no device file to open inside")
    require(made < 20_000, "20000 were opened, and nothing said no")
    return f"stopped at {made}"


DEEP = """
import contextlib
os.mkdir(f"{MARK}-deep"); os.chdir(f"{MARK}-deep"); made = 0
with contextlib.suppress(OSError):
    for made in range(1500): os.mkdir("x" * 50); os.chdir("x" * 50)
tell(made)"""


@probe("a tree too deep to be named")
async def deep_tree(target: Target) -> str:
    """Left behind for whoever cleans up."""
    made, _ = await target.attack(DEEP)
    await target.works()
    return f"{made or 0} folders deep"


KERNEL_LIMITS = """
tell([name for name in ("RLIMIT_CORE", "RLIMIT_MEMLOCK", "RLIMIT_MSGQUEUE") if resource.getrlimit(getattr(resource, name))[1] > (8 << 20 if name != "RLIMIT_CORE" else 0)])"""


@probe("core dumps, locked memory", "fork")
async def kernel_limits(target: Target) -> None:
    await target.got_nothing(KERNEL_LIMITS)


FILL = """
with open(f"{MARK}-used", "wb", buffering=0) as file:
    for _ in range(DISK * 6 // 10): file.write(b"z" * (1 << 20))
tell(True)"""


@probe("disk is given back")
async def given_back(target: Target) -> None:
    """Four sandboxes that use more than half of it, one after the other, and remove nothing."""
    for turn in range(4):
        told, done = await target.attack(FILL)
        require(told is True, f"number {turn + 1} could not write: {ending(done)}")
