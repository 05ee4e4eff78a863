"""Kills for want of memory belong to the run they happened in, whatever else ends it, and to no other."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from typing import Any, cast

import pytest

from agentrl.sandbox import Exec, Status
from agentrl.tools.sandboxes.local import LocalSandbox
from agentrl.tools.sandboxes.zygote.slot import Links, Slot
from agentrl.tools.sandboxes.zygote.wire import Reason

from .conftest import Local, pick
from .looking import in_sandbox

EATER = """
import os, sys
if (child := os.fork()) == 0:
    held = []
    while True: held.append(b"x" * (8 << 20))
os.waitpid(child, 0)
"""


@pytest.fixture
def counting(pools: dict[str, Any]) -> Local:
    """The level whose group counts kills; elsewhere there are none, for memory is watched."""
    return pick(pools, "namespace+cgroup")


def test_a_deadline_after_a_kill_for_want_of_memory_is_memory_and_the_next_run_is_not(counting: Local) -> None:
    async def work(sandbox: LocalSandbox) -> list[Exec]:
        hung = await sandbox.python(EATER + "while True: pass", timeout=4)
        return [hung, await sandbox.python("import os; os._exit(1)"), await sandbox.python("print(1)")]

    hung, failed, fine = in_sandbox(counting, work)
    assert hung.status is Status.MEMORY, hung
    assert (failed.status, failed.exit_code) == (Status.ERROR, 1)
    assert fine.ok


def test_a_program_that_gets_over_a_killed_child_is_fine_and_so_is_the_next(counting: Local) -> None:
    async def work(sandbox: LocalSandbox) -> list[Exec]:
        return [await sandbox.python(EATER + "print('over it')"), await sandbox.python("import os; os._exit(1)")]

    survived, failed = in_sandbox(counting, work)
    assert (survived.status, survived.stdout) == (Status.OK, "over it\n")
    assert failed.status is Status.ERROR


class Counted:
    """A slot whose group has seen so many kills."""

    def __init__(self) -> None:
        self.file = tempfile.TemporaryFile()  # noqa: SIM115  # closed with the fixture
        unused: Any = None
        self.slot = Slot(
            links=Links(line=unused, host=-1, oom=self.file.fileno()), cage=cast(Any, self), epoch=1, ground="/nowhere",
            kept=frozenset(), reseed=unused, open_below=9, kill_all=unused, others=unused,
        )  # fmt: skip

    cpu, in_namespace = 10.0, True  # as far as its cage is asked

    def kills(self, count: int) -> None:
        self.file.seek(0)
        os.write(self.file.fileno(), f"oom_kill_disable 0\nunder_oom 0\noom_kill {count}\n".encode())


@pytest.fixture
def counted() -> Iterator[Counted]:
    made = Counted()
    yield made
    made.file.close()


KILLED, FAILED, FINE = 9, 1 << 8, 0  # wait statuses


@pytest.mark.parametrize(
    ("reason", "status", "expected"),
    [
        (Reason.EXIT, KILLED, Reason.MEMORY),
        (Reason.EXIT, FAILED, Reason.MEMORY),  # its child was killed, and it said so
        (Reason.EXIT, FINE, Reason.EXIT),
        (Reason.DEADLINE, KILLED, Reason.MEMORY),
        (Reason.CPU, KILLED, Reason.MEMORY),
        (Reason.DEADLINE, FINE, Reason.EXIT),  # it ended just before we would have ended it
        (Reason.KILLED, KILLED, Reason.KILLED),  # the host asked for it
    ],
)
def test_why_a_job_with_a_kill_ended(counted: Counted, reason: Reason, status: int, expected: Reason) -> None:
    counted.kills(1)
    assert counted.slot._why(reason, status, 0.1) is expected
    assert counted.slot._why(Reason.EXIT, FAILED, 0.1) is Reason.EXIT  # the next job has none
    assert counted.slot._why(Reason.DEADLINE, KILLED, 0.1) is Reason.DEADLINE
    counted.kills(2)
    assert counted.slot._why(Reason.DEADLINE, KILLED, 0.1) is Reason.MEMORY
