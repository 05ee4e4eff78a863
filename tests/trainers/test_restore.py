"""Going back: the newest checkpoint that is what was written, what is said of the others, and disks that are full."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from agentrl.errors import Damaged
from agentrl.trainers.checkpoint import Checkpoints, checksums, exported_step
from agentrl.trainers.masters import MasterAdamW
from agentrl.trainers.restore import restore
from agentrl.whole_write import WriteError
from tests.support.disk import full_after


def saved(folder: Path, *steps: int) -> Checkpoints:
    store = Checkpoints(folder, keep=9)
    for step in steps:
        store.save(lambda place, step=step: (place / "a.bin").write_text(f"{step}" * 100), {"step": step})  # type: ignore[misc]
    return store


def restored(folder: Path) -> tuple[int | None, list[str], list[str]]:
    """(step, what was loaded, what was said)."""
    loaded: list[str] = []
    said: list[str] = []
    found = restore(folder, lambda place: loaded.append(place.name), said.append)
    return None if found is None else found.step, loaded, said


def test_a_file_is_known_by_its_length_and_checksum(tmp_path: Path) -> None:
    saved(tmp_path, 3)
    assert checksums(tmp_path / "step-000003")["a.bin"] == [100, zlib.crc32(b"3" * 100)]


def test_the_one_that_latest_names_is_loaded_and_nothing_is_said(tmp_path: Path) -> None:
    assert restored(tmp_path) == (None, [], [])
    saved(tmp_path, 1, 2, 10)
    assert restored(tmp_path) == (10, ["step-000010"], [])


def test_each_damaged_one_is_said_and_only_a_whole_one_is_loaded(tmp_path: Path) -> None:
    saved(tmp_path, 1, 2, 10)
    (tmp_path / "step-000010" / "a.bin").write_text("10" * 99 + "1O")
    (tmp_path / "step-000002" / "a.bin").write_text("2" * 99)
    step, loaded, said = restored(tmp_path)
    assert (step, loaded) == (1, ["step-000001"])
    assert "step-000010 is damaged: the checksum of a.bin does not match; going on from step-000001" in said[0]
    assert "step-000002 is damaged: a.bin has 99 bytes of 100; going on from step-000001" in said[1]


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: (folder / "latest").write_text("step-00"),
        lambda folder: (folder / "latest").write_bytes(b"\xff\xfe"),
        lambda folder: (folder / "step-000002" / "state.json").unlink(),
        lambda folder: (folder / "step-000002" / "state.json").write_text("[]"),
        lambda folder: (folder / "step-000002" / "state.json").write_text('{"step": 2}'),
    ],
    ids=["a torn pointer", "no text", "no state", "another state", "no list of files"],
)
def test_damage_to_what_names_them_is_survived(tmp_path: Path, damage: Callable[[Path], Any]) -> None:
    saved(tmp_path, 1, 2)
    damage(tmp_path)
    step, _, said = restored(tmp_path)
    assert step in (1, 2)
    assert len(said) == 1


def test_if_none_is_left_all_are_named(tmp_path: Path) -> None:
    saved(tmp_path, 1, 2)
    for step in (1, 2):
        (tmp_path / f"step-00000{step}" / "a.bin").unlink()
    with pytest.raises(Damaged, match=r"step-000002 is damaged: a.bin is missing; .*step-000001 is .*; no other checkpoint"):
        restored(tmp_path)


def test_what_fails_to_load_is_no_damage(tmp_path: Path) -> None:
    """A checkpoint of another model would else be passed over in silence, for an older one of the same."""

    def refuses(_: Path) -> None:
        raise ValueError("of another model")

    saved(tmp_path, 1, 2)
    with pytest.raises(ValueError, match="of another model"):
        restore(tmp_path, refuses, print)


def test_an_export_says_after_how_many_steps_it_was_made(tmp_path: Path) -> None:
    store = Checkpoints(tmp_path, keep=1)
    folder = store.export("best", lambda place: None, {"step": 7})
    assert exported_step(folder) == 7
    assert exported_step(tmp_path) is None
    (tmp_path / "state.json").write_text('{"epoch": 3}')  # somebody else's
    assert exported_step(tmp_path) is None


@pytest.mark.parametrize("room", [100, 3000], ids=["masters.safetensors", "optimizer.pt"])
def test_a_disk_that_is_full_is_a_write_error_whichever_library_writes(tmp_path: Path, room: int) -> None:
    parameter = nn.Parameter(torch.ones(16, 32))  # 2 KiB, and two moments of as much
    optimizer = MasterAdamW({"w": parameter}, dtype=torch.float32, betas=(0.9, 0.95), weight_decay=0.0, max_grad_norm=0.0)
    parameter.grad = torch.ones_like(parameter)
    optimizer.step(0.1)
    store = Checkpoints(tmp_path, keep=1)
    with full_after(room), pytest.raises(WriteError, match=r"step-000001 cannot be written: File too large; raise the limit"):
        store.save(optimizer.save, {"step": 1})
    assert store.latest() is None
    assert store.save(optimizer.save, {"step": 1}).step == 1


def test_a_fault_of_the_writer_is_not_taken_for_one_of_the_disk(tmp_path: Path) -> None:
    def wrong(folder: Path) -> None:
        save_file({"a": "no tensor"}, folder / "a.safetensors")  # type: ignore[dict-item]

    with pytest.raises(Exception, match="Tensor") as caught:
        Checkpoints(tmp_path, keep=1).save(wrong, {"step": 1})
    assert not isinstance(caught.value, OSError)
