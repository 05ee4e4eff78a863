"""The small parts: queue, records, folders, memory files, groups, the view of the interpreter."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import sysconfig
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from agentrl.tools.sandboxes import cgroup, interpreter, memfd, process
from agentrl.tools.sandboxes.fifo import Fifo
from agentrl.tools.sandboxes.zygote import folder, watch, wire
from agentrl.tools.sandboxes.zygote.settings import Settings


def test_fifo_hands_over_in_order_and_loses_nothing_to_a_cancellation() -> None:
    async def main() -> list[Any]:
        fifo: Fifo[str] = Fifo()
        first, second = asyncio.ensure_future(fifo.get()), asyncio.ensure_future(fifo.get())
        await asyncio.sleep(0)
        fifo.put("a")  # for the first, which is cancelled before it wakes
        first.cancel()
        got = await second
        assert first.cancelled() or first.done()
        fifo.put("b")
        return [got, await fifo.get()]

    assert asyncio.run(main()) == ["a", "b"]


def test_fifo_late_comers_queue() -> None:
    async def main() -> list[str]:
        fifo: Fifo[int] = Fifo()
        order: list[str] = []

        async def take(name: str) -> None:
            await fifo.get()
            order.append(name)

        waiting = asyncio.ensure_future(take("waiting"))
        await asyncio.sleep(0)
        fifo.put(1)
        late = asyncio.ensure_future(take("late"))
        fifo.put(2)
        await asyncio.gather(waiting, late)
        return order

    assert asyncio.run(main()) == ["waiting", "late"]


def test_fifo_clear_wakes_all() -> None:
    async def main() -> list[Any]:
        fifo: Fifo[int] = Fifo()
        fifo.put(1)
        await fifo.get()
        waiting = [asyncio.ensure_future(fifo.get()) for _ in range(2)]
        await asyncio.sleep(0)
        fifo.clear()
        return await asyncio.gather(*waiting)

    assert asyncio.run(main()) == [None, None]


def test_records_stop_at_what_is_no_record() -> None:
    good = wire.RECORD.pack(wire.VALUE, 2) + b"12" + wire.RECORD.pack(wire.RAISED, 0)
    assert wire.records(good) == [(b"V", b"12"), (b"E", b"")]
    for tail in (b"", b"V", wire.RECORD.pack(b"?", 0), wire.RECORD.pack(wire.VALUE, 5) + b"1234", bytes(100), b"\xff" * 50):
        assert wire.records(good + tail) == [(b"V", b"12"), (b"E", b"")]


def test_empty_removes_all_but_what_is_kept(tmp_path: Path) -> None:
    for path in ("a/b/c.txt", "a/d.txt", "e/f.txt", "mount/g.txt"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("1")
    before = folder.snapshot(str(tmp_path), {"mount"})
    assert before == {"a", "a/b", "a/b/c.txt", "a/d.txt", "e", "e/f.txt"}
    (tmp_path / "a/new").mkdir()
    (tmp_path / "a/b/new.txt").write_text("2")
    (tmp_path / "top").symlink_to("/usr")
    folder.empty(str(tmp_path), before, {"mount"})
    assert folder.snapshot(str(tmp_path)) == {*before, "mount", "mount/g.txt"}
    folder.empty(str(tmp_path), untouched={"mount"})
    assert os.listdir(tmp_path) == ["mount"]
    assert Path("/usr/bin").exists()


def test_empty_takes_trees_deeper_than_paths_and_recursion_can_go(tmp_path: Path) -> None:
    home = os.open(".", os.O_RDONLY)
    try:
        os.chdir(tmp_path)
        for depth in range(1200):
            os.mkdir("x" * 50)
            if depth % 50 == 7:
                Path("file").touch()
                os.makedirs(".moved1/y")
            os.chdir("x" * 50)
    finally:
        os.fchdir(home)
        os.close(home)
    folder.empty(str(tmp_path))
    assert os.listdir(tmp_path) == []


def test_descendants_and_usage_of_real_processes() -> None:
    assert watch.descendants(1, lambda: {2: 1, 3: 2, 4: 3, 9: 8, 5: 1}) == [2, 5, 3, 4]
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, "{} {}".format(*watch.own_size()).encode())  # of the child: a fork of a large process holds less
        held = b"x" * (40 << 20)
        signal.pause()
        os._exit(len(held))
    try:
        size, resident = map(int, os.read(reader, 100).split())
        for _ in range(3000):  # a starved machine takes its time
            used = watch.usage([child, 2**22 + 1], size, resident)
            if used.memory > 39 << 20:
                break
            time.sleep(0.01)
        assert 38 << 20 < used.memory < 60 << 20
        assert child in watch.descendants(os.getpid())
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)


def flood(fd: int) -> None:
    while True:
        os.write(fd, b"y" * 1000)


@pytest.mark.parametrize("limit", [0, 1, 4095, 4096, 65536])
def test_an_output_file_takes_its_limit_and_refuses_a_flood(limit: int) -> None:
    fd = memfd.taking(limit)
    try:
        assert memfd.written(fd) == b""
        if limit:
            os.write(fd, b"x" * limit)
            assert memfd.written(fd) == b"x" * limit
        with pytest.raises(PermissionError):
            flood(fd)
        assert limit < len(memfd.written(fd)) <= limit + 2 * memfd.PAGE
        with pytest.raises(PermissionError):
            os.ftruncate(fd, 0)
    finally:
        os.close(fd)


def test_the_interpreter_is_seen_and_other_packages_are_not() -> None:
    seen = interpreter.view(["numpy", "no_such_package"])
    site = os.path.realpath(sysconfig.get_paths()["purelib"])
    assert seen.missing == ("no_such_package",)
    if sys.prefix == sys.base_prefix:  # in a virtual environment the folder is not visible in the first place
        assert site in seen.masked
    base_site = os.path.join(os.path.realpath(sys.base_prefix), "lib", f"python3.{sys.version_info.minor}", "site-packages")
    if os.path.isdir(base_site):
        assert base_site in seen.masked
    assert all(os.path.basename(path).startswith("numpy") for path in seen.packages)
    project = str(Path(__file__).parents[3])
    assert project not in seen.readable
    assert not any(project == path or project.startswith(path + "/") for path in seen.readable)


def test_settings_survive_json() -> None:
    settings = Settings(
        level="namespace", slots=1, memory=1, pids=2, disk=3, cpu=4.5, network=False, env={"A": "é"},
        readable=("/bin",), masked=(), packages=("/x",), import_path=("/y",), preload=("json",), host=3,
        links=((4, 5, -1), (6, 7, 8)), open_below=40,
    )  # fmt: skip
    assert Settings.from_json(settings.to_json()) == settings


def fake_v2(top: Path, own: str, handed: dict[str, str]) -> Path:
    """A version 2 tree in a folder: `handed` says what each group hands down. Gives a /proc/self."""
    for path, controllers in handed.items():
        group = top / path
        group.mkdir(parents=True, exist_ok=True)
        (group / "cgroup.subtree_control").write_text(controllers)
    proc = top.parent / "proc"
    proc.mkdir()
    (proc / "cgroup").write_text(f"0::/{own}\n")
    (proc / "mountinfo").write_text(f"30 20 0:26 / {top} rw,nosuid - cgroup2 cgroup2 rw\n")
    return proc


def test_version_2_goes_up_to_where_the_controllers_are_handed_down(tmp_path: Path) -> None:
    tree = tmp_path / "cgroup"
    handed = {"": "cpu memory pids", "user": "memory pids", "user/session": "cpu", "user/session/leaf": ""}
    proc = fake_v2(tree, "user/session/leaf", handed)
    made = cgroup.make(2, 1 << 20, 5, proc=str(proc))
    assert made.version == "v2"
    assert made.folders[0].parent == tree / "user"
    group = made.folders[0] / "1"
    assert (group / "memory.max").read_text() == str((1 << 20) + cgroup.OVERHEAD)
    assert (group / "memory.swap.max").read_text() == "0"
    assert (group / "pids.max").read_text() == "6"
    assert made.slots[1].procs == (str(group / "cgroup.procs"),)
    assert made.slots[1].oom == str(group / "memory.events")


def test_version_2_without_the_controllers_says_so(tmp_path: Path) -> None:
    proc = fake_v2(tmp_path / "cgroup", "a", {"": "hugetlb", "a": ""})
    with pytest.raises(cgroup.NoCgroup, match="hands memory and pids down"):
        cgroup.make(1, 1, 1, proc=str(proc))


def test_version_1_uses_both_hierarchies(tmp_path: Path) -> None:
    proc = tmp_path / "proc"
    proc.mkdir()
    (tmp_path / "memory/job").mkdir(parents=True)
    (tmp_path / "pids/job").mkdir(parents=True)
    (proc / "cgroup").write_text("8:pids:/outer/job\n4:memory:/outer/job\n0::/\n")
    names = ("memory", "pids")
    lines = [f"3{i} 20 0:2{i} /outer {tmp_path}/{name} rw - cgroup cgroup rw,{name}" for i, name in enumerate(names)]
    (proc / "mountinfo").write_text("\n".join(lines) + "\n")
    made = cgroup.make(1, 1 << 20, 5, proc=str(proc))
    assert made.version == "v1"
    assert [path.parent for path in made.folders] == [tmp_path / "memory/job", tmp_path / "pids/job"]
    assert (made.folders[0] / "0/memory.limit_in_bytes").read_text() == str((1 << 20) + cgroup.OVERHEAD)
    assert (made.folders[1] / "0/pids.max").read_text() == "6"


def test_left_overs_are_those_of_processes_that_are_gone() -> None:
    own = f"agentrl-{cgroup.process_tag()}-0"
    assert not cgroup.is_left_over(own)
    pid, start = cgroup.process_tag().split("-")
    assert cgroup.is_left_over(f"agentrl-{pid}-{int(start) - 1}-0")  # the pid was used again
    assert cgroup.is_left_over(f"agentrl-{2**22 + 1}-5-0")
    for other in ("agentrl", "agentrl-x-1-0", "something-1-2-3", f"agentrl-{pid}"):
        assert not cgroup.is_left_over(other)


def test_what_hostile_code_left_behind_keeps_no_run_from_starting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = tmp_path / f"agentrl-{2**22 + 1}-5-0"
    left.mkdir()
    at = os.open(left, os.O_RDONLY)
    for _ in range(3000):  # deeper than Python's recursion and than the longest path
        os.mkdir("d", dir_fd=at)
        at, above = os.open("d", os.O_RDONLY, dir_fd=at), at
        os.close(above)
    os.close(at)
    monkeypatch.setattr(process.os, "access", lambda *_: False)
    monkeypatch.setattr(process.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(process.tempfile, "mkdtemp", lambda **_: str(tmp_path / "made"))
    (tmp_path / "made").mkdir()
    process._make_scratch(1)
    assert os.listdir(tmp_path) == ["made"]


def test_restore_undoes_what_an_owner_can_do_to_a_folder() -> None:
    """In memory, where extended attributes can be set."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as path:
        os.chmod(path, 0)
        os.utime(path, (5, 5))
        with contextlib.suppress(OSError):  # an old kernel has none there
            os.setxattr(path, "user.left", b"1")
        folder.restore(path, 0o1777)
        state = os.stat(path)
        assert (state.st_mode & 0o7777, state.st_atime, state.st_mtime, os.listxattr(path)) == (0o1777, 0, 0, [])
