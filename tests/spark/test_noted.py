"""What a sink of the user's own notes, on this machine or in a store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from local_tracker.worker.noted import forget, is_recorded, note_commit, recorded_units
from tests.files.s3 import s3_bucket
from tracker.errors import FilesError
from tracker.files import STORES

UNITS = ("s3://lake/out/a%20b.parquet", "s3://lake/out/c.parquet")


@pytest.fixture(params=["local", "s3"])
def directory(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "local":
        yield str(tmp_path / "notes")
    else:
        with s3_bucket() as bucket:
            yield f"{bucket}/notes"


def test_the_last_note_of_a_batch_counts_until_it_is_forgotten(directory: str) -> None:
    assert recorded_units(directory, 3) == () and not is_recorded(directory, 3)
    note_commit(directory, 3, ["left by a killed run"])
    note_commit(directory, 3, reversed(UNITS))
    assert recorded_units(directory, 3) == UNITS
    note_commit(directory, 4, [])
    assert recorded_units(directory, 4) == () and is_recorded(directory, 4)
    forget(directory, 3)
    forget(directory, -7)
    assert not is_recorded(directory, 3) and is_recorded(directory, 4)


def test_what_is_noted_goes_by_the_one_name_that_a_reader_finds_it_by(tmp_path: Path) -> None:
    note_commit(str(tmp_path), 0, ["s3a://lake/out/c.parquet"])
    assert recorded_units(str(tmp_path), 0) == ("s3://lake/out/c.parquet",)


def test_a_damaged_note_is_refused_by_name(directory: str) -> None:
    where = STORES.location(f"{directory}/00000003.json")
    STORES.files(where).create(where, b'{"units": 5}')
    with pytest.raises(FilesError, match=r"00000003\.json is not a note"):
        recorded_units(directory, 3)
