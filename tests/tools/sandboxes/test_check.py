"""`agentrl sandbox check`: the report, backends of other kinds, and that the probes catch what they are there to catch.

That `local` passes all of them is test_attacks.py's matter.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentrl.cli import main
from agentrl.commands.sandbox_options import parse_options
from agentrl.errors import UsageError
from agentrl.sandbox import Exec, SandboxError, SandboxSpec, Status
from agentrl.tools.sandboxes import server
from agentrl.tools.sandboxes.probes import PROBES, SPEC, Backend, Finding, Outcome, Probe, Target, check, chosen, try_one
from agentrl.tools.sandboxes.probes.bait import Bait
from agentrl.tools.sandboxes.probes.probe import Broken, Group, NotApplicable
from agentrl.tools.sandboxes.probes.secrets import SCAN
from agentrl.tools.sandboxes.probes.target import answer
from agentrl.tools.sandboxes.scripted import ScriptedPool

from .conftest import Background, Local

GROUPS = ["processes", "resources", "output", "files", "network", "secrets", "graders", "time", "lifecycle"]
PEER = """
import asyncio, subprocess, sys
from agentrl.sandbox import Exec, Status
class Pool:
    isolation = "none"
    @classmethod
    async def open(cls, spec, slots): return cls()
    async def acquire(self): return Box()
    async def aclose(self): pass
class Box:
    async def python(self, code, *, stdin="", timeout=None):
        command = [sys.executable, "-c", code]
        done = await asyncio.to_thread(subprocess.run, command, capture_output=True, input=stdin.encode())
        status = Status.ERROR if done.returncode else Status.OK
        return Exec(status=status, exit_code=done.returncode, stdout=done.stdout.decode(errors="replace"))
    async def read(self, *given, **named): raise NotImplementedError("it is only a tool")
    write = run = run_many = call_many = read
    async def alive(self): return True
    async def aclose(self): pass
