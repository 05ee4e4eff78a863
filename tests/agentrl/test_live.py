"""What a person sees of a step: columns that say something, and what went wrong in it."""

from __future__ import annotations

import io
import threading
from pathlib import Path
from typing import Any

import pytest

from agentrl.live import LiveWatch, PlainWatch, cells_of
from agentrl.trackers import TensorBoard
from agentrl.whole_write import WriteError
from tests.support.disk import full_after

STEP: dict[str, Any] = {"step": 2, "reward": 0.25, "episodes": 8, "turns": 16, "truncated": 0, "optimizer_steps": 1.0}


def plain(**row: Any) -> str:
    stream = io.StringIO()
    shown = PlainWatch(stream)
    shown.begin("a run", steps=3)
    shown.step({**STEP, **row})
    return stream.getvalue().splitlines()[1]


def table(*rows: dict[str, Any]) -> str:
    import rich.console

    stream = io.StringIO()
    shown = LiveWatch(rich.console.Console(file=stream, force_terminal=True, width=140, color_system=None))
    shown.begin("a run", steps=3)
    for row in rows:
        shown.step({**STEP, **row})
    shown.close()
    return stream.getvalue()


def test_answers_that_were_cut_or_could_not_be_read_are_shown_of_all_answers() -> None:
    cells = cells_of({**STEP, "answers_cut": 3, "parse_errors": 5.0})
    assert (cells["answers cut"], cells["unreadable"]) == ("3/16", "5/16")
    assert "  answers cut 3/16  unreadable 5/16  " in plain(answers_cut=3, parse_errors=5.0)
    shown = table({"answers_cut": 3, "parse_errors": 5})
    assert all(part in shown for part in ("answers cut", "3/16", "unreadable", "5/16"))


def test_what_never_happened_has_no_column() -> None:
    assert "answers cut" not in plain(answers_cut=0)
    shown = table({"answers_cut": 0, "aborted": 0})
    assert "reward" in shown
    assert not any(name in shown for name in ("answers cut", "unreadable", "aborted", "sandbox"))


def test_a_step_from_which_nothing_was_learnt_says_so() -> None:
    assert "  no group differed  " in plain(optimizer_steps=0.0)
    assert "no group differed" in table({"optimizer_steps": 0.0})
    assert "no group differed" not in plain() + table({})
    assert "no group differed" not in plain(optimizer_steps=None)  # a row that was made again from episodes


def test_a_full_disk_fails_tensorboard_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its own thread writes, and Python would print that thread's traceback."""
    hook = threading.excepthook
    board = TensorBoard(tmp_path)
    with full_after(10), pytest.raises(WriteError, match=f"{tmp_path} cannot be written: File too large"):
        board.log({"step": 1, "reward": 0.5})
    board.close()
    assert capsys.readouterr().err == ""
    assert threading.excepthook is hook
