"""Opening a local pool: mistakes, other systems, levels that are not to be had, and starts that hang."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agentrl.errors import UsageError
from agentrl.sandbox import IsolationError, SandboxSpec
from agentrl.tools.sandboxes import cgroup, process
from agentrl.tools.sandboxes.local import LocalPool

from .conftest import pick
from .looking import ROOT, alive, traces


@pytest.mark.parametrize(
    ("spec", "slots", "error", "match"),
    [
        (SandboxSpec(isolation="namspace"), 1, UsageError, "did you mean 'namespace'"),
        (SandboxSpec(timeout=0), 1, UsageError, "above 0"),
        (SandboxSpec(pids=0), 1, UsageError, "pids must be at least 1"),
        (SandboxSpec(memory="x"), 1, ValueError, "is no size"),
        (SandboxSpec(), 0, UsageError, "slots must be at least 1"),
    ],
)
def test_mistakes_are_named(spec: SandboxSpec, slots: int, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        asyncio.run(LocalPool.open(spec, slots))


ELSEWHERE = """
import asyncio, importlib, os, subprocess, sys, sysconfig
sysconfig.get_config_vars()  # it looks for a file of this system once
from agentrl.sandbox import IsolationError, SandboxSpec
for name in ("fcntl", "resource", "pwd", "grp"): sys.modules[name] = None  # there are none on Windows
for name in ("sysconf", "fork", "getuid", "pidfd_open", "memfd_create"): delattr(os, name)
sys.platform = sys.argv[1]
for module, name in [word.split(":") for word in sys.argv[2:]]:
    pool = getattr(importlib.import_module("agentrl.tools.sandboxes." + module), name)
    try: asyncio.run(pool.open(SandboxSpec(), 1))
    except IsolationError as error: print(error)
    else: print("opened", name)
"""


@pytest.mark.parametrize(
    ("platform", "refused", "named"),
    [
        (
            "darwin",
            {"local:LocalPool": "Linux, and this is macOS"},
            ("sandbox=docker", "sandbox=wasm", "sandbox=remote", "unsafe_local"),
        ),
        (
            "win32",
            {
                "local:LocalPool": "Linux, and this is Windows",
                "docker:DockerPool": "Linux or macOS, and this is Windows",
                "wasm:WasmPool": "Linux or macOS, and this is Windows",
                "unsafe_local:UnsafeLocalPool": "Linux or macOS, and this is Windows",
            },
            ("sandbox=remote", "WSL 2"),
        ),
    ],
)
def test_on_other_systems_each_backend_says_which_work_there(
    platform: str, refused: dict[str, str], named: tuple[str, ...]
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ELSEWHERE, platform, *refused], capture_output=True, text=True, cwd=ROOT, check=False
    )
    lines = done.stdout.splitlines()
    assert len(lines) == len(refused), done.stderr
    for (module, wanted), line in zip(refused.items(), lines, strict=True):
        assert line.startswith(f"sandbox={module.partition(':')[0]} needs {wanted}; here: ")
        assert all(name in line for name in named)


def hanging(pid_file: Path, answer: str) -> str:
    """A zygote that says `answer`, or nothing, and then neither serves nor ends."""
    return (
        f"import os, socket, sys, time; open({str(pid_file)!r}, 'w').write(str(os.getpid())); "
        f"link = socket.socket(fileno=int(sys.argv[2])); link.recv(1 << 20); {answer!r} and link.send({answer!r}.encode()); "
        "time.sleep(100)"
    )


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ("", "it gave no sign of life within 0.5 s"),
        ('{"ready": true, "problems": []}', "it gave no sign of life within 0.5 s"),  # but its slots never come
        ('{"error": "not so"}', "not so"),
    ],
)
def test_a_start_that_hangs_is_given_up_and_its_process_killed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, answer: str, text: str
) -> None:
    monkeypatch.setattr(process, "START_TIMEOUT", 0.5)
    monkeypatch.setattr(process, "STOP_TIMEOUT", 0.2)  # it does not end by itself either
    monkeypatch.setattr(process, "PROGRAM", hanging(tmp_path / "pid", answer))
    before = traces()
    with pytest.raises(IsolationError, match=text):
        asyncio.run(LocalPool.open(SandboxSpec(isolation="namespace"), 1))
    assert alive({int((tmp_path / "pid").read_text())}) == []
    assert traces() == before


def test_less_than_asked_for_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: Any, **__: Any) -> None:
        raise cgroup.NoCgroup("not today")

    monkeypatch.setattr(cgroup, "make", none)
    with pytest.raises(IsolationError, match=r"'namespace\+cgroup'(.|\n)*not today(.|\n)*unsafe_local"):
        asyncio.run(LocalPool.open(SandboxSpec(isolation="namespace+cgroup"), 1))


def test_a_level_that_does_not_work_falls_to_the_next_or_is_refused(monkeypatch: pytest.MonkeyPatch, pools: Any) -> None:
    pick(pools, "landlock")

    async def main(isolation: str) -> str:
        async with await LocalPool.open(SandboxSpec(isolation=isolation), 1) as pool:
            return pool.isolation

    monkeypatch.setattr("agentrl.tools.sandboxes.process.Settings", _broken_namespace)
    assert asyncio.run(main("auto")) == "landlock"
    with pytest.raises(IsolationError, match=r"namespace: .*mount"):
        asyncio.run(main("namespace"))


def _broken_namespace(**fields: Any) -> Any:
    """Settings whose namespace level cannot work: the kernel refuses such a file system."""
    from agentrl.tools.sandboxes.zygote.settings import Settings

    if fields["level"] == "namespace":
        fields["disk"] = -1
    return Settings(**fields)
