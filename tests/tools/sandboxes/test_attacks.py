"""Hostile code at every level of isolation, as this user and as one without rights."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from .attacks import ATTACKS, Bait, answer
from .conftest import Local

ROOT = Path(__file__).parents[3]
DAEMON = b"agentrl-daemon"


@pytest.fixture(scope="module")
def bait() -> Iterator[Bait]:
    with Bait() as made:
        yield made


@pytest.mark.parametrize("name", ATTACKS)
def test_attack_is_stopped(each: Local, bait: Bait, name: str) -> None:
    attack = ATTACKS[name]
    done = each.python(bait.head() + attack.code, timeout=attack.timeout)
    assert attack.stopped(answer(done), done), (answer(done), done)
    assert daemons() == []
    after = each.python("print(1 + 1)")
    assert after.stdout == "2\n", after


def daemons() -> list[int]:
    """Marked processes that live; they get a moment to be gone."""
    for _ in range(50):
        found = [int(path.parent.name) for path in Path("/proc").glob("[0-9]*/comm") if _comm(path) == DAEMON]
        if not found:
            return []
        time.sleep(0.02)
    return found


def _comm(path: Path) -> bytes:
    try:
        return path.read_bytes().strip()
    except OSError:
        return b""


def test_the_bait_would_be_found(bait: Bait) -> None:
    """Outside a sandbox the same code gets at it, so an empty answer means something."""
    for name in ("host files", "secrets in the environment", "network", "answers in site-packages"):
        code = bait.head() + ATTACKS[name].code
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout.strip() != "[]", name


@pytest.mark.slow
@pytest.mark.parametrize("level", ["namespace", "landlock"])
def test_attacks_as_a_user_without_rights(level: str) -> None:
    """The whole table again in a process of another uid, with an interpreter that it can reach."""
    if os.getuid() == 0:
        prefix = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "/usr/bin/python3"]
        if shutil.which("setpriv") is None or not _can_run(prefix):
            pytest.skip("no Python 3.11 that another user could run")
    else:
        pytest.skip("this user is one without rights already: test_attack_is_stopped has done it")
    with tempfile.TemporaryDirectory(prefix="agentrl-copy-", dir="/var/tmp") as copy:
        for name in ("agentrl", "tools", "pyproject.toml", "README.md"):
            _copy(ROOT / name, Path(copy, name))
        _copy(ROOT / "tests/tools/sandboxes/attacks.py", Path(copy, "attacks.py"))
        _copy(ROOT / "tests/tools/sandboxes/unprivileged.py", Path(copy, "unprivileged.py"))
        subprocess.run(["chmod", "-R", "a+rX", copy], check=True)
        done = subprocess.run([*prefix, "-B", "unprivileged.py", level], cwd=copy, capture_output=True, text=True, timeout=250)
    if done.returncode == 77:
        pytest.skip(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all stopped" in done.stdout


def _can_run(prefix: list[str]) -> bool:
    probe = "import sys; sys.exit(sys.version_info < (3, 11))"
    return subprocess.run([*prefix, "-c", probe], capture_output=True).returncode == 0


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    elif source.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)
