"""Hostile code at every level of isolation, as this user and as one without rights: the probes of `agentrl sandbox check`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentrl.tools.sandboxes import process
from agentrl.tools.sandboxes.probes import PROBES, SLOTS, SPEC, Backend, Outcome, Probe, Target, try_one
from agentrl.tools.sandboxes.probes.bait import Bait

from .conftest import LEVELS, Background, Local, pick

ROOT = Path(__file__).parents[3]
WITHOUT_PROC = {"processes of the host, by /proc", "environments and arguments of all processes"}
"""With Landlock alone there is no /proc inside, and so nothing to look for in it."""


@pytest.fixture(scope="module")
def targets(pools: dict[str, Local | str], background: Background) -> Iterator[dict[str, Target]]:
    """One for each level that this machine has."""
    made: dict[str, Target] = {}
    with Bait() as bait:
        for name, found in pools.items():
            if isinstance(found, Local):
                level, use_cgroup = LEVELS[name]
                backend = Backend(name="local", options={"level": level, "use_cgroup": use_cgroup})
                pool = background.run(backend.open(SPEC, SLOTS))
                made[name] = Target(backend=backend, spec=SPEC, pool=pool, bait=bait)
                background.run(made[name].look_around())
        yield made
        for target in made.values():
            background.run(target.pool.aclose())


LEVEL = [
    "namespace+cgroup",
    pytest.param("namespace", marks=pytest.mark.slow),
    pytest.param("landlock", marks=pytest.mark.slow),
]


@pytest.mark.parametrize("level", LEVEL)
@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: f"{probe.group}: {probe.name}")
def test_probe_passes(
    level: str, pools: dict[str, Local | str], targets: dict[str, Target], probe: Probe, background: Background
) -> None:
    pick(pools, level)
    found = background.run(try_one(targets[level], probe), timeout=280)
    if level == "landlock" and probe.name in WITHOUT_PROC:
        assert (found.outcome, found.reason) == (Outcome.NOT_APPLICABLE, "no /proc inside")
    elif level == "landlock" and probe.name == "its user on the host" and _root_without_a_change_of_user():
        assert (found.outcome, found.reason) == (Outcome.FAILED, "it runs as root of this machine")  # as it must say
    else:
        assert found.outcome is Outcome.PASSED, found


def _root_without_a_change_of_user() -> bool:
    """Without namespaces, root keeps its uid (and no right of it) where the interpreter lies in a folder of root alone."""
    return os.getuid() == 0 and not process._reachable(sys.executable)


@pytest.mark.slow
@pytest.mark.parametrize("level", ["namespace", "landlock"])
def test_attacks_as_a_user_without_rights(level: str) -> None:
    """All of them again in a process of another uid, with an interpreter that it can reach."""
    if os.getuid() == 0:
        prefix = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "/usr/bin/python3"]
        if shutil.which("setpriv") is None or not _can_run(prefix):
            pytest.skip("no Python 3.11 that another user could run")
    else:
        pytest.skip("this user is one without rights already: test_probe_passes has done it")
    with tempfile.TemporaryDirectory(prefix="agentrl-copy-", dir="/var/tmp") as copy:
        for name in ("agentrl", "tools", "pyproject.toml", "README.md"):
            _copy(ROOT / name, Path(copy, name))
        _copy(ROOT / "tests/tools/sandboxes/unprivileged.py", Path(copy, "unprivileged.py"))
        subprocess.run(["chmod", "-R", "a+rX", copy], check=True)
        done = subprocess.run([*prefix, "-B", "unprivileged.py", level], cwd=copy, capture_output=True, text=True, timeout=280)
    if done.returncode == 77:
        pytest.skip(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"none failed at {level}" in done.stdout
    left_out = {line.split(": ")[1] for line in done.stdout.splitlines() if "not applicable" in line}
    assert left_out == (WITHOUT_PROC if level == "landlock" else set())


def _can_run(prefix: list[str]) -> bool:
    probe = "import sys; sys.exit(sys.version_info < (3, 11))"
    return subprocess.run([*prefix, "-c", probe], capture_output=True).returncode == 0


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    elif source.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)
