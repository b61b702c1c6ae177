"""The topics of a plan, and what a query's arguments say of each."""

from __future__ import annotations

from pathlib import Path

import pytest

from local_tracker.spark.formats.interface import QueryReads, Source, TopicsSource
from local_tracker.spark.formats.kafka import topic_reads
from local_tracker.spark.formats.ranges import OffsetRanges
from local_tracker.spark.query.logs import BatchOffsets
from local_tracker.spark.query.plans import Routes, UnaccountedError
from tracker.client.topics import TopicPlace
from tracker.core.model import PipelineSpec
from tracker.errors import TrackingError

SPEC = PipelineSpec("p", ("parse", "other"))
FILES = Source("1", "FileSource[/in]", "/in")


def kafka(*topics: str, pattern: str | None = None, number: str = "0", start: str = "") -> Source:
    options = {"startingOffsets": start} if start else {}
    return Source(number, "kafka", topics=TopicsSource(topics, pattern, options))


def read(
    tmp_path: Path, *sources: Source, reads: object, untracked: tuple[str, ...] = ()
) -> QueryReads:
    return topic_reads(
        QueryReads(reads, untracked), sources,  # type: ignore[arg-type]
        place_of=lambda name: TopicPlace(str(tmp_path), "p", name),
        topic_id=lambda name, options: f"id of {name}",
    )  # fmt: skip


def routes(found: QueryReads, *sources: Source) -> Routes:
    return Routes(SPEC, found, (), "q", None, sources)


def segments(found: QueryReads, number: str = "0") -> dict[str | None, str]:
    given = found.ranges[number]
    assert not isinstance(given, OffsetRanges)
    return {one.within: one.segment for one in given}


def test_topics_are_named_in_reads_beside_directories(tmp_path: Path) -> None:
    sources = kafka("a", "b"), FILES
    found = read(tmp_path, *sources, reads={"a": "parse", "b": "other", "/in": "parse"})
    assert segments(found) == {"a": "parse", "b": "other"}
    assert found.reads == {"/in": "parse"}
    assert routes(found, *sources).segment("file:///in/x") == 0


def test_one_segment_is_that_of_all(tmp_path: Path) -> None:
    sources = kafka("a"), FILES
    found = read(tmp_path, *sources, reads="parse")
    assert segments(found) == {"a": "parse"}
    assert found.reads == "parse"


def test_a_topic_that_is_not_tracked_is_left_out_of_its_source(tmp_path: Path) -> None:
    source = kafka("a", "b")
    found = read(tmp_path, source, reads={"a": "parse"}, untracked=("b",))
    assert segments(found) == {"a": "parse"}
    offsets = BatchOffsets(0, 0, {"0": '{"a":{"0":3},"b":{"0":9}}'}, "")
    routes(found, source).check_offsets(offsets)


def test_a_source_of_which_nothing_is_tracked_is_none_of_the_pipelines(tmp_path: Path) -> None:
    sources = kafka("a"), FILES
    found = read(tmp_path, *sources, reads={"/in": "parse"}, untracked=("a",))
    assert (found.ranges, found.untracked) == ({}, ("0",))
    assert not routes(found, *sources).is_tracked("0")


def test_a_topic_that_nobody_names_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TrackingError, match="topic 'b' of source 0 is not accounted for"):
        read(tmp_path, kafka("a", "b"), reads={"a": "parse"})


def test_a_topic_of_a_pattern_that_nobody_names_is_refused_when_it_is_read(tmp_path: Path) -> None:
    source = kafka(pattern="a.*")
    found = read(tmp_path, source, reads={"a1": "parse"}, untracked=("a2",))
    assert segments(found) == {"a1": "parse"}
    known = BatchOffsets(0, 0, {"0": '{"a1":{"0":3},"a2":{"0":3}}'}, "")
    routes(found, source).check_offsets(known)
    unknown = BatchOffsets(1, 0, {"0": '{"a1":{"0":3},"a3":{"0":3}}'}, "")
    with pytest.raises(UnaccountedError, match="has read topic 'a3'"):
        routes(found, source).check_offsets(unknown)


def test_two_sources_of_one_topic_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TrackingError, match="topic 'a' is read by two sources"):
        read(tmp_path, kafka("a"), kafka("a", number="1"), reads="parse")


@pytest.mark.parametrize(("start", "whole"), [("earliest", True), ("", False), ('{"a":{}}', False)])
def test_it_is_known_whether_a_source_begins_at_the_earliest(
    tmp_path: Path, start: str, whole: bool
) -> None:
    found = read(tmp_path, kafka("a", start=start), reads="parse")
    (one,) = found.ranges["0"]  # type: ignore[misc]
    assert one.from_earliest is whole