"""


def found(capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, Any]]:
    return {finding["name"]: finding for finding in json.loads(capsys.readouterr().out)["findings"]}


def test_there_are_at_least_sixty_in_nine_groups() -> None:
    assert list(dict.fromkeys(probe.group for probe in PROBES)) == GROUPS
    assert len(PROBES) >= 60
    assert min(Counter(probe.group for probe in PROBES).values()) >= 8
    assert len({probe.name for probe in PROBES}) == len(PROBES)


def test_a_choice_of_groups_and_names() -> None:
    assert chosen([]) == PROBES
    assert {probe.group for probe in chosen(["network,time"])} == {"network", "time"}
    assert [probe.name for probe in chosen(["100 MB on stdout, without a line break"])] == [
        "100 MB on stdout, without a line break"
    ]
    with pytest.raises(UsageError, match="did you mean 'network'"):
        chosen(["netwrk"])


def test_list_runs_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sandbox", "check", "local", "--list", "--only", "network"]) == 0
    assert "network    TCP to the host\n" in capsys.readouterr().out


@pytest.mark.slow
def test_without_a_sandbox_the_bait_is_reached(capsys: pytest.CaptureFixture[str]) -> None:
    """So that a pass means something. It also shows the exit code."""
    with pytest.warns(RuntimeWarning):
        assert main(["sandbox", "check", "unsafe_local", "--only", "network,secrets,files", "--json"]) == 1
    findings = found(capsys)
    failed = {name for name, finding in findings.items() if finding["outcome"] == "FAILED"}
    assert {
        "TCP to the host", "UDP to the host", "unix socket of the host, by path", "unix socket of the host, without a path",
        "files of the host", "changing a file of the host", "modes, times and owners of the host's files",
        "environments and arguments of all processes", "a search of all files", "a server that the host can reach",
        "what the last one left",
    } <= failed  # fmt: skip
    assert findings["TCP to the host"]["reason"] == "the host got what it sent by TCP"
    assert findings["its own files are kept from run to run"]["outcome"] == "passed"


@pytest.mark.slow
def test_without_a_sandbox_processes_are_reached_and_left(capsys: pytest.CaptureFixture[str]) -> None:
    names = ["daemon", "signals to others", "its parent", "fork bomb", "shared memory of the host"]
    options = [word for name in names for word in ("--only", name)]
    with pytest.warns(RuntimeWarning):
        assert main(["sandbox", "check", "unsafe_local", "--json", *options]) == 1
    findings = found(capsys)
    assert {name: finding["outcome"] for name, finding in findings.items()} == dict.fromkeys(names, "FAILED")
    assert findings["daemon"]["reason"] == "1 of its processes lived on"
    assert findings["signals to others"]["reason"] == "a process of the host: it got a signal"
    assert str(os.getpid()) in findings["its parent"]["reason"]


def test_a_backend_of_ones_own_and_its_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "peer.py").write_text(PEER)
    page = tmp_path / "report.html"
    names = ["TCP to the host", "paths that leave the folder", "bytes that are no text", "honest and wrong answers"]
    options = [word for name in names for word in ("--only", name)]
    assert main(["sandbox", "check", f"{tmp_path}/peer.py:Pool", *options, "--html", str(page)]) == 1
    out = capsys.readouterr().out
    assert "the host got what it sent by TCP" in out
    assert "the backend does not offer it: it is only a tool" in out
    assert "1 of 2 passed, 1 FAILED, 2 do not apply" in out
    assert "TCP to the host" in page.read_text()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["local", "--only", "nonsense"], "no group or probe 'nonsense'"),
        (["locl"], "did you mean 'local'"),
        (["local", "--memory", "much"], "--memory: 'much' is no size"),
        (["local", "--disk", "0"], "--disk must be above 0"),
        (["local", "--option", "level"], "no KEY=VALUE"),
        (["local", "--jsn"], "did you mean '--json'"),
    ],
)
def test_mistakes_are_named(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sandbox", "check", *arguments]) == 2
    assert words in capsys.readouterr().err


def test_actions_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sandbox"]) == 0
    assert "check" in capsys.readouterr().out
    assert main(["sandbox", "chek"]) == 2
    assert "did you mean 'check'" in capsys.readouterr().err


def test_options_are_as_python_writes_them() -> None:
    given = ["runtime=runsc", "warm=4", "use_cgroup=False", "url=http://a:1/?b=c", "cpus=1.5"]
    assert parse_options(given) == {"runtime": "runsc", "warm": 4, "use_cgroup": False, "url": "http://a:1/?b=c", "cpus": 1.5}


def test_a_backend_that_runs_nothing_is_no_report() -> None:
    backend = Backend(name="scripted", options={"answers": lambda request: Exec(status=Status.ERROR, stderr="no")})
    with pytest.raises(SandboxError, match="does not run a harmless program"):
        asyncio.run(check(backend))


def one(probe_check: Callable[[Target], Any], *needs: str, seen: bool = False, answers: Any = None) -> Finding:
    """What becomes of a check on a backend that answers 2 to everything."""

    async def work() -> Finding:
        pool = ScriptedPool(answers or (lambda request: Exec(status=Status.OK, stdout="2\n")))
        with Bait() as bait:
            target = Target(backend=Backend(name="scripted"), spec=SPEC, pool=pool, bait=bait)
            return await try_one(target, Probe(group="g", name="n", check=probe_check, needs=needs, seen=seen))

    return asyncio.run(work())


def test_what_a_check_says_becomes_a_finding() -> None:
    async def passes(target: Target) -> str:
        return "a note"

    async def breaks(target: Target) -> None:
        raise Broken("it got out")

    async def cannot(target: Target) -> None:
        raise NotApplicable("no such thing")

    async def is_not_offered(target: Target) -> None:
        raise NotImplementedError("no files")

    async def fails(target: Target) -> None:
        raise RecursionError("of the backend")

    told = [one(each) for each in (passes, breaks, cannot, is_not_offered, fails)]
    assert [(finding.outcome, finding.reason) for finding in told] == [
        (Outcome.PASSED, "a note"),
        (Outcome.FAILED, "it got out"),
        (Outcome.NOT_APPLICABLE, "no such thing"),
        (Outcome.NOT_APPLICABLE, "the backend does not offer it: no files"),
        (Outcome.FAILED, "RecursionError: of the backend"),
    ]
    assert [finding.ok for finding in told] == [True, False, True, True, False]


def test_what_is_missing_inside_is_never_a_pass() -> None:
    async def passes(target: Target) -> None:
        return None

    assert one(passes, "fork").reason == "no processes can be made inside"
    unseen = one(passes, seen=True)
    assert unseen.outcome is Outcome.NOT_APPLICABLE
    assert "cannot be seen" in unseen.reason


def test_a_backend_that_no_longer_works_afterwards_has_failed() -> None:
    async def passes(target: Target) -> None:
        return None

    spoiled = one(passes, answers=lambda request: Exec(status=Status.ERROR, exit_code=9))
    assert spoiled.outcome is Outcome.FAILED
    assert "afterwards a harmless program ended so: error, exit code 9" in spoiled.reason


def test_a_group_collects_in_order() -> None:
    group = Group("g")

    @group("first", "fork")
    async def first(target: Target) -> None: ...

    @group("second", seen=True)
    async def second(target: Target) -> None: ...

    assert [(probe.group, probe.name, probe.needs, probe.seen) for probe in group.probes] == [
        ("g", "first", ("fork",), False),
        ("g", "second", (), True),
    ]


def test_an_answer_is_found_in_other_text() -> None:
    assert answer("Code execution result: <agentrl>[1]</agentrl>\n<agentrl>[2, 3]</agentrl> done.") == [2, 3]
    assert answer('<agentrl>"a"</agentrl> <agentrl>{broken</agentrl>') == "a"
    assert answer("nothing") is None


def test_the_bait_notices() -> None:
    with Bait() as bait:
        assert bait.harm() == []
        bait.file.write_text("harm")
        (bait.folder / "new").touch()
        assert any("content is 'harm'" in line for line in bait.harm())
        assert bait.harm() == []  # it was put right
        assert sorted(path.name for path in bait.folder.iterdir()) == [bait.file.name, "socket"]
        os.chmod(bait.file, 0o777)
        assert any("mode" in line for line in bait.harm())
        bait.file.unlink()
        assert bait.harm() != []
        assert [name for name in bait.sockets if bait.reached(name)] == []
        socket.create_connection(("127.0.0.1", bait.port("TCP"))).close()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.sendto(b"x", ("127.0.0.1", bait.port("UDP")))
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(bait.abstract_name)
        assert [name for name in bait.sockets if bait.reached(name)] == ["TCP", "UDP", "abstract socket"]
        assert [name for name in bait.sockets if bait.reached(name)] == []
        assert bait.signals() == []
        bait.victim.send_signal(signal.SIGURG)
        end = time.monotonic() + 20
        while not (told := bait.signals()) and time.monotonic() < end:
            time.sleep(0.01)
        assert told == ["it got a signal"]
        bait.victim.kill()
        bait.victim.wait()
        assert bait.signals() == ["it was ended"]
        folder = bait.folder
    assert not folder.exists()
    assert bait.variable not in os.environ


@pytest.mark.parametrize("way", ["by_map() if", "by_guess() if"])
def test_the_search_of_memory_finds_what_is_there(best: Local, way: str) -> None:
    """In both ways; one has no map of its memory to go by."""
    scan = SCAN.replace("by_map() if", way)

    async def work(held: str) -> Any:
        with Bait() as bait:
            target = Target(backend=Backend(name="local"), spec=SPEC, pool=best.pool, bait=bait)
            told, done = await target.attack(f"{held}\n{scan}", SECRET=("SECRET-abcd", "0123456789ab"))
            assert told is not None, done
            return told

    assert best.run(work("held = SECRET[0] + SECRET[1]")) == ["memory"]
    assert best.run(work("held = None")) == []


@pytest.mark.slow
def test_webassembly_passes_what_applies() -> None:
    pytest.importorskip("wasmtime", reason="the extra 'wasm' is not installed")
    probes = chosen(["files,lifecycle"])
    isolation, findings = asyncio.run(check(Backend(name="wasm"), probes))
    assert isolation == "wasm"
    assert [finding for finding in findings if not finding.ok] == []
    count = Counter(finding.outcome for finding in findings)
    assert count[Outcome.PASSED] >= 20
    assert all(finding.reason for finding in findings if finding.outcome is Outcome.NOT_APPLICABLE)


@pytest.mark.slow
def test_a_server_passes(best: Local, background: Background) -> None:
    """One whose sandboxes are the local ones; all of its own is the way there."""
    from aiohttp import web

    async def work() -> list[Finding]:
        runner = web.AppRunner(server.Server(best.pool, backend="local", slots=3).app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = site._server.sockets[0].getsockname()[1]  # type: ignore[union-attr]
        try:
            backend = Backend(name="remote", options={"url": f"http://127.0.0.1:{port}"})
            _, findings = await check(backend, chosen(["processes,output,files,time"]))
            return findings
        finally:
            await runner.cleanup()

    findings = background.run(work(), timeout=280)
    assert [finding for finding in findings if finding.outcome is not Outcome.PASSED] == []


def test_a_spec_of_the_check_can_be_held_to() -> None:
    assert SandboxSpec(memory=SPEC.memory).memory_bytes <= 256 << 20  # a probe goes to a few times of it
