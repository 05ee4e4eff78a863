"""A run's folder: names, the lock, metrics that survive a torn write, and how a run is found again."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import pytest

from agentrl import rundir
from agentrl.compose import compose
from agentrl.errors import Damaged, UsageError
from agentrl.run_files import append_metrics, cut_metrics, read_metrics
from agentrl.rundir import RunDir, create, default_name, find
from tests.support.disk import full_after

NOON = datetime(2027, 1, 2, 12, 0, 0)


def test_a_new_run_holds_its_config_with_the_origin_of_each_value(tmp_path: Path) -> None:
    resolved = compose([f"out={tmp_path}", "run=try", "trainer=rloo", "trainer.lr=1e-4"])
    run = create(resolved)
    assert run.path == tmp_path / "try"
    assert compose(file=run.config, complete=True).config == resolved.config
    assert run.read_origins()["trainer.lr"] == "override: trainer.lr=1e-4"
    assert run.read_origins()["trainer.advantage"] == "configs/trainer/rloo.yaml"
    assert run.read_origins()["seed"] == "default"
    assert [p.name for p in tmp_path.iterdir()] == ["try"]  # nothing is left beside it


def test_a_name_that_is_taken_is_refused_and_the_old_run_is_untouched(tmp_path: Path) -> None:
    first = create(compose([f"out={tmp_path}", "run=try", "seed=1"]))
    with pytest.raises(UsageError, match=r"'try' exists already.*resume=try"):
        create(compose([f"out={tmp_path}", "run=try", "seed=2"]))
    assert compose(file=first.config, complete=True).config.seed == 1
    assert [p.name for p in tmp_path.iterdir()] == ["try"]


def test_derived_names_never_collide(tmp_path: Path) -> None:
    resolved = compose([f"out={tmp_path}", "env=guess_number", "model=tiny"])
    made = [create(resolved, now=NOON).name for _ in range(3)]
    base = "guess_number-tiny-20270102-120000"
    assert made == [base, f"{base}-2", f"{base}-3"]


@pytest.mark.parametrize(
    ("env", "model", "expected"),
    [
        ("code_sandbox", "smollm2-135m", "code_sandbox-smollm2-135m"),
        ("a/b.py:My Env", "/models/x y/", "My-Env-x-y"),
        ("pkg.mod:E", "owner/name", "E-name"),
    ],
)
def test_default_names_are_plain_file_names(env: str, model: str, expected: str) -> None:
    assert default_name(env, model, NOON) == f"{expected}-20270102-120000"


def test_a_run_is_found_by_name_folder_or_anything_in_it(tmp_path: Path) -> None:
    run = create(compose([f"out={tmp_path}", "run=try"]))
    run.checkpoints.mkdir()
    for name in ("try", str(run.path), str(run.checkpoints / "best"), str(run.config)):
        assert find(name, str(tmp_path)).path == run.path
    with pytest.raises(UsageError, match=rf"no run 'tri'; looked in {tmp_path} \(out={tmp_path}\): did you mean 'try'"):
        find("tri", str(tmp_path))
    with pytest.raises(UsageError, match=rf"there is no run 'try'; looked in {tmp_path / 'none'} .*: there is none in it"):
        find("try", str(tmp_path / "none"))


def test_only_one_process_may_hold_a_run_and_the_other_is_told_who_does(tmp_path: Path) -> None:
    run = create(compose([f"out={tmp_path}", "run=try"]))
    program = f"""
import sys
from pathlib import Path
from agentrl.rundir import RunDir
with RunDir(path=Path({str(run.path)!r})).locked():
    print("held", flush=True)
    sys.stdin.read()
"""
    holder = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    try:
        with pytest.raises(UsageError, match=f"being trained by process {holder.pid} on"), run.locked():
            pass
    finally:
        holder.kill()  # however it ends, the kernel gives the lock back
        holder.wait()
    with run.locked():
        pass


def test_metrics_are_appended_and_a_torn_last_line_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    assert read_metrics(file) == []
    for step in (1, 2, 3):
        append_metrics(file, {"step": step, "reward": step / 2})
    whole = file.read_bytes()
    last = whole.rindex(b'{"step": 3')
    for length in range(last, len(whole) - 1):  # killed at any byte of the last write
        file.write_bytes(whole[:length])
        assert [row["step"] for row in read_metrics(file)] == [1, 2]
    cut_metrics(file, 2)
    append_metrics(file, {"step": 3})
    assert [json.loads(line)["step"] for line in file.read_text().splitlines()] == [1, 2, 3]


def test_a_row_that_a_full_disk_cuts_is_not_there_at_all(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    append_metrics(file, {"step": 1})
    with full_after(file.stat().st_size + 5), pytest.raises(OSError, match="File too large"):
        append_metrics(file, {"step": 2, "reward": 0.5})
    append_metrics(file, {"step": 2})
    assert file.read_text() == '{"step": 1}\n{"step": 2}\n'


def test_metrics_after_the_step_that_is_gone_on_from_are_cut(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    cut_metrics(file, 2)
    assert not file.exists()
    for step in (1, 2, 3, 4):
        append_metrics(file, {"step": step})
    cut_metrics(file, 2)
    assert [row["step"] for row in read_metrics(file)] == [1, 2]


def test_damage_in_the_middle_is_an_error_that_names_the_line(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    file.write_text('{"step": 1}\n{"st\n{"step": 3}\n')
    with pytest.raises(Damaged, match=r"metrics.jsonl, line 2: no row of metrics"):
        read_metrics(file)


def test_names_lists_runs_only(tmp_path: Path) -> None:
    create(compose([f"out={tmp_path}", "run=a"]))
    (tmp_path / "no_run").mkdir()
    assert rundir.names(str(tmp_path)) == ["a"]
    assert RunDir(path=tmp_path / "a").name == "a"
