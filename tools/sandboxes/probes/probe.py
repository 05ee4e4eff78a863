"""What a probe is and what it says. A probe is one attempt to get out of a sandbox, or one thing that a sandbox must do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .target import Target

Check = Callable[["Target"], Awaitable["str | None"]]
"""Gives a note for the report, or None. Raises Broken, NotApplicable."""

FEATURES = {
    "ctypes": "no ctypes inside: system calls cannot be made by number",
    "fork": "no processes can be made inside",
    "threads": "no threads can be started inside",
    "signals": "no signals inside",
    "sockets": "no socket module inside",
    "mmap": "no mmap inside",
    "proc": "no /proc inside",
    "programs": "no programs can be run inside",
    "descriptors": "descriptors cannot be duplicated inside",
}
"""What a probe may need to be tried at all, and why it cannot apply where that is missing."""


class Broken(Exception):
    """The sandbox did not hold; the text says what was got."""


class NotApplicable(Exception):
    """The probe says nothing about this backend; the text says why."""


class Outcome(StrEnum):
    PASSED = "passed"
    FAILED = "FAILED"
    NOT_APPLICABLE = "not applicable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """One row of the report."""

    group: str
    name: str
    check: Check
    needs: tuple[str, ...] = ()
    """Of FEATURES."""
    seen: bool = False
    """The verdict needs the host to see the sandbox's processes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What one probe found.

    >>> Finding(group="network", name="TCP to the host", outcome=Outcome.FAILED, reason="a connection came", seconds=0.2).ok
    False
    """

    group: str
    name: str
    outcome: Outcome
    reason: str
    """Why it failed or cannot apply; of one that passed, what was measured."""
    seconds: float

    @property
    def ok(self) -> bool:
        return self.outcome is not Outcome.FAILED


class Group:
    """Collects the probes of one file, in their order: `@group("name")` above a check."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.probes: list[Probe] = []

    def __call__(self, name: str, *needs: str, seen: bool = False) -> Callable[[Check], Check]:
        assert set(needs) <= FEATURES.keys(), needs

        def add(check: Check) -> Check:
            self.probes.append(Probe(group=self.name, name=name, check=check, needs=needs, seen=seen))
            return check

        return add


def require(holds: bool, otherwise: str) -> None:
    """Raises Broken."""
    if not holds:
        raise Broken(otherwise)
