"""What tests of sandboxes do on a machine that cannot isolate: skip, but fail where nothing may go untested."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def missing(reason: str) -> NoReturn:
    """Skips the test; fails it when CI=true: a green build must mean that the isolation was tested."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"isolation is missing, and CI=true says that it must be there: {reason}", pytrace=False)
    pytest.skip(reason)
