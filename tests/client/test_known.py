"""What a node records of itself: exact where its process was killed, and never more than was acknowledged."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.files.s3 import s3_bucket
from tests.waits import until
from tracker.client import LowmarkError
from tracker.client.known import Acknowledged, StoredKnown, known_at, known_beside
from tracker.files import STORES


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    with s3_bucket() as bucket:
        yield bucket


@pytest.fixture
def where(bucket: str, request: pytest.FixtureRequest) -> str:
    """In a store."""
    return known_beside(f"{bucket}/{request.node.name}", "p", "n")


@pytest.fixture(params=["here", "in a store"])
def anywhere(request: pytest.FixtureRequest, tmp_path: Path, where: str) -> str:
    return str(tmp_path / "known") if request.param == "here" else where


def test_the_last_record_is_read_again(anywhere: str) -> None:
    assert known_at(anywhere).read() == Acknowledged()
    for numbers in [(1, 0, 0), (1, 7, 0), (12, 0, 3), (12, 5, 1_000_001)]:
        known = known_at(anywhere)
        known.record(Acknowledged(*numbers))
        known.close()
        assert known_at(anywhere).read() == numbers


def test_damage_is_said(anywhere: str) -> None:
    STORES.files(anywhere).create(anywhere, b"something else")
    with pytest.raises(LowmarkError, match=r"known is damaged.*restore it, or remove it"):
        known_at(anywhere).read()


def test_without_its_directory_nothing_is_recorded_until_that_is_made(tmp_path: Path) -> None:
    known = known_at(tmp_path / "checkpoint" / "known")
    known.record(Acknowledged(1, 1))
    assert known.read() == (0, 0, 0)
    (tmp_path / "checkpoint").mkdir()
    known.record(Acknowledged(1, 2))
    assert known.read() == (1, 2, 0)
    known.close()


def test_damage_is_said_and_a_file_that_was_only_made_is_none(tmp_path: Path) -> None:
    path = tmp_path / "known"
    path.touch()
    assert known_at(path).read() == (0, 0, 0)
    known = known_at(path)
    known.record(Acknowledged(3, 4))
    known.close()
    whole = path.read_bytes()
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(LowmarkError, match=r"known is damaged.*restore it, or remove it"):
            known_at(path).read()


def test_each_node_of_each_pipeline_has_a_file_of_its_own(tmp_path: Path) -> None:
    nodes = [("p", "n"), ("p", "m"), ("q", "n"), ("p", "x" * 1_000)]
    files = {known_beside(tmp_path, *node) for node in nodes}
    assert len(files) == len(nodes)
    for file in files:
        known = known_at(file)
        known.record(Acknowledged(1, 1))
        assert known.read() == (1, 1, 0)
        known.close()


# --- in a store -----------------------------------------------------------------------------------


def in_store(where: str, every_s: float = 0.0) -> StoredKnown:
    return StoredKnown(where, STORES.files(where), every_s)


def test_a_record_in_a_store_is_written_while_the_node_runs(where: str) -> None:
    """A process that is killed has closed nothing."""
    known = in_store(where)
    known.record(Acknowledged(3, 4))
    until(lambda: in_store(where).read() == (3, 4, 0))
    known.record(Acknowledged(3, 5))
    until(lambda: in_store(where).read() == (3, 5, 0))
    known.close()


def test_many_acknowledgements_cost_a_request_an_interval(where: str) -> None:
    known = in_store(where, every_s=3600.0)
    known.record(Acknowledged(1, 0))
    until(lambda: in_store(where).read() == (1, 0, 0))
    before = STORES.files(where).requests.counted()["write"]
    for ticks in range(1, 1_000):
        known.record(Acknowledged(1, ticks))
    assert known.read() == (1, 999, 0), "this process knows"
    assert in_store(where).read() == (1, 0, 0), "behind, and never ahead"
    known.close()
    assert in_store(where).read() == (1, 999, 0)
    assert STORES.files(where).requests.counted()["write"] == before + 1


def test_a_store_that_takes_no_record_holds_nobody_up(
    where: str, caplog: pytest.LogCaptureFixture
) -> None:
    known = known_at("s3://nobody-has-made-this-bucket/known")
    known.record(Acknowledged(1, 1))
    known.close()
    assert "stays behind what the tracker acknowledged" in caplog.text
