"""The lease stands in for a sandbox: it must offer all that the protocol does, in the same form."""

import inspect

import pytest

from agentrl.rollout.lease import Leased
from agentrl.sandbox import Sandbox

METHODS = [name for name, _ in inspect.getmembers(Sandbox, inspect.isfunction) if not name.startswith("_")]


@pytest.mark.parametrize("name", METHODS)
def test_a_lease_has_every_method_of_a_sandbox(name: str) -> None:
    assert inspect.signature(getattr(Leased, name)).parameters == inspect.signature(getattr(Sandbox, name)).parameters


def test_the_protocol_is_not_empty() -> None:
    assert {"run", "python", "run_many", "call_many", "write", "read", "alive", "aclose"} <= set(METHODS)
