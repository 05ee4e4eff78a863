"""Every worked example in the docstrings of the bundled tools is right."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import agentrl.tools

MODULES = sorted(info.name for info in pkgutil.iter_modules(agentrl.tools.__path__) if not info.ispkg)


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings(name: str) -> None:
    assert doctest.testmod(importlib.import_module(f"agentrl.tools.{name}")).failed == 0


def test_there_are_modules_to_look_at() -> None:
    assert {"calculator", "python", "sql"} <= set(MODULES)
