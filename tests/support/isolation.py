"""What tests of sandboxes do on a machine that cannot isolate: skip, but fail where nothing may go untested."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest

MAY_BE_ABSENT = {
    "landlock": "it is a matter of the kernel; what seccomp adds to it is tested everywhere (test_seccomp.py)",
    "namespace+cgroup": "groups may not be ours to make; making them, and the count of kills, is tested on files everywhere "
    "(test_parts.py, test_local_memory.py)",
}
"""Levels of isolation whose tests are skipped where the machine has them not, in CI as well, and why that is right."""


def missing(reason: str) -> NoReturn:
    """Skips the test; fails it when CI=true: a green build must mean that the isolation was tested."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"isolation is missing, and CI=true says that it must be there: {reason}", pytrace=False)
    pytest.skip(reason)


def absent(level: str, reason: str) -> NoReturn:
    """As `missing`, for one level."""
    if level in MAY_BE_ABSENT:
        pytest.skip(f"no {level} here: {reason}")
    missing(reason)
