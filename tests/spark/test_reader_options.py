"""What a query was told of the tables that it reads counts for the batches that have read so, whatever it is
told when it is started again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from local_tracker.spark.formats.interface import Source, TableSource, TopicsSource
from local_tracker.spark.formats.reader_options import ReaderOptions
from local_tracker.spark.query.logs import CheckpointLog
from tracker.core.model import Batch
from tracker.errors import FilesError, TrackingError

QUERY, TABLE = "1866a3fd-0d6a-4444-b874-88552ba4e458", "/data/table"


class Query:
    """A checkpoint, whose query is started again and again."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        for name in ("offsets", "commits"):
            (directory / name).mkdir()
        self.durable: list[Batch] = []

    def start(self, **options: str) -> dict[str, str]:
        """The options that count; noted."""
        read = ReaderOptions(
            "read", QUERY, CheckpointLog(str(self.directory)), [_source(options)], self.durable
        )
        read.note()
        return counted(read)

    def plan(self, batch: int, *, in_snapshot: bool = False, offset: bool = True) -> None:
        found = {
            "sourceVersion": 1, "reservoirId": "id", "reservoirVersion": batch, "index": 0,
            "isStartingVersion": in_snapshot,
        }  # fmt: skip
        lines = ["v1", '{"batchTimestampMs":0}', json.dumps(found) if offset else "-"]
        (self.directory / "offsets" / str(batch)).write_text("\n".join(lines))

    def be_durable(self, batch: int) -> None:
        self.durable = [Batch(QUERY, batch, b"")]


def _source(options: dict[str, str]) -> Source:
    return Source("0", "delta", TABLE, table=TableSource("delta", TABLE, options))


def counted(read: ReaderOptions) -> dict[str, str]:
    assert read.sources is not None
    (source,) = read.sources
    assert source.table is not None
    return dict(source.table.options or {})


@pytest.fixture
def query(tmp_path: Path) -> Query:
    return Query(tmp_path)


def test_the_version_that_a_query_began_with_counts_from_its_first_batch_on(query: Query) -> None:
    assert query.start(startingVersion="5") == {"startingVersion": "5"}
    query.plan(0)
    assert query.start(startingversion="3") == {"startingVersion": "5"}
    assert query.start() == {"startingVersion": "5"}


def test_a_version_that_no_log_records_is_left_for_those_who_refuse_it(query: Query) -> None:
    assert query.start(startingVersion="latest") == {"startingVersion": "latest"}
    query.plan(0)
    assert query.start(startingVersion="latest") == {"startingVersion": "latest"}


def test_that_a_query_began_with_the_table_as_it_was_counts_too(query: Query) -> None:
    query.start(maxFilesPerTrigger="1")
    query.plan(0)
    assert query.start(maxFilesPerTrigger="2", startingVersion="5") == {"maxFilesPerTrigger": "2"}


def test_before_a_source_has_an_offset_it_may_be_told_another_version(query: Query) -> None:
    query.start(startingVersion="5")
    query.plan(0, offset=False)
    assert query.start(startingVersion="3") == {"startingVersion": "3"}
    query.plan(1)
    assert query.start(startingVersion="4") == {"startingVersion": "3"}


def test_what_was_left_out_stays_so_until_the_tracker_has_the_batches(query: Query) -> None:
    query.start(skipChangeCommits="true")
    query.plan(0)
    assert query.start(ignoreChanges="true")["skipChangeCommits"] == "true"
    query.be_durable(0)
    assert query.start(ignoreChanges="true") == {"ignoreChanges": "true"}
    query.plan(1)
    assert query.start(ignoreChanges="true") == {"ignoreChanges": "true"}


def test_what_began_unnoted_and_unknown_is_refused(query: Query) -> None:
    query.plan(0)
    with pytest.raises(
        TrackingError, match=r"table /data/table before it was tracked.*--set starting="
    ):
        query.start(startingVersion="5")
    query.be_durable(0)
    assert query.start(startingVersion="5") == {"startingVersion": "5"}


def test_what_began_unnoted_with_the_table_as_it_was_says_so_itself(query: Query) -> None:
    query.plan(0, in_snapshot=True)
    query.plan(1)
    assert query.start(startingVersion="5") == {}


def test_without_a_checkpoint_a_query_begins_anew_each_time() -> None:
    for version in ("5", "3"):
        options = {"startingVersion": version}
        read = ReaderOptions("read", QUERY, None, [_source(options)], ())
        read.note()
        assert counted(read) == options


def test_sources_of_anything_else_are_left_as_they_are(query: Query) -> None:
    sources = [Source("0", "kafka"), Source("1", "iceberg", table=TableSource("iceberg", TABLE))]
    checkpoint = CheckpointLog(str(query.directory))
    read = ReaderOptions("read", QUERY, checkpoint, sources, ())
    read.note()
    assert read.sources == tuple(sources)
    assert ReaderOptions("read", QUERY, checkpoint, None, ()).sources is None
    assert not (query.directory / "_lowmark").exists()


@pytest.mark.parametrize("noted", [True, False])
def test_whether_a_source_of_topics_began_at_the_earliest_counts_from_its_first_batch_on(
    query: Query, noted: bool
) -> None:
    """Spark takes startingOffsets once. Records between the labels' beginning and the source's were removed before, if
    it began at the earliest; else it has left them out, whatever it is told when it is started again."""

    def start(**options: str) -> dict[str, str]:
        source = Source("0", "kafka", topics=TopicsSource(("orders",), None, options))
        read = ReaderOptions("read", QUERY, CheckpointLog(str(query.directory)), [source], [])
        read.note()
        assert read.sources is not None and read.sources[0].topics is not None
        return dict(read.sources[0].topics.options)

    if noted:
        assert start(startingOffsets="earliest") == {"startingOffsets": "earliest"}
        assert start() == {}
    (query.directory / "sources/0").mkdir(parents=True)  # before the first batch is planned
    (query.directory / "sources/0/0").write_text('\0v1\n{"orders":{"0":7}}')
    assert start(startingoffsets="earliest", subscribe="orders") == {"subscribe": "orders"}
    assert start(startingOffsets="earliest") == {}


def test_a_note_that_is_none_is_named(query: Query) -> None:
    query.start()
    query.plan(0)
    (query.directory / "_lowmark/reader-options").write_text('{"0": 7}')
    with pytest.raises(FilesError, match="_lowmark/reader-options is not what was noted"):
        query.start()
