"""Files of the local sandbox, and what must not be left of one user for the next."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentrl.sandbox import Status
from agentrl.tools.sandboxes.local import LocalSandbox

from .conftest import Local
from .looking import in_sandbox


def test_files_last_until_the_sandbox_is_closed(each: Local) -> None:
    async def work(sandbox: LocalSandbox) -> None:
        await sandbox.write("data/in.bin", bytes(range(256)) * 1000)
        done = await sandbox.python("d = open('data/in.bin', 'rb').read(); open('out', 'wb').write(d[::-1]); print(len(d))")
        assert done.stdout == "256000\n"
        assert await sandbox.read("out") == (bytes(range(256)) * 1000)[::-1]
        await sandbox.write("out", b"short")
        assert await sandbox.read("out") == b"short"

    in_sandbox(each, work)
    assert each.python("import os; print(os.listdir('.'))").stdout == "[]\n"


@pytest.mark.parametrize("path", ["../evil", "/etc/passwd", "a/../../evil", "", ".", "link/passwd", "etc", "loop/x", "x\0y"])
def test_paths_do_not_leave_the_working_folder(each: Local, path: str) -> None:
    async def work(sandbox: LocalSandbox) -> None:
        await sandbox.run("ln -s /etc link; ln -s /etc/passwd etc; ln -s loop loop; mkfifo fifo; mkdir folder")
        with pytest.raises((ValueError, OSError)):
            await sandbox.read(path)
        with pytest.raises((ValueError, OSError)):
            await sandbox.write(path, b"x")

    in_sandbox(each, work)


def test_special_files_and_missing_ones(each: Local) -> None:
    async def work(sandbox: LocalSandbox) -> None:
        await sandbox.run("mkfifo fifo; mkdir folder; echo 1 > ok; ln -s ok inside")
        for name in ("fifo", "folder"):
            with pytest.raises(OSError, match=name):
                await sandbox.read(name)
            with pytest.raises(OSError, match=name):
                await sandbox.write(name, b"x")
        with pytest.raises(FileNotFoundError, match="nope"):
            await sandbox.read("nope")
        assert await sandbox.read("inside") == b"1\n"

    in_sandbox(each, work)


def test_a_file_beyond_the_disk_limit_is_refused(best: Local) -> None:
    async def work(sandbox: LocalSandbox) -> None:
        with pytest.raises(OSError, match="big"):
            await sandbox.write("big", bytes(80 << 20))

    in_sandbox(best, work)


def test_a_sandbox_survives_what_a_run_does_to_its_folder(each: Local) -> None:
    async def work(sandbox: LocalSandbox) -> None:
        await sandbox.run('cd ..; rm -rf "$HOME" 2>/dev/null; rmdir "$HOME" 2>/dev/null; true')
        assert (await sandbox.python("open('x', 'w').write('1'); print(open('x').read())")).stdout == "1\n"

    in_sandbox(each, work)


def test_nothing_of_a_run_is_left_for_the_next_user(each: Local) -> None:
    secret = "S3CR3T_" + "1234567890" * 3
    first = f"""
import builtins, os, json, sys, tempfile
for folder in (".", os.environ["TMPDIR"], "/tmp", "/dev/shm"):
    try: open(folder + "/left", "w").write("x")
    except OSError: pass
builtins.LEFT = os.environ["LEFT"] = "1"; json.dumps = None; SECRET = {secret!r}
os.umask(0o777); sys.path.append("/left")
"""
    second = """
import builtins, ctypes, json, os, re, sys
found = [f for f in (".", os.environ["TMPDIR"], "/tmp", "/dev/shm") if os.path.exists(f + "/left")]
found += [n for n, bad in dict(builtin=hasattr(builtins, "LEFT"), env="LEFT" in os.environ, module=json.dumps is None,
    path="/left" in sys.path, umask=os.umask(0o22) != 0o22, name="SECRET" in globals()).items() if bad]
pattern = re.compile(b"S3CR" + b"3T_[0-9]{30}")
try: maps = open("/proc/self/maps").read().splitlines()
except OSError: maps = []
for line in maps:
    area, rights = line.split()[:2]
    start, end = (int(x, 16) for x in area.split("-"))
    if rights.startswith("rw") and "[v" not in line and end - start < 64 << 20:
        if pattern.search(ctypes.string_at(start, end - start)): found.append("memory")
print(found)
"""
    for _ in range(3):  # more often than there are slots with a used child
        each.python(first)
    for _ in range(3):
        assert each.python(second).stdout == "[]\n"


def test_hostile_files_are_removed(each: Local) -> None:
    """Deep trees, unreadable folders, links out, odd names, and names that cleaning itself would use."""
    mess = r"""
import os
os.makedirs("closed/in/side"); open("closed/in/side/f", "w").close(); os.symlink("/usr", "closed/out"); os.symlink("x", "x")
open("odd\n\udcff name", "w").close(); os.makedirs("deep/.moved1/.moved2")
top = os.open("deep", os.O_RDONLY)
os.chdir("deep")
for i in range(1500):
    os.mkdir("d" * 100); os.chdir("d" * 100)
    if i % 100 == 0: open("file", "w").close()
os.fchdir(top); os.chdir("..")
os.chmod("closed/in/side", 0); os.chmod("closed/in", 0); os.chmod("closed", 0); os.mkdir("never", 0); os.chmod(".", 0o500)
print("made")
"""
    done = each.python(mess)
    if done.stdout != "made\n":  # where the disk limit is watched, folders that deep may be seen while they are made
        assert (each.pool.isolation, done.status) == ("landlock", Status.KILLED)
    assert each.python("import os; print(os.listdir('.'), os.access('.', os.W_OK))").stdout == "[] True\n"
    assert Path("/usr/bin").is_dir()


def test_fork_hooks_are_held_back_and_there_for_the_program_s_own_forks(each: Local) -> None:
    """Those of threading and random, which cost more than a fork."""
    assert each.python("import sys; print(len(sys.modules['zygote.forking'].HELD))").stdout == "2\n"
    code = """
import os, random, threading, time
threading.Thread(target=time.sleep, args=(1,), daemon=True).start()
random.seed(1)
if os.fork() == 0:
    print(random.random(), threading.active_count(), flush=True); os._exit(0)
os.wait()
print(random.random())
"""
    child, parent = each.python(code).stdout.splitlines()
    assert child.split()[1] == "1"  # of its parent's two threads
    assert child.split()[0] != parent


def test_random_numbers_differ_between_runs(each: Local) -> None:
    code = "import random, os; print(random.random(), os.urandom(4).hex())"
    assert len({each.python(code).stdout for _ in range(6)}) == 6
    code = "import numpy; print(numpy.random.rand())"
    numbers = {each.python(code).stdout for _ in range(6)}
    assert len(numbers) == 6

    async def by_a_module_of_its_own(sandbox: LocalSandbox) -> set[str]:
        await sandbox.write("helper.py", b"import numpy\ndef draw(): print(numpy.random.rand())")
        return {(await sandbox.python("import helper; helper.draw()")).stdout for _ in range(4)}

    assert len(in_sandbox(each, by_a_module_of_its_own)) == 4
