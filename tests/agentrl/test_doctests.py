"""Every worked example in the docstrings of agentrl/ is right."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
from pathlib import Path

import pytest

import agentrl

ROOT = Path(agentrl.__file__).parent
MODULES = sorted(f"agentrl.{info.name}" for info in pkgutil.iter_modules([str(ROOT)]) if info.name != "__main__")


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_there_are_examples():
    finder = doctest.DocTestFinder(exclude_empty=True)
    count = sum(bool(test.examples) for name in MODULES for test in finder.find(importlib.import_module(name)))
    assert count >= 20
