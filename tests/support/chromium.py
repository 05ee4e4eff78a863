"""Chromium for tests: one that is not there is skipped, but fails where nothing may go untested."""

from __future__ import annotations

import os
import shutil

import pytest

from agentrl.tools.browser_process import PROGRAMS


def needed() -> None:
    """Skips the test without Chromium; fails it when CI=true."""
    if any(map(shutil.which, PROGRAMS)):
        return
    if os.environ.get("CI") == "true":
        pytest.fail("CI must test the browser: apt-get install chromium", pytrace=False)
    pytest.skip("no Chromium")
