"""What a node records of itself: exact where its process was killed, and never more than was acknowledged."""

from __future__ import annotations

from pathlib import Path

import pytest

from tracker.client import LowmarkError
from tracker.client.known import Known, known_beside


def test_the_last_record_is_read_again(tmp_path: Path) -> None:
    known = Known(tmp_path / "known")
    assert known.read() == (0, 0)
    for incarnation, ticks in [(1, 0), (1, 7), (12, 0), (12, 5)]:
        known.record(incarnation, ticks)
        assert Known(tmp_path / "known").read() == (incarnation, ticks)
    known.close()


def test_without_its_directory_nothing_is_recorded_until_that_is_made(tmp_path: Path) -> None:
    known = Known(tmp_path / "checkpoint" / "known")
    known.record(1, 1)
    assert known.read() == (0, 0)
    (tmp_path / "checkpoint").mkdir()
    known.record(1, 2)
    assert known.read() == (1, 2)
    known.close()


def test_damage_is_said_and_a_file_that_was_only_made_is_none(tmp_path: Path) -> None:
    path = tmp_path / "known"
    path.touch()
    assert Known(path).read() == (0, 0)
    known = Known(path)
    known.record(3, 4)
    known.close()
    whole = path.read_bytes()
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(LowmarkError, match=r"known is damaged.*restore it, or remove it"):
            Known(path).read()


def test_each_node_of_each_pipeline_has_a_file_of_its_own(tmp_path: Path) -> None:
    nodes = [("p", "n"), ("p", "m"), ("q", "n"), ("p", "x" * 1_000)]
    files = {known_beside(tmp_path, *node) for node in nodes}
    assert len(files) == len(nodes)
    for file in files:
        known = Known(file)
        known.record(1, 1)
        assert known.read() == (1, 1)
        known.close()
