"""Hundreds of runs, hostile and cancelled ones among them, and the supervisor killed: nothing is wrong, nothing is left.

The full number is `agentrl sandbox bench local --soak 10000`; its figures are in benchmarks/README.md.
"""

from __future__ import annotations

import asyncio

import pytest

from agentrl.sandbox import IsolationError
from agentrl.tools.sandboxes.probes import Backend
from agentrl.tools.sandboxes.soak import PROGRAMS, Soak, soak
from tests.support.isolation import missing


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_small_soak() -> None:
    hostile = 2 * len(PROGRAMS)
    try:
        found = asyncio.run(soak(Backend(name="local"), 600, hostile=hostile, cancelled=10, slots=4))
    except IsolationError as error:
        missing(str(error))
    assert found.wrong == ()
    assert found.left == ()
    assert found.runs == 600
    assert hostile - 4 <= sum(found.hostile.values()) <= hostile  # those that were lost with the supervisor did not end
    assert found.supervisor.startswith("process ")
    assert 0 <= found.lost <= 4
    assert found.growth <= 1.2
    assert found.ok


def a_soak(**changes: object) -> Soak:
    common = {
        "runs": 20, "wrong": (), "hostile": {"ok": 1}, "lost": 0, "supervisor": "process 7, after 10 runs", "seconds": 1.0,
        "cpu": 0.01, "memory": (100, 100, 100, 100), "left": (),
    }  # fmt: skip
    return Soak(**{**common, **changes})  # type: ignore[arg-type]


def test_what_a_soak_fails_for() -> None:
    assert a_soak().ok
    assert a_soak(memory=(500, 100, 110, 120)).ok  # the first sample, before all is warm, does not count
    assert not a_soak(memory=(100, 100, 110, 121)).ok
    assert not a_soak(wrong=("error, exit code 1",)).ok
    assert not a_soak(left=("process 12",)).ok
