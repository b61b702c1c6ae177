"""What is asked of files, of Hadoop's on this machine, which a driver uses for other stores.

It writes nothing there, since Hadoop's local file system shows halves and lets several win. A driver reads
and writes files of its own machine by itself.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from local_tracker.spark.formats.hadoop_files import HadoopFiles, SessionStores
from tests.files.specification import (
    test_a_directory_lists_what_is_in_it,
    test_a_file_is_read_as_it_was_written,
    test_a_file_is_replaced_as_a_whole,
    test_a_file_that_is_too_large_is_not_read_whole,
    test_a_folder_is_deleted_with_all_that_is_below,
    test_a_library_reads_by_position,
    test_a_store_that_cannot_exclude_says_so,
    test_an_empty_file_is_a_file,
    test_bytes_that_a_file_has_not_are_refused,
    test_requests_are_counted,
    test_the_end_of_a_file_comes_with_its_size,
    test_what_is_not_there_is_absent_and_no_error,
)
from tests.files.stores import Store
from tracker.files import FilesError, LocalFiles

__all__ = [
    "test_a_directory_lists_what_is_in_it", "test_a_file_is_read_as_it_was_written",
    "test_a_file_is_replaced_as_a_whole", "test_a_file_that_is_too_large_is_not_read_whole",
    "test_a_folder_is_deleted_with_all_that_is_below", "test_a_library_reads_by_position",
    "test_a_store_that_cannot_exclude_says_so", "test_an_empty_file_is_a_file",
    "test_bytes_that_a_file_has_not_are_refused", "test_requests_are_counted",
    "test_the_end_of_a_file_comes_with_its_size", "test_what_is_not_there_is_absent_and_no_error",
]  # fmt: skip


class WrittenLocally(HadoopFiles):
    """What Hadoop reads here, somebody else has written."""

    def _create(self, path: str, data: bytes) -> None:
        LocalFiles().create(path, data)


@pytest.fixture
def store(spark: SparkSession, tmp_path: Path) -> Store:
    return Store(WrittenLocally(spark, ""), str(tmp_path / "a directory"), excludes=False)


def test_nothing_is_written_where_a_half_could_be_seen(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(FilesError, match="nothing is written to file:"):
        HadoopFiles(spark, "").create(f"{tmp_path}/a", b"1")


def test_a_session_reads_its_own_machine_by_itself(spark: SparkSession, tmp_path: Path) -> None:
    stores = SessionStores(spark)
    where = stores.location(f"file:{tmp_path}/a%20b")
    assert where == stores.location(f"{tmp_path}/a b") == f"{tmp_path}/a b"
    assert isinstance(stores.files(where), LocalFiles)


def test_a_store_without_jars_is_refused_by_name(spark: SparkSession) -> None:
    stores = SessionStores(spark)
    where = stores.location("s3n://bucket/a")
    assert where == "s3://bucket/a"
    with pytest.raises(
        FilesError, match=r"s3://bucket: this session has no file system.*hadoop-aws"
    ):
        stores.files(where)


def test_more_than_a_file_had_is_of_its_successor_and_is_read_again(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store may send the file that has taken its place, and a client ends that where it likes."""
    where = store.at("record")
    store.files.create(where, b"after")
    come = [b"afterwards, half", b"after"]
    monkeypatch.setattr(store.files, "_read_as_of", lambda *_: come.pop(0))
    assert store.files.read_whole(where, 100) == b"after"
    assert not come
