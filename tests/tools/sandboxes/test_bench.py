"""`agentrl sandbox bench`: what is measured, and that a wrong result is no figure."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest

from agentrl.cli import main
from agentrl.sandbox import Call, Exec, SandboxSpec, Status
from agentrl.tools.sandboxes import bench
from agentrl.tools.sandboxes.probes import Backend
from agentrl.tools.sandboxes.scripted import Answer, Request, ScriptedPool

TWO = Exec(status=Status.OK, stdout="2\n")


def right(request: Request) -> Answer:
    return Call(status=Status.OK, value=request.arguments[0] + 1) if request.kind == "call" else TWO


def rows(answers: Any, parallel: Sequence[int] = (1, 3)) -> list[bench.Row]:
    async def work() -> list[bench.Row]:
        backend = Backend(name="scripted", options={"answers": answers})
        return [row async for row in bench.bench(backend, SandboxSpec(), parallel=parallel, seconds=0.05)]

    return asyncio.run(work())


def test_each_thing_is_measured_at_each_number() -> None:
    found = rows(right)
    plain = [(row.name, row.parallel) for row in found if row.name.startswith("subprocess")]
    assert plain == [(f"subprocess.run: {what}", at) for what in ("print(1 + 1)", "import numpy") for at in (1, 3)]
    names = ["print(1 + 1), sandbox kept", "print(1 + 1)", "import numpy", "run_many, 20 programs"]
    names += ["call_many, 10 tests of a function", "call_many, 100 tests of a function"]
    assert [(row.name, row.parallel) for row in found[4:]] == [(name, at) for at in (1, 3) for name in names]
    for row in found:
        assert row.rate > 0
        assert 0 < row.p50 <= row.p99
        assert row.cpu >= 0
    one, hundred = (next(row for row in found if row.name.startswith(name)) for name in ("print", "call_many, 100"))
    assert hundred.cpu < one.cpu + 1  # of one test, not of the call that makes a hundred


def test_plain_interpreters_are_the_measure() -> None:
    plain = next(row for row in rows(right, parallel=[1]) if row.name == "subprocess.run: print(1 + 1)")
    assert 0.3 < plain.of_plain < 3.0  # of itself
    assert plain.cpu > 1.0


def test_a_wrong_result_is_no_figure() -> None:
    with pytest.raises(bench.Wrong, match="3"):
        rows(lambda request: Exec(status=Status.OK, stdout="3\n") if request.kind == "python" else right(request))
    with pytest.raises(bench.Wrong, match="adds 1"):
        rows(lambda request: Call(status=Status.OK, value=0) if request.kind == "call" else TWO)


def test_without_numpy_inside_that_row_is_left_out() -> None:
    found = rows(lambda request: Exec(status=Status.ERROR) if "numpy" in request.code else right(request), parallel=[1])
    assert "import numpy" not in [row.name for row in found]
    assert len(found) == 7


def test_what_a_backend_does_not_offer_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def only_python(request: Request) -> Answer:
        return TWO if request.kind == "python" else NotImplementedError()

    assert [row.name for row in rows(only_python, parallel=[1]) if row.name.startswith("call")] == []


def test_cpu_time_of_children_counts() -> None:
    before = bench.cpu_seconds()
    asyncio.run(bench._plain("sum(range(2_000_000))"))
    assert 0.01 < bench.cpu_seconds() - before < 60


def test_the_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(ScriptedPool, "answer", lambda self, request: right(request))
    assert main(["sandbox", "bench", "scripted", "--parallel", "1", "--seconds", "0.02", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["backend"] == "scripted"
    assert {"name", "parallel", "cpu", "of_plain", "p50", "p99", "rate"} == told["rows"][0].keys()
    assert main(["sandbox", "bench", "scripted", "--parallel", "1", "--seconds", "0.02"]) == 0
    assert "call_many, 100 tests of a function" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--parallel", "1,x"], "must be whole numbers, as in 1,8,64"),
        (["--parallel", "0"], "at least 1"),
        (["--soak", "0"], "--soak 0 must be at least 1"),
        (["--memory", "lots"], "--memory: 'lots' is no size"),
        (["--option", "x"], "no KEY=VALUE"),
        (["--secondss", "1"], "did you mean '--seconds'"),
    ],
)
def test_mistakes_are_named(options: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sandbox", "bench", "scripted", *options]) == 2
    assert words in capsys.readouterr().err
