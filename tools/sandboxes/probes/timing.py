"""Time: deadlines are kept by the host's clock, whatever the code runs, swallows or pretends."""

from __future__ import annotations

import asyncio
import time

from agentrl.sandbox import Exec, Status

from .probe import Group, require
from .target import Target, ending

probe = Group("time")
LATE = 8.0  # seconds beyond its deadline that an end may take: what is tested is that it comes, on a loaded machine too


async def _ends(target: Target, code: str, timeout: float = 0.7) -> str:
    begun = time.monotonic()
    _, done = await target.attack(code, timeout=timeout)
    wall = time.monotonic() - begun
    await target.is_gone()
    require(wall < timeout + LATE, f"it ended after {wall:.1f} s; {timeout} were allowed")
    require(done.status is Status.TIMEOUT, ending(done))
    return f"ended after {done.wall_s or wall:.2f} s, allowed {timeout}"


@probe("a program that sleeps")
async def sleeps(target: Target) -> str:
    return await _ends(target, "time.sleep(30)")


@probe("a loop")
async def loops(target: Target) -> str:
    return await _ends(target, "while True: pass")


@probe("a loop in C: one large number")
async def big_number(target: Target) -> str:
    """No signal handler and no trace function gets a turn."""
    return await _ends(target, "9 ** 9 ** 8")


@probe("a loop in C: one regular expression")
async def expression(target: Target) -> str:
    return await _ends(target, "import re; re.match('(a+)+$', 'a' * 60 + 'b')")


SWALLOW = """
while True:
    try:
        while True: time.sleep(.01)
    except BaseException: pass"""


@probe("all exceptions swallowed")
async def swallows(target: Target) -> str:
    return await _ends(target, SWALLOW)


@probe("an end that does not end")
async def atexit(target: Target) -> str:
    return await _ends(target, "import atexit\n@atexit.register\ndef wait():\n    while True: pass")


@probe("threads that stay", "threads")
async def threads(target: Target) -> str:
    return await _ends(target, "for _ in range(3): threading.Thread(target=time.sleep, args=(60,)).start()")


@probe("the clock cannot be set")
async def clock(target: Target) -> None:
    """It is set to what it is, so that nothing changes where that works."""
    code = """
def adjust(): # with no mode it only asks, with ADJ_OFFSET 0 it sets what is set
    buffer = ctypes.create_string_buffer(struct.pack("<I4xq", 1, 0), 256)
    if libc.adjtimex(buffer) < 0: raise OSError
import struct
got(set=lambda: time.clock_settime(time.CLOCK_REALTIME, time.time()), adjust=adjust)"""
    await target.got_nothing(code)


@probe("a clock that is faked inside")
async def faked(target: Target) -> str:
    """The result tells the seconds of the host."""
    code = "time.time = time.monotonic = time.perf_counter = lambda: 0.0\ntime.sleep(1)\ntell(1)"
    begun = time.monotonic()
    _, done = await target.attack(code)
    wall = time.monotonic() - begun
    require(0.9 <= done.wall_s <= wall + 0.1, f"it is said to have taken {done.wall_s:.2f} s; the host saw {wall:.2f}")
    return f"{done.wall_s:.2f} s told, {wall:.2f} s with the way there and back"


@probe("a function that fakes the clock and hangs")
async def function(target: Target) -> str:
    code = """
import gc, time
time.monotonic = time.time = lambda: 0.0
pages = [o for o in gc.get_objects() if type(o).__name__ == "mmap"]
def f(x):
    for page in pages: page[8:16] = b"\\xff" * 8
    while True: pass"""
    begun = time.monotonic()
    async with target.sandbox() as sandbox:
        called = await sandbox.call_many(code, "f", [(1,), (2,)], timeout=2.0, total=5.0)
    wall = time.monotonic() - begun
    require(all(call.status is Status.TIMEOUT for call in called), f"{[str(call.status) for call in called]}")
    require(wall < 25.0 + LATE, f"it took {wall:.1f} s; 5 were allowed for all calls")
    return f"{wall:.1f} s, allowed 5"


@probe("a timeout beyond the spec")
async def beyond(target: Target) -> None:
    """Whoever asks for more than the sandbox was made for does not get it."""
    async with target.another(timeout=1.0) as pool, target.sandbox(pool) as sandbox:
        begun = time.monotonic()
        done = await sandbox.python("import time; time.sleep(15)", timeout=1000.0)
        wall = time.monotonic() - begun
    require(done.status is Status.TIMEOUT and wall < 12.0, f"after {wall:.1f} s: {ending(done)}")


@probe("waiting is not running")
async def waiting(target: Target) -> None:
    """Three runs, one sandbox at a time: each has its whole timeout once it runs."""

    async def one(pool_timeout: float) -> Exec:
        async with target.sandbox(pool) as sandbox:
            return await sandbox.python("import time; time.sleep(1.0); print(1)", timeout=pool_timeout)

    async with target.another() as pool:
        done = await asyncio.gather(*(one(2.9) for _ in range(4)))
    require(all(each.ok for each in done), f"{[str(each.status) for each in done]}")


@probe("a late kill hits no one else")
async def late_kill(target: Target) -> str:
    """Runs that end at about their deadline, each followed by a harmless one."""
    timeouts = 0
    for turn in range(30):
        async with target.sandbox() as sandbox:
            done = await sandbox.python("import time; time.sleep(.02)", timeout=0.022 + turn * 0.001)
            timeouts += done.status is Status.TIMEOUT
            after = await sandbox.python("print(1 + 1)", timeout=20.0)
        require(after.stdout.strip() == "2", f"in turn {turn}, after {done.status}: {ending(after)}")
    return f"{timeouts} of 30 ended by force"
