"""Output: bounded, whatever is written and by whom, and it comes back as data that changes nothing here."""

from __future__ import annotations

from agentrl.sandbox import Status

from . import marks
from .probe import Group, require
from .target import BY_FORCE, Target, ending

probe = Group("output")
FLOOD = 100  # MB
BOUNDED = 4 << 20  # characters
GROWTH = 64 << 20  # bytes that this process may grow by while it takes a flood


async def _flood(target: Target, stream: str) -> str:
    code = f"for _ in range({FLOOD}): sys.{stream}.write('A' * (1 << 20))"
    (_, done), grown = await marks.largest(marks.memory, target.attack(code))
    size = len(done.stdout) + len(done.stderr)
    require(size <= BOUNDED, f"{size >> 20} MB came back")
    require(grown <= GROWTH, f"this process grew by {grown >> 20} MB")
    return f"{size} characters came back, this process grew by {grown >> 20} MB"


@probe(f"{FLOOD} MB on stdout, without a line break")
async def stdout_flood(target: Target) -> str:
    return await _flood(target, "stdout")


@probe(f"{FLOOD} MB on stderr")
async def stderr_flood(target: Target) -> str:
    return await _flood(target, "stderr")


@probe("the limit is kept, and said")
async def limit(target: Target) -> str:
    most = target.spec.output_bytes
    _, done = await target.attack(f"sys.stdout.write('B' * {3 * most}); sys.stdout.flush()")
    require(len(done.stdout) <= most, f"{len(done.stdout)} characters; {most} are allowed")
    require(done.stdout_cut or done.status is Status.OUTPUT, "nothing says that it was cut")
    require(set(done.stdout[: most // 2]) == {"B"}, "the beginning is lost")
    return f"{len(done.stdout)} of {3 * most} characters, flagged"


@probe("an endless flood")
async def endless(target: Target) -> str:
    code = "while True:\n    try: print('C' * 1000)\n    except BaseException: pass"
    (_, done), grown = await marks.largest(marks.memory, target.attack(code, timeout=2.0))
    await target.is_gone()
    require(done.status in BY_FORCE, ending(done))
    require(len(done.stdout) <= BOUNDED, f"{len(done.stdout) >> 20} MB came back")
    require(grown <= GROWTH, f"this process grew by {grown >> 20} MB")
    return f"{len(done.stdout)} characters came back"


CHILDREN = """
for _ in range(4):
    if os.fork() == 0:
        os.setsid()
        end = time.monotonic() + 8
        while time.monotonic() < end:
            try: os.write(1, b"D" * 65536); time.sleep(.001)
            except OSError: pass
        os._exit(0)
time.sleep(.2)"""


@probe("a flood by those who stay", "fork")
async def flood_of_children(target: Target) -> str:
    """Children go on writing after the program has ended."""
    (_, done), grown = await marks.largest(marks.memory, target.attack(CHILDREN, timeout=20.0))
    await target.is_gone()
    require(done.wall_s < 7.0, f"the run was held up for {done.wall_s:.1f} s")
    require(len(done.stdout) <= BOUNDED and grown <= GROWTH, f"{len(done.stdout) >> 20} MB came back")
    return f"the run ended after {done.wall_s:.2f} s"


@probe("bytes that are no text")
async def no_text(target: Target) -> None:
    _, done = await target.attack(r"sys.stdout.buffer.write(b'<a\xff\x00\xfe\xc3b>\n'); sys.stdout.flush()")
    require(done.ok and "<a" in done.stdout and "b>" in done.stdout, f"{done.stdout[:40]!r} ({ending(done)})")


@probe("text of any language")
async def any_text(target: Target) -> None:
    text = "é 中文 🚀 \u202e reversed"
    _, done = await target.attack(f"print({text!r})")
    require(text in done.stdout, f"{done.stdout[:60]!r} ({ending(done)})")


@probe("escape sequences of a terminal")
async def escapes(target: Target) -> None:
    """They come back as data, all of them: nothing on the way may act on them."""
    text = "\x1b]0;owned\x07\x1b[2J\x1b[31mred"
    _, done = await target.attack(f"print({text!r})")
    require(text in done.stdout, f"{done.stdout[:60]!r} ({ending(done)})")


TERMINAL = """
fcntl = module("fcntl")
def push(): # TIOCSTI: as if typed by the person at the terminal
    for fd in range(3): fcntl.ioctl(fd, 0x5412, b" ")
got(terminal=lambda: open("/dev/tty").close(), typing=push, console=lambda: open("/dev/console", "w").close())"""


@probe("the terminal")
async def terminal(target: Target) -> None:
    await target.got_nothing(TERMINAL)


FORGED = """
for fd in range(3, 64):
    for forged in (b'{"status": "ok", "exit_code": 0}\\n', b"D" * 60):
        works(lambda: os.write(fd, forged))
sys.exit(7)"""


@probe("a forged result")
async def forged(target: Target) -> None:
    """Written to every descriptor that could lead to the host."""
    _, done = await target.attack(FORGED)
    require(done.status is Status.ERROR and done.exit_code == 7, f"expected an error with exit code 7: {ending(done)}")


@probe("exit codes and signals")
async def exit_codes(target: Target) -> None:
    for code in (0, 1, 42, 125):
        _, done = await target.attack(f"os._exit({code})")
        require(done.exit_code == code and done.ok == (code == 0), f"exit code {code} came as {ending(done)}")
    if "signals" in target.features:
        _, done = await target.attack("os.kill(os.getpid(), signal.SIGSEGV)")
        require(not done.ok and done.exit_code not in (0, 1), f"a crash came as {ending(done)}")


@probe("closed streams")
async def closed(target: Target) -> None:
    _, done = await target.attack("for fd in (0, 1, 2): os.close(fd)\nos._exit(3)")
    require(done.exit_code == 3, ending(done))


@probe("input that nobody reads")
async def unread_input(target: Target) -> None:
    _, done = await target.attack("tell(1)", stdin="x" * 1_000_000)
    require(done.ok, ending(done))


@probe("input arrives whole, and only what was given")
async def given_input(target: Target) -> None:
    text = "ä line\n" * 30_000
    told, done = await target.attack("tell(len(sys.stdin.read()))", stdin=text)
    require(told == len(text), f"{told} of {len(text)} characters came ({ending(done)})")
    told, done = await target.attack("tell(sys.stdin.read())")
    require(told == "", f"without an input, {told!r} came ({ending(done)})")
