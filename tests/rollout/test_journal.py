from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import pytest

from agentrl.rollout.journal import Journal, JournalError, read
from tests.support.disk import full_after

RECORDS: list[dict[str, Any]] = [{"a": 1}, {"text": 'line\nbreak "}'}, {"list": [1.5, None]}]


def opened(path: Path) -> tuple[Journal, list[dict[str, Any]]]:
    seen: list[dict[str, Any]] = []
    return Journal(path, lambda _, record: seen.append(record)), seen


def written(path: Path) -> list[int]:
    journal, _ = opened(path)
    offsets = [journal.append(record) for record in RECORDS]
    journal.close()
    return offsets


def test_a_line_is_plain_json_with_the_checksum_of_its_record(tmp_path: Path) -> None:
    written(tmp_path / "j")
    first = (tmp_path / "j").read_text().splitlines()[0]
    checksum = zlib.crc32(b'{"a":1}')
    assert json.loads(first) == {"crc32": f"{checksum:08x}", "record": {"a": 1}}


def test_offsets_lead_back_to_records(tmp_path: Path) -> None:
    offsets = written(tmp_path / "j")
    journal, seen = opened(tmp_path / "j")
    assert seen == RECORDS
    assert [journal.at(offset) for offset in offsets] == RECORDS


def test_cut_at_any_byte_it_keeps_the_whole_lines_and_goes_on(tmp_path: Path) -> None:
    ends = [*written(tmp_path / "j")[1:], (tmp_path / "j").stat().st_size]
    data = (tmp_path / "j").read_bytes()
    for size in range(len(data) + 1):
        path = tmp_path / "cut"
        path.write_bytes(data[:size])
        journal, seen = opened(path)
        whole = sum(end <= size for end in ends)
        assert seen == RECORDS[:whole]
        journal.append({"more": size})
        journal.close()
        assert [record for _, record, _ in read(path)] == [*RECORDS[:whole], {"more": size}]


@pytest.mark.parametrize("line", [1, 2, 3])
def test_any_other_damage_is_an_error_that_names_the_line(tmp_path: Path, line: int) -> None:
    offsets = written(tmp_path / "j")
    data = bytearray((tmp_path / "j").read_bytes())
    data[offsets[line - 1] + 32] ^= 1  # in the record
    (tmp_path / "j").write_bytes(data)
    with pytest.raises(JournalError, match=rf"j, line {line}: damaged"):
        opened(tmp_path / "j")


def test_damage_after_opening_is_found_when_read(tmp_path: Path) -> None:
    offsets = written(tmp_path / "j")
    journal, _ = opened(tmp_path / "j")
    data = (tmp_path / "j").read_bytes()
    (tmp_path / "j").write_bytes(data.replace(b'"a":1', b'"a":2'))
    with pytest.raises(JournalError, match="byte 0"):
        journal.at(offsets[0])


def test_what_json_cannot_say_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    journal, _ = opened(tmp_path / "j")
    with pytest.raises(ValueError, match="JSON"):
        journal.append({"nan": float("nan")})
    assert (tmp_path / "j").stat().st_size == 0


def test_a_full_disk_leaves_whole_lines_and_later_ones_follow_them(tmp_path: Path) -> None:
    journal, _ = opened(tmp_path / "j")
    journal.append(RECORDS[0])
    with full_after((tmp_path / "j").stat().st_size + 20), pytest.raises(OSError, match="File too large"):
        journal.append({"text": "x" * 100})
    second = journal.append(RECORDS[1])
    assert journal.at(second) == RECORDS[1]
    journal.close()
    assert opened(tmp_path / "j")[1] == RECORDS[:2]
