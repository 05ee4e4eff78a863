"""The disk limit of all files together, at every level; and the part of it that is not the kernel's."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import pytest

from agentrl.sandbox import Exec, SandboxSpec, Status
from agentrl.tools.sandboxes.local import LocalPool, LocalSandbox
from agentrl.tools.sandboxes.zygote import folder, watch

from .conftest import SPEC, Local, pick
from .looking import eventually, in_sandbox

SIZE = "import os; print(sum(os.lstat(f).st_blocks * 512 for f in os.listdir('.')))"


def test_short_jobs_do_not_pass_the_limit_together(each: Local) -> None:
    """Each is over before anyone could have looked, and writes less than the limit."""

    async def work(sandbox: LocalSandbox) -> tuple[list[Exec], Exec]:
        ended = [await sandbox.python(f"open('f{i}', 'wb').write(bytes(40 << 20))") for i in range(4)]
        return ended, await sandbox.python(SIZE)

    ended, size = in_sandbox(each, work)
    assert [done.ok for done in ended] == [True, False, False, False]
    assert int(size.stdout) <= SPEC.disk_bytes
    assert int(size.stdout) >= 24 << 20  # what fits stays


def test_files_written_from_outside_do_not_either(each: Local) -> None:
    async def work(sandbox: LocalSandbox) -> Exec:
        await sandbox.write("small", b"1")
        await sandbox.write("f0", bytes(40 << 20))
        for i in (1, 2, 3):
            with pytest.raises(OSError, match=f"f{i}"):
                await sandbox.write(f"f{i}", bytes(40 << 20))
        assert await sandbox.read("small") == b"1"
        return await sandbox.python(SIZE)

    assert int(in_sandbox(each, work).stdout) <= SPEC.disk_bytes


HIDDEN = {
    "below a folder that cannot be listed": "os.mkdir('d', 0o300); os.chdir('d')",
    "deep": "for _ in range(150): os.mkdir('d'); os.chdir('d')",
    "deeper than paths can say": "for _ in range(60): os.mkdir('d' * 100); os.chdir('d' * 100)",
}


@pytest.mark.parametrize("way", HIDDEN)
def test_files_cannot_be_hidden_from_the_limit(each: Local, way: str) -> None:
    code = f"""
import os, time
{HIDDEN[way]}
for i in range(4):
    with open(f"f{{i}}", "wb") as file: file.write(bytes(40 << 20))
time.sleep(20)
"""

    async def work(sandbox: LocalSandbox) -> list[Exec]:
        return [await sandbox.python(code), await sandbox.python("open('f', 'wb').write(bytes(20 << 20)); print('room')")]

    hidden, after = in_sandbox(each, work)
    assert hidden.status in (Status.KILLED, Status.ERROR), hidden
    if each.pool.isolation == "landlock":
        assert hidden.status is Status.KILLED
        assert after.stdout == "room\n"


def test_the_level_says_what_the_kernel_does_not_hold(pools: dict[str, Any]) -> None:
    found = {name: local.pool.watched for name, local in pools.items() if isinstance(local, Local)}
    expected = {"namespace+cgroup": (), "namespace": ("memory",), "landlock": ("memory", "processes", "disk")}
    assert found == {name: expected[name] for name in found}


def test_a_slot_that_nobody_takes_is_emptied_all_the_same(background: Any, pools: dict[str, Any]) -> None:
    pick(pools, "landlock")

    async def main() -> None:
        async with await LocalPool.open(SandboxSpec(), 1, level="landlock") as pool:
            home = Path(pool._zygote._scratch, "0", "work")  # type: ignore[union-attr]
            async with await pool.acquire() as sandbox:
                await sandbox.write("left", b"1")
                assert os.listdir(home) == ["left"]
            await eventually(lambda: os.listdir(home) == [])

    background.run(main())


def tree(top: Path, depth: int) -> Path:
    deepest = top.joinpath(*["d"] * depth)
    deepest.mkdir(parents=True)
    return deepest


def test_disk_bytes_counts_entries_and_does_not_follow_links(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/usr")
    (tmp_path / "sub").mkdir()
    for i in range(10):
        (tmp_path / "sub" / str(i)).touch()
    assert watch.disk_bytes(str(tmp_path)) == 12 * 4096
    (tmp_path / "big").write_bytes(bytes(range(256)) * 4096)
    assert 12 * 4096 + (1 << 20) <= watch.disk_bytes(str(tmp_path)) < 12 * 4096 + (1 << 21)
    assert watch.disk_bytes(str(tmp_path / "link")) == 0  # it has become a link since it was listed


def test_disk_bytes_stops_at_enough_and_gives_up_on_what_is_too_deep(tmp_path: Path) -> None:
    for i in range(100):
        (tmp_path / str(i)).touch()
    assert watch.disk_bytes(str(tmp_path), 5 * 4096) == 6 * 4096
    tree(tmp_path / "fine", watch.DEEPEST - 2)
    assert watch.disk_bytes(str(tmp_path)) == (100 + watch.DEEPEST - 1) * 4096
    tree(tmp_path / "deep", watch.DEEPEST)
    assert watch.disk_bytes(str(tmp_path)) == math.inf


def test_shrink_takes_the_largest_files_first(tmp_path: Path) -> None:
    for name, size in {"a/small": 100, "a/large": 3 << 20, "larger": 4 << 20, "middle": 1 << 20}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(os.urandom(size))
    assert folder.shrink(str(tmp_path), 2 << 20)
    assert folder.snapshot(str(tmp_path)) == {"a", "a/small", "middle"}
    assert folder.shrink(str(tmp_path), 2 << 20)
    assert not folder.shrink(str(tmp_path), 100)  # the folder alone is more
    tree(tmp_path, 200)
    assert not folder.shrink(str(tmp_path), 1 << 30)
