"""The doctor: finds what is wrong with a machine without raising, and says what to do."""

from __future__ import annotations

import http.server
import threading
from pathlib import Path
from typing import Any

import pytest

from agentrl import doctor
from agentrl.commands.doctor import lines
from agentrl.doctor import Check, Level
from agentrl.sandbox import IsolationError


def test_a_look_around_names_everything_and_never_raises(tmp_path: Path) -> None:
    checks = doctor.examine(str(tmp_path / "runs"), online=False)
    names = [check.name for check in checks]
    for name in ("cpu", "memory", "python", "packages", "gpu", "sandbox", "model=smollm2-135m", "open files", "runs"):
        assert name in names
    assert all(check.advice for check in checks if check.level is not Level.OK and check.name not in ("hub", "package index"))
    assert not (tmp_path / "runs").exists()  # it changes nothing


def test_a_machine_without_isolation_is_not_ready_and_the_reason_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse() -> tuple[str, str]:
        raise IsolationError("no user namespaces, and the kernel is older than landlock")

    monkeypatch.setattr(doctor, "_try_sandbox", refuse)
    (check,) = doctor.sandbox()
    assert (check.level, check.text) == (Level.BAD, "no user namespaces, and the kernel is older than landlock")
    assert "unsafe_local" in check.advice
    assert lines([check])[-1] == "not ready: sandbox"


@pytest.mark.parametrize(
    ("isolation", "printed", "level"),
    [
        ("namespace+cgroup", "42\n", Level.OK),
        ("landlock", "42\n", Level.NOTE),
        ("namespace", "", Level.BAD),
    ],
)
def test_a_sandbox_is_judged_by_its_isolation_and_by_what_runs_in_it(
    monkeypatch: pytest.MonkeyPatch, isolation: str, printed: str, level: Level
) -> None:
    async def answer() -> tuple[str, str]:
        return isolation, printed

    monkeypatch.setattr(doctor, "_try_sandbox", answer)
    (check,) = doctor.sandbox()
    assert check.level is level
    assert isolation in check.text


def test_a_missing_package_is_bad_and_comes_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "NEEDED", ("numpy", "surely-not-installed"))
    missing = next(check for check in doctor.packages() if check.name == "surely-not-installed")
    assert (missing.level, missing.advice) == (Level.BAD, "pip install surely-not-installed")


def test_no_model_and_no_source_is_bad_and_offline_with_a_model_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "reachable", lambda url: "no route")
    monkeypatch.setattr(doctor.models, "cached", dict)
    assert [check.name for check in doctor.model_sources(online=True) if check.level is Level.BAD] == ["models"]
    monkeypatch.setattr(doctor.models, "cached", lambda: {"smollm2-135m": Path("/cache/smollm2")})
    checks = list(doctor.model_sources(online=True))
    assert not [check for check in checks if check.level is Level.BAD]
    assert any("in the cache: /cache/smollm2" in check.text for check in checks)


def test_a_server_that_answers_anything_is_reachable() -> None:
    class Refuses(http.server.BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.send_error(404)

        def log_message(self, *_: Any) -> None:
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Refuses)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}/"
    assert doctor.reachable(url) == ""
    server.shutdown()
    server.server_close()
    assert doctor.reachable(url) != ""
    assert doctor.reachable("no url") != ""


def test_a_full_or_unwritable_disk_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "DISK_NEEDED", 1 << 60)
    assert [check.level for check in doctor.disk(str(tmp_path))] == [Level.NOTE, Level.NOTE]
    monkeypatch.setattr(doctor.os, "access", lambda *_: False)
    check = next(iter(doctor.disk(str(tmp_path / "deep" / "er"))))
    assert (check.level, "cannot be written to" in check.text) == (Level.BAD, True)


def test_lines_put_the_advice_below_and_a_verdict_at_the_end() -> None:
    good = Check(name="a", level=Level.OK, text="fine")
    note = Check(name="long name", level=Level.NOTE, text="slow", advice="buy a faster one")
    assert lines([good, note]) == [
        "ok    a          fine",
        "note  long name  slow",
        "                 -> buy a faster one",
        "",
        "ready: agentrl train env=code_sandbox",
    ]
