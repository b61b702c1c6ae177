"""Following a query from its checkpoint alone; the logs are written as Spark writes them."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

import tracker
from fronts.front import FrontOptions
from fronts.kafka import KafkaFront
from fronts.ranges import RangeFront
from local_tracker.spark.formats.ranges import OffsetRanges, PublishedRanges
from local_tracker.spark.query.follow import Follower, Stopping
from local_tracker.spark.query.logs import CheckpointLog
from local_tracker.spark.session.attached import AttachedQuery
from local_tracker.spark.state.rules import HeldFor
from tests.cluster.children import discard
from tests.cluster.tracker import lowmark
from tests.fronts.fake_topic import FakeTopic
from tests.fronts.support import start_all
from tests.spark.support import Attach
from tests.spark.written_logs import QUERY, Logs, source_file
from tests.waits import HANG_S, until
from tracker.client import LowmarkError, NodeClient
from tracker.client.embedded import EmbeddedTracker
from tracker.client.state_names import bound_of
from tracker.core.log import Joined
from tracker.core.model import (
    Cells,
    Edge,
    Heartbeat,
    NodeKey,
    PipelineSpec,
    Refusal,
    RefusalCode,
    TickContent,
    TimeKind,
    Unit,
)
from tracker.core.model.ack_values import unit_value
from tracker.core.model.slots import FOREVER
from tracker.core.model.waits import WaitCause, WaitKind
from tracker.errors import (
    Code,
    FilesError,
    RefusedError,
    StateError,
    TrackingError,
    UnavailableError,
)
from tracker.files import AwayError, Files


@pytest.fixture
def logs(tmp_path: Path) -> Logs:
    return Logs(tmp_path)


@pytest.fixture
def running() -> Iterator[EmbeddedTracker]:
    """A tracker whose pipeline's front has published files at slots 1 to 4."""
    with tracker.embedded() as embedded:
        embedded.register(
            PipelineSpec("p", ("parse", "after"), (Edge("parse", "after"),), fronts=("front",))
        )
        front = embedded.node("p", "front")
        front.join()
        front.join_front("front", "parse")
        cells = Cells.of((0, slot, unit_value(source_file(slot)), 1) for slot in range(1, 5))
        front.commit(TickContent(created=cells)).result(HANG_S)
        front.commit(TickContent(heartbeats=(Heartbeat("front", 5),))).result(HANG_S)
        yield embedded


def attached(running: EmbeddedTracker, logs: Logs, **more: object) -> AttachedQuery:
    options = {"reads": "parse", "creates": ["after"], "sink": str(logs.sink), **more}
    pipeline, node_id = str(options.pop("pipeline", "p")), str(options.pop("node_id", "parse"))
    return AttachedQuery(running.target, pipeline, node_id, str(logs.checkpoint), **options)  # type: ignore[arg-type]


def await_open_slots(running: EmbeddedTracker, *expected: int) -> None:
    """A durable tick is applied a moment later."""

    def found() -> list[int]:
        state = running.admin().pipeline("p").state
        return [segment.open_slots for segment in state.segments]

    until(lambda: found() == list(expected), lambda: f"{found()}, not {expected}")


def test_batches_are_told_as_they_end(running: EmbeddedTracker, logs: Logs) -> None:
    logs.batch(0, 1)
    query = attached(running, logs).start()
    assert query.wait_durable(HANG_S)
    await_open_slots(running, 3, 1)
    logs.batch(1, 2)
    assert query.wait_durable(HANG_S)
    assert query.last_durable_batch == 1
    await_open_slots(running, 2, 2)
    assert query.close()


def test_of_a_pipeline_that_was_restarted_it_says_from_where_to_read(
    running: EmbeddedTracker, logs: Logs
) -> None:
    """Batch 0 read from below the slot at which the pipeline begins now, and made something of it."""
    logs.batch(0, 1)
    query = attached(running, logs).start()
    assert query.wait_durable(HANG_S)
    with running.admin() as admin:
        assert admin.restart("p", 0, 3) == (1, 3)
    query.close()
    again = attached(running, logs).start()
    with pytest.raises(TrackingError) as refused:
        again.wait_durable(HANG_S)
    again.close()
    assert "below_min_time" in str(refused.value)
    assert "generation 1 begins at slot 3 (1970-01-01 00:00:00.030000+00:00)" in str(refused.value)
    assert "Start the query on an empty checkpoint and sink" in str(refused.value)


def test_by_event_time_what_was_read_from_below_a_restart_may_have_come_late(
    running: EmbeddedTracker, logs: Logs
) -> None:
    edges = (Edge("parse", "after"),)
    spec = PipelineSpec("e", ("parse", "after"), edges, fronts=("front",), time=TimeKind.EVENT)
    running.register(spec)
    with running.admin() as admin:
        assert admin.restart("e", 0, 3) == (1, 3)
    logs.batch(0, 1)
    query = attached(running, logs, pipeline="e").start()
    assert query.wait_durable(HANG_S)
    assert query.close()


def test_it_goes_on_where_it_was(running: EmbeddedTracker, logs: Logs) -> None:
    for number in range(2):
        logs.batch(number, number + 1)
        query = attached(running, logs).start()
        assert query.wait_durable(HANG_S)
        assert query.close()
    await_open_slots(running, 2, 2)


def test_it_may_begin_at_any_batch(running: EmbeddedTracker, logs: Logs) -> None:
    for number in range(3):
        logs.batch(number, number + 1)
    query = attached(running, logs, first_batch=2).start()
    assert query.wait_durable(HANG_S)
    assert query.close()
    await_open_slots(running, 3, 1)  # batches 0 and 1 are not told


def purge(logs: Logs, *batches: int) -> None:
    """As Spark does behind spark.sql.streaming.minBatchesToRetain."""
    for batch in batches:
        (logs.checkpoint / f"offsets/{batch}").unlink()
        (logs.checkpoint / f"commits/{batch}").unlink()


def test_what_was_purged_must_be_given_up_in_words(running: EmbeddedTracker, logs: Logs) -> None:
    for number in range(4):
        logs.batch(number, number + 1)
    purge(logs, 0, 1)
    # What batch 2 consumed lay between its offsets and those of batch 1.
    with pytest.raises(TrackingError, match=r"from 3 on.*begin at 3 or later .*--set from_batch="):
        attached(running, logs).start()
    query = attached(running, logs, first_batch=3).start()
    assert query.wait_durable(HANG_S)
    assert query.close()
    await_open_slots(running, 3, 1)


def test_what_was_told_may_be_purged(running: EmbeddedTracker, logs: Logs) -> None:
    for number in range(3):
        logs.batch(number, number + 1)
    query = attached(running, logs).start()
    assert query.wait_durable(HANG_S)
    assert query.close()
    logs.batch(3, 4)
    purge(logs, 0, 1)
    query = attached(running, logs).start()
    assert query.wait_durable(HANG_S)
    assert query.close()
    assert query.last_durable_batch == 3
    await_open_slots(running, 0, 4)


def test_what_was_told_of_a_table_may_be_expired(
    running: EmbeddedTracker, logs: Logs, tmp_path: Path
) -> None:
    """Spark goes on from the last snapshot that it has read, which stays; the one before is needed no more."""
    table = tmp_path / "table"
    units = [Unit(0, f"iceberg:an-id/{snapshot}", 3) for snapshot in (10, 11, 12)]
    with running.node("p", "writer") as writer:
        writer.join()
        cells = Cells.of((0, 3, unit_value(unit.name), 1) for unit in units)
        writer.commit(TickContent(created=cells, units_created=tuple(units))).result(HANG_S)

    def read(batch: int, *snapshots: int) -> None:
        lay_table(table, *snapshots)
        offset = {
            "version": 1,
            "snapshot_id": snapshots[-1],
            "position": 1,
            "scan_all_files": False,
        }
        header = {"batchWatermarkMs": 0, "batchTimestampMs": batch}
        text = "\n".join(["v1", json.dumps(header), json.dumps(offset)])
        logs.write("cp/offsets", batch, text)
        logs.write("cp/commits", batch, "v1\n{}")

    def follow(last: int) -> None:
        query = attached(running, logs, reads={str(table): "parse"}, creates=[], sink=None).start()
        assert query.wait_durable(HANG_S)
        assert query.last_durable_batch == last
        assert query.close()

    read(0, 10)
    read(1, 10, 11)
    follow(1)
    lay_table(table, 11)
    follow(1)
    read(2, 11, 12)
    follow(2)
    await_open_slots(running, 4, 0)


def lay_table(directory: Path, *snapshots: int) -> None:
    """An Iceberg table in a file system, with snapshots that streaming queries have appended to it one after the other;
    those before the first were expired."""
    appended = {"operation": "append", "added-data-files": "1", "spark.sql.streaming.queryId": "w"}
    metadata = {
        "table-uuid": "an-id",
        "current-snapshot-id": snapshots[-1],
        "snapshots": [
            {"snapshot-id": each, "parent-snapshot-id": each - 1, "summary": appended}
            for each in snapshots
        ],
    }
    (directory / "metadata").mkdir(parents=True, exist_ok=True)
    (directory / "metadata/v1.metadata.json").write_text(json.dumps(metadata))
    (directory / "metadata/version-hint.text").write_text("1")


def test_what_was_purged_and_not_told_is_an_error(running: EmbeddedTracker, logs: Logs) -> None:
    logs.batch(0, 1)
    query = attached(running, logs).start()
    assert query.wait_durable(HANG_S)
    assert query.close()
    for number in range(1, 4):
        logs.batch(number, number + 1)
    purge(logs, 0, 1, 2)
    with pytest.raises(TrackingError, match="begins at 3, but the tracker's last batch is 0"):
        attached(running, logs).start()


def test_what_does_not_fit_is_refused(running: EmbeddedTracker, logs: Logs) -> None:
    with pytest.raises(TrackingError, match="file sink's directory must be given"):
        attached(running, logs, sink=None)
    with pytest.raises(TrackingError, match="no edge between them"):
        attached(running, logs, reads="after", creates=["parse"]).start()
    with pytest.raises(LowmarkError, match="nowhere"):
        attached(running, logs, reads="nowhere").start()
    (logs.checkpoint / "metadata").unlink()
    with pytest.raises(TrackingError, match="there is no query to follow"):
        attached(running, logs)


class TwoSources:
    """The logs of a query that has two sources of files."""

    def __init__(self, logs: Logs) -> None:
        (logs.checkpoint / "sources/1").mkdir()
        self._logs, self._last, self._batch = logs, [-1, -1], 0

    def batch(self, *taken: Sequence[str]) -> None:
        """One in which the first source takes some files, and the second one others."""
        for source, names in enumerate(taken):
            if names:
                self._last[source] += 1
                lines = (json.dumps({"path": n, "batchId": self._last[source]}) for n in names)
                folder = f"cp/sources/{source}"
                self._logs.write(folder, self._last[source], "\n".join(["v1", *lines]))
        offsets = ("-" if last < 0 else json.dumps({"logOffset": last}) for last in self._last)
        header = f'{{"batchTimestampMs":{1_700_000_000_000 + self._batch}}}'
        self._logs.write("cp/offsets", self._batch, "\n".join(["v1", header, *offsets]))
        self._logs.write("cp/commits", self._batch, 'v1\n{"nextBatchWatermarkMs":0}')
        self._batch += 1


@pytest.mark.parametrize("second", [[1, 2], [2, 3]], ids=["the same files", "other files"])
def test_a_query_joined_with_itself_reads_each_file_once(
    running: EmbeddedTracker, logs: Logs, second: list[int]
) -> None:
    TwoSources(logs).batch([source_file(1), source_file(2)], [*map(source_file, second)])
    query = attached(running, logs, creates=[], sink=None).start()
    if second == [1, 2]:
        assert query.wait_durable(HANG_S)
        await_open_slots(running, 2, 0)
    else:
        with pytest.raises(TrackingError, match="took different files of it"):
            query.wait_durable(HANG_S)
        await_open_slots(running, 4, 0)
    query.close()


@pytest.mark.parametrize("aside", [False, True], ids=["the same directory", "another one"])
def test_what_one_source_has_read_waits_until_it_is_known_where_the_other_reads(
    running: EmbeddedTracker, logs: Logs, aside: bool
) -> None:
    """From outside nothing says that it is not going to read the same file."""
    sources = TwoSources(logs)
    sources.batch([], [source_file(1)])
    untracked = ["/aside"] if aside else []
    query = attached(running, logs, creates=[], sink=None, untracked=untracked)
    if aside:  # so each source may have one
        assert query.start().wait_durable(HANG_S)
        await_open_slots(running, 3, 0)
        assert query.close()
        return
    query.start()
    said = await_waits(running, (WaitKind.NOT_TOLD, -1, 0))
    assert said.startswith("the first file of source 0") and "in reads" in said
    sources.batch([source_file(2)], [source_file(2)])
    with pytest.raises(TrackingError, match=r"batch 0: .* took different files of it, .*s1-"):
        query.wait_durable(HANG_S)
    await_open_slots(running, 4, 0)
    query.close()


def test_where_sources_have_read_is_known_after_a_restart(
    running: EmbeddedTracker, logs: Logs
) -> None:
    """Also below folders of partitions, and of a source that takes nothing more."""
    sources = TwoSources(logs)
    sources.batch([source_file(1)], [source_file(1)])
    sources.batch(["file:///data/other/a"], ["file:///data/none/b"])
    options = {"creates": [], "sink": None, "untracked": ["/data/other", "/data/none"]}
    query = attached(running, logs, **options).start()
    assert query.wait_durable(HANG_S)
    assert query.close()
    sources.batch([], ["file:///data/in/day=2/s2-front-00000002.parquet"])
    query = attached(running, logs, **options).start()
    with pytest.raises(TrackingError, match=r"batch 2: .* took different files of it"):
        query.wait_durable(HANG_S)
    await_open_slots(running, 3, 0)
    query.close()


@pytest.mark.parametrize("second", [5, 0], ids=["both read", "one has read"])
def test_a_numbered_log_that_two_sources_read_is_refused(
    running: EmbeddedTracker, logs: Logs, second: int
) -> None:
    """What both consume would be as if nobody had."""
    source = OffsetRanges("parse", lambda partition, begin, end: [(begin, end, 1)])
    offsets = f'{{"p0":5}}\n{{"p0":{second}}}'
    logs.write("cp/offsets", 0, f'v1\n{{"batchTimestampMs":1700000000000}}\n{offsets}')
    logs.write("cp/commits", 0, 'v1\n{"nextBatchWatermarkMs":0}')
    ranges = {"0": source, "1": source}
    query = attached(running, logs, reads={}, ranges=ranges, creates=[], sink=None).start()
    with pytest.raises(TrackingError, match="sources 0 and 1 both read partition 'p0' of segment"):
        query.wait_durable(HANG_S)
    query.close()


def test_min_time_reaches_the_end(running: EmbeddedTracker, logs: Logs) -> None:
    for number in range(4):
        logs.batch(number, number + 1)
    query = attached(running, logs, creates=[], sink=None).start()
    assert query.wait_durable(HANG_S)
    assert query.close()
    running.node("p", "front").close()
    front = running.node("p", "front")
    front.join()
    front.leave_front("front").result(HANG_S)
    with running.subscriber("p") as subscriber:
        assert subscriber.wait_until(FOREVER, timeout_s=HANG_S)


def offsets_of_two(logs: Logs, number: int, slot: int, other: str) -> None:
    """A batch that has read from a second source as well."""
    logs.batch(number, slot, others=[other])


def refused_to_follow(running: EmbeddedTracker, query: AttachedQuery, message: str) -> None:
    """And the node has no key: nobody's session was ended."""
    with pytest.raises(TrackingError, match=message):
        query.start()
    with running.node("p", "parse") as node:
        assert node.check_join().key.incarnation == 0


def test_a_source_that_nobody_has_named_is_refused(running: EmbeddedTracker, logs: Logs) -> None:
    offsets_of_two(logs, 0, 1, '{"orders": {"0": 17}}')
    said = r"batch 0: source 1, .*orders.* is not accounted for: .*in untracked"
    refused_to_follow(running, attached(running, logs), said)
    refused_to_follow(running, attached(running, logs, reads={"/else": "parse"}, untracked=["1"]),
                      "data/in/s1-front.* in none of the directories")  # fmt: skip
    query = attached(running, logs, untracked=["1"]).start()
    assert query.wait_durable(HANG_S)
    await_open_slots(running, 3, 1)
    logs.batch(1, 2, source="file:///aside/stray.parquet")
    assert query.close(0.0) is False
    query = attached(running, logs, untracked=["1", "/aside"]).start()
    assert query.wait_durable(HANG_S) and query.last_durable_batch == 1
    await_open_slots(running, 3, 1)  # what it made is under the min time of the moment
    assert query.close()


def test_a_sink_that_has_nothing_of_a_batch_is_not_taken_for_an_empty_one(
    running: EmbeddedTracker, logs: Logs, tmp_path: Path
) -> None:
    """Another directory than the query's, say: min time would pass what it wrote."""
    logs.batch(0, 1)
    query = attached(running, logs, sink=str(tmp_path / "another")).start()
    with pytest.raises(TrackingError, match=r"batch 0 .*nothing for \['after'\].*its file sink"):
        query.wait_durable(HANG_S)
    query.close()
    query = attached(running, logs).start()
    assert query.wait_durable(HANG_S)
    await_open_slots(running, 3, 1)
    assert query.close()


def test_a_source_that_comes_to_it_later_stops_it(running: EmbeddedTracker, logs: Logs) -> None:
    logs.batch(0, 1)
    query = attached(running, logs).start()
    offsets_of_two(logs, 1, 2, "23")
    with pytest.raises(TrackingError, match="batch 1: source 1, which is no source of files"):
        query.wait_durable(HANG_S)
    query.close()


def test_a_query_without_batches_is_refused_by_name(running: EmbeddedTracker, logs: Logs) -> None:
    logs.batch(0, 1)
    (logs.checkpoint / "offsets/0").write_text('v1\n\n{"0":{"value":1,"runTimeMs":2}}')
    with pytest.raises(FilesError, match="continuous trigger"):
        attached(running, logs).start()


def test_another_query_is_not_followed_under_its_node_id(
    running: EmbeddedTracker, logs: Logs, tmp_path: Path
) -> None:
    logs.batch(0, 1)
    query = attached(running, logs).start()
    assert query.wait_durable(HANG_S), "its session lives"
    other = Logs(tmp_path / "other")
    (other.checkpoint / "metadata").write_text(json.dumps({"id": "another"}))
    other.batch(0, 2)
    with pytest.raises(RefusedError, match=f"runs for {QUERY!r}.*take_over"):
        attached(running, other).start()
    logs.batch(1, 3)
    assert query.wait_durable(HANG_S) and query.last_durable_batch == 1
    with pytest.raises(TrackingError, match="restore the old checkpoint"):
        attached(running, other, take_over=True).start()
    logs.batch(2, 4)
    assert query.wait_durable(HANG_S) and query.last_durable_batch == 2
    assert query.close()


def test_what_was_told_under_one_node_id_is_not_told_under_another(
    running: EmbeddedTracker, logs: Logs
) -> None:
    """What batch 0 has written is open. Created once more, it would be taken out, and pass for complete."""
    logs.batch(0, 1)
    query = attached(running, logs).start()
    assert query.wait_durable(HANG_S)
    await_open_slots(running, 3, 1)
    assert query.close()
    said = "batches up to 0 of the query were told under node id 'parse', in segment 'parse'"
    with pytest.raises(TrackingError, match=said):
        attached(running, logs, node_id="renamed").start()
    await_open_slots(running, 3, 1)
    logs.batch(1, 2)
    behind = attached(running, logs, node_id="renamed", first_batch=1).start()
    assert behind.wait_durable(HANG_S)
    await_open_slots(running, 2, 2)
    assert behind.close()


def test_a_query_may_be_told_by_several_nodes_in_segments_of_their_own(
    running: EmbeddedTracker, logs: Logs
) -> None:
    """One reads the segment of its source, another one says what it made of that."""
    with running.admin() as admin:
        segments, front = ("in", "copied"), ("front",)
        admin.register(PipelineSpec("two", segments, (Edge("in", "copied"),), fronts=front))
    logs.batch(0, 1)
    reader = attached(running, logs, pipeline="two", reads="in", creates=[]).start()
    assert reader.wait_durable(HANG_S)
    other = attached(running, logs, pipeline="two", node_id="2", reads="copied", creates=[])
    assert other.start().wait_durable(HANG_S)
    assert reader.close() and other.close()


def test_a_checkpoint_that_was_made_anew_is_not_taken_for_the_one_before(
    running: EmbeddedTracker, logs: Logs
) -> None:
    """Its batches have numbers that were told already: without a word they would never be told."""
    for number in range(2):
        logs.batch(number, number + 1)
    query = attached(running, logs).start()
    assert query.wait_durable(HANG_S)
    logs.checkpoint.rename(logs.checkpoint.with_name("away"))
    await_said(running, "metadata is gone; restore the checkpoint")
    anew = Logs(logs.checkpoint.with_name("anew"))
    (anew.checkpoint / "metadata").write_text(json.dumps({"id": "another"}))
    anew.batch(0, 3)
    anew.checkpoint.rename(logs.checkpoint)
    with pytest.raises(TrackingError, match=r"made anew while it was followed.*of query another"):
        until_failed(query)
    query.close()


def test_a_checkpoint_that_was_put_back_is_not_taken_for_the_one_before(
    running: EmbeddedTracker, logs: Logs
) -> None:
    """The query has run batch 1 again, over another file."""
    logs.batch(0, 1)
    query = attached(running, logs).start()
    assert query.wait_durable(HANG_S)
    shutil.copytree(logs.checkpoint, logs.checkpoint.with_name("copied"))
    logs.batch(1, 2)
    until(lambda: query.last_durable_batch == 1, lambda: "batch 1 is not durable")
    shutil.rmtree(logs.checkpoint / "offsets")
    shutil.copytree(logs.checkpoint.with_name("copied") / "offsets", logs.checkpoint / "offsets")
    with pytest.raises(TrackingError, match="was rolled back while it was followed: batch 1"):
        until_failed(query)
    query.close()


def until_failed(query: AttachedQuery) -> None:
    until(lambda: query.failure is not None, lambda: "it follows on")
    query.wait_durable(HANG_S)


def await_said(running: EmbeddedTracker, text: str) -> None:
    """Waits until a node says that it waits for something."""

    def said() -> list[str]:
        nodes = (node for part in running.admin().explain("p").parts for node in part.nodes)
        return [wait.text for node in nodes for wait in node.waits]

    until(lambda: any(text in each for each in said()), lambda: f"{said()}, not {text!r}")


# --- what it waits for ----------------------------------------------------------------------------


def await_waits(running: EmbeddedTracker, *expected: tuple[WaitKind, int, int]) -> str:
    """Waits until the node says that it waits for that; returns what it says."""
    waits: list[WaitCause] = []

    def found() -> bool:
        nonlocal waits
        parts = running.admin().explain("p").parts
        waits = [wait for part in parts for node in part.nodes for wait in node.waits]
        return [(wait.kind, wait.segment, wait.batch) for wait in waits] == list(expected)

    until(found, lambda: f"{waits}, not {expected}")
    return " ".join(wait.text for wait in waits)


def test_it_says_that_it_waits_for_a_stray_file(running: EmbeddedTracker, logs: Logs) -> None:
    logs.batch(0, 1, source="file:///data/in/stray.csv")
    query = attached(running, logs).start()
    said = await_waits(running, (WaitKind.UNKNOWN_ITEMS, 0, 0))
    assert said == "1 files that no tick has created, such as file:///data/in/stray.csv"
    stray = TickContent(
        created=Cells.of([(0, 9, unit_value("file:///data/in/stray.csv"), 1)]),
        units_created=(Unit(0, "file:///data/in/stray.csv", 9),),
    )
    with running.node("p", "who-wrote-it") as node:
        node.join()
        node.commit(stray).result(HANG_S)
        assert query.wait_durable(HANG_S)
        await_waits(running)
    assert query.close()


def test_what_nobody_created_in_a_complete_segment_ends_nothing_of_the_others(logs: Logs) -> None:
    """The query reads two segments, of which one has ended. A file that came there all the same is not counted, and
    what it reads in the other one is."""
    with tracker.embedded() as embedded:
        edges = Edge("ended", "after"), Edge("parse", "after")
        spec = PipelineSpec("p", ("ended", "parse", "after"), edges, fronts=("front", "gone"))
        embedded.register(spec)
        for name, segment in (("front", "parse"), ("gone", "ended")):
            node = embedded.node("p", name)
            node.join()
            node.join_front(name, segment)
            if name == "gone":
                node.leave_front(name).result(HANG_S)
            else:
                cells = Cells.of((1, slot, unit_value(source_file(slot)), 1) for slot in (1, 2))
                node.commit(TickContent(created=cells)).result(HANG_S)
                node.commit(TickContent(heartbeats=(Heartbeat("front", 3),))).result(HANG_S)
        with embedded.subscriber("p") as subscriber:
            assert subscriber.wait_until(FOREVER, "ended", timeout_s=HANG_S)
        logs.windowed(0, ["file:///data/old/stray.csv", source_file(1)], at_ms=0, next_ms=0)
        logs.windowed(1, ["file:///data/old/another.csv"], at_ms=0, next_ms=0)
        logs.batch(2, 2)
        reads = {"/data/old": "ended", "/data/in": "parse"}
        query = attached(embedded, logs, reads=reads).start()
        assert query.wait_durable(HANG_S)
        assert query.rest is None
        assert query.last_durable_batch == 2
        assert query.close()
        with embedded.subscriber("p") as subscriber:
            assert subscriber.wait_until(3, "parse", timeout_s=HANG_S)


def test_it_says_that_a_writer_is_behind(running: EmbeddedTracker, logs: Logs) -> None:
    written = logs.sink / "part-before.parquet"
    logs.batch(0, 1, source=f"file://{written}")
    query = attached(running, logs).start()
    said = await_waits(running, (WaitKind.WRITER_BEHIND, 0, 0))
    assert said.startswith("the writer of 1 files whose tick has not been committed")
    query.close(0.0)


def test_it_says_that_ranges_are_not_told(
    running: EmbeddedTracker, logs: Logs, tmp_path: Path
) -> None:
    offsets_of_two(logs, 0, 1, '{"orders": {"0": 17}}')
    ranges = {"1": OffsetRanges("parse", PublishedRanges(str(tmp_path / "ranges")).slots)}
    query = attached(running, logs, ranges=ranges).start()
    said = await_waits(running, (WaitKind.NOT_TOLD, 0, 0))
    assert said.startswith("offsets up to 17 of partition 'orders/0'")
    query.close(0.0)


def test_it_says_what_it_is_refused(running: EmbeddedTracker, logs: Logs) -> None:
    """Batch 0 read what lies below min time, and made something of it."""
    with running.admin() as admin:
        assert admin.restart("p", 0, 3) == (1, 3)
    logs.batch(0, 1)
    query = attached(running, logs).start()
    said = await_waits(running, (WaitKind.REFUSED, -1, -1))
    assert "the tick of batch 0 was refused (below_min_time)" in said
    query.close()


def following(logs: Logs, node: Any, ticks: Any, *, is_active: bool = True) -> Follower:
    """Of a query that has just joined."""
    return Follower(
        "parse", node, CheckpointLog(str(logs.checkpoint)), ticks,
        Joined(NodeKey("parse", 1), PipelineSpec("p", ("parse",)), (), 0, ()),
        is_active=lambda: is_active, on_end=lambda: None,
    )  # fmt: skip


@pytest.mark.parametrize("code", [RefusalCode.FULL, RefusalCode.NOT_READY])
def test_a_refusal_that_passes_is_waited_for_and_said(logs: Logs, code: RefusalCode) -> None:
    """The query is not stopped: there may be room later, or every shard reckon with an edge that is new."""
    logs.batch(0, 1)
    node = FullNode(code)
    follower = following(logs, node, AnyTicks())
    follower.start()
    assert follower.wait_durable(HANG_S)
    assert follower.close(HANG_S)
    assert node.said == [(WaitCause(WaitKind.REFUSED, "no room", batch=0),), ()]


def test_a_tick_that_came_behind_a_refused_one_is_committed_again(logs: Logs) -> None:
    """What was refused is another thread's: a writer's, that begins a hold for the next batch."""
    logs.batch(0, 1)
    node = FullNode(RefusalCode.BELOW_MIN_TIME, behind=True)
    follower = following(logs, node, AnyTicks())
    follower.start()
    assert follower.wait_durable(HANG_S)
    assert follower.close(HANG_S)


def test_who_waits_for_a_query_that_is_followed_no_more_is_told(logs: Logs) -> None:
    """Its last batch may be committed at the next start alone."""
    logs.batch(0, 1)
    follower = following(logs, FullNode(), NeverTicks())
    follower.start()
    told: Future[bool] = Future()
    waiting = threading.Thread(target=lambda: told.set_result(follower.wait_durable()), daemon=True)
    waiting.start()
    assert not follower.close(0.0)
    assert told.result(HANG_S) is False


def test_what_somebody_is_to_put_right_is_said_until_it_is(logs: Logs) -> None:
    """A topic's manifest was damaged, and is restored."""

    class Damaged(AnyTicks):
        tries = 0

        def tick(self, record: int, stopping: threading.Event) -> TickContent:
            self.tries += 1
            if self.tries == 1:
                raise StateError("manifest 7 is damaged; restore it", Code.STATE_TOPIC)
            return TickContent()

    logs.batch(0, 1)
    node = FullNode(refusals=0)
    follower = following(logs, node, Damaged())
    follower.start()
    assert follower.wait_durable(HANG_S)
    assert follower.close(HANG_S)
    ((said,), nothing) = node.said
    assert (said.text, said.batch, nothing) == ("manifest 7 is damaged; restore it", 0, ())


def test_a_tick_composed_by_what_the_pipeline_was_before_is_composed_anew_once(logs: Logs) -> None:
    """A delay became longer while a batch was composed: the query hears of it, and goes on."""
    logs.batch(0, 1)
    for refusals, goes_on in ((1, True), (2, False)):
        node, ticks = FullNode(RefusalCode.INVALID, refusals), HearingTicks()
        follower = following(logs, node, ticks)
        follower.start()
        if goes_on:
            assert follower.wait_durable(HANG_S)
        else:
            with pytest.raises(TrackingError, match="refused"):
                follower.wait_durable(HANG_S)
        assert follower.close(HANG_S) is goes_on
        assert ticks.composed == ["before", "after it was heard"]


def test_a_query_far_ahead_says_why_it_was_stopped(running: EmbeddedTracker, logs: Logs) -> None:
    logs.batch(0, 1, source="file:///data/in/stray.csv")
    with running.node("p", "parse") as node:
        joined = node.join()
        node.report_waits([WaitCause(WaitKind.UNKNOWN_ITEMS, "1 files, such as stray.csv")])
        follower = Follower(
            "parse", node, CheckpointLog(str(logs.checkpoint)), NeverTicks(), joined,
            is_active=lambda: True, on_end=lambda: None, max_batches_behind=1,
        )  # fmt: skip
        follower.start()
        for batch in range(1, 4):
            logs.batch(batch, batch)
        said = r"batches wait for the tracker \(it waits for 1 files, such as stray.csv\), the limit is 1"
        with pytest.raises(TrackingError, match=said):
            follower.wait_durable(HANG_S)
        follower.close(HANG_S)


def test_a_tracker_that_is_away_when_a_batch_was_refused_is_asked_again(logs: Logs) -> None:
    """What a refused batch can do about what is late, it asks of min time."""
    logs.batch(0, 1)
    node, ticks = FullNode(RefusalCode.BELOW_MIN_TIME), AskingTicks()
    follower = following(logs, node, ticks)
    follower.start()
    assert follower.wait_durable(HANG_S)
    follower.close(HANG_S)
    assert ticks.asked == 2


def test_a_query_whose_node_has_ended_is_not_tried_again_and_says_so(logs: Logs) -> None:
    """As one whose token is not valid any more, or whose tracker has lost what it had acknowledged."""
    logs.batch(0, 1)
    node = FullNode(refusals=0)
    node.failure = LowmarkError("node 'parse': UNAUTHENTICATED")
    node.commit = Mock(side_effect=node.failure)  # type: ignore[method-assign]
    follower = following(logs, node, AnyTicks())
    follower.start()
    with pytest.raises(TrackingError, match="takes no batch any more"):
        follower.wait_durable(HANG_S)
    assert not follower.close(HANG_S)


def test_who_waits_for_a_query_waits_for_its_store(
    logs: Logs, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs.batch(0, 1)
    follower = following(logs, FullNode(refusals=0), AnyTicks())
    follower.start()
    assert follower.wait_durable(HANG_S)
    committed, away = CheckpointLog.committed, threading.Event()
    away.set()
    asked = threading.Semaphore(0)

    def answer(checkpoint: CheckpointLog) -> Any:
        asked.release()
        if away.is_set():
            raise AwayError("away")
        return committed(checkpoint)

    monkeypatch.setattr(CheckpointLog, "committed", answer)
    assert not follower.wait_durable(0)

    def come_back() -> None:
        for _ in range(2):
            asked.acquire(timeout=HANG_S)
        away.clear()

    comes_back = threading.Thread(target=come_back)
    comes_back.start()
    assert follower.wait_durable(HANG_S)
    comes_back.join(HANG_S)
    assert follower.close(HANG_S)


def test_a_query_whose_run_has_ended_says_so(logs: Logs) -> None:
    logs.batch(0, 1)
    node = FullNode()
    follower = following(logs, node, AnyTicks(), is_active=False)
    follower.start()
    assert node.ended.wait(HANG_S)
    assert follower.last_durable_batch == 0
    assert follower.close(HANG_S)


def test_no_batch_is_passed_over_that_a_listing_does_not_show_yet(logs: Logs) -> None:
    """A store may lag, and a listing of several pages is not of one moment: of batches 1 and 2 it shows 2."""
    node, ticks, checkpoint = FullNode(refusals=0), ReadTicks(), CheckpointLog(str(logs.checkpoint))
    files = LaggingFiles(checkpoint.files, str(logs.checkpoint / "commits/1"))
    checkpoint.files = files  # type: ignore[assignment]
    for number in range(3):
        logs.batch(number, number + 1)
    follower = Follower(
        "parse", node, checkpoint, ticks,  # type: ignore[arg-type]
        Joined(NodeKey("parse", 1), PipelineSpec("p", ("parse",)), (), 0, ()),
        is_active=lambda: True, on_end=lambda: None,
    )  # fmt: skip
    follower.start()
    assert files.listed.wait(HANG_S)
    files.unseen = None
    assert follower.wait_durable(HANG_S)
    follower.close(HANG_S)
    assert ticks.batches == [0, 1, 2]


def test_the_last_batch_of_a_query_that_has_ended_is_not_left_to_the_next_run(logs: Logs) -> None:
    """A store may lag, so that a listing does not show the commit of the last batch: whoever closes for good gives up
    the query's front and holds, and what that batch has emitted would not be waited for."""
    node, ticks, checkpoint = FullNode(refusals=0), ReadTicks(), CheckpointLog(str(logs.checkpoint))
    for number in range(3):
        logs.batch(number, number + 1)
    files = LaggingFiles(checkpoint.files, str(logs.checkpoint / "commits/2"), sizes=2)
    checkpoint.files = files  # type: ignore[assignment]
    follower = Follower(
        "parse", node, checkpoint, ticks,  # type: ignore[arg-type]
        Joined(NodeKey("parse", 1), PipelineSpec("p", ("parse",)), (), 0, ()),
        is_active=lambda: False, on_end=lambda: None,
    )  # fmt: skip
    follower.start()
    assert follower.close(HANG_S)
    assert ticks.batches == [0, 1, 2]


class LaggingFiles:
    """Files of which one cannot be seen yet, or at so many looks at its size."""

    MAY_LAG = True

    def __init__(self, files: Files, unseen: str | None, sizes: int = 1 << 30) -> None:
        self._files, self.unseen, self._sizes = files, unseen, sizes
        self.listed = threading.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)

    def names(self, directory: str) -> list[str]:
        found = self._files.names(directory)
        lagging = None if self.unseen is None else Path(self.unseen)
        if lagging is None or str(lagging.parent) != directory or "2" not in found:
            return found
        self.listed.set()
        return [name for name in found if name != lagging.name]

    def seen(self, look: Callable[[], Any]) -> Any:
        return next((found for _ in range(5) if (found := look()) is not None), None)

    def size(self, path: str) -> int | None:
        if path != self.unseen:
            return self._files.size(path)
        self._sizes -= 1
        if not self._sizes:
            self.unseen = None
        return None


class FullNode:
    """Refuses the first ticks, for want of room or as it is told to."""

    waits: tuple[WaitCause, ...] = ()
    failure: LowmarkError | None = None

    def __init__(
        self, code: RefusalCode = RefusalCode.FULL, refusals: int = 1, behind: bool = False
    ) -> None:
        self._code, self._left, self._behind = code, refusals, behind
        self.said: list[tuple[WaitCause, ...]] = []
        self.ended = threading.Event()

    def commit(self, content: TickContent) -> Future[int]:
        future: Future[int] = Future()
        if not self._left:
            future.set_result(1)
        else:
            self._left -= 1
            refusal = Refusal(self._code, "no room")
            future.set_exception(RefusedError(refusal, of_tick=True, behind=self._behind))
        return future

    def report_waits(self, causes: Sequence[WaitCause]) -> None:
        self.said.append(tuple(causes))
        if [cause.kind for cause in causes] == [WaitKind.OTHER]:
            self.ended.set()


class AnyTicks:
    """Batches that mean nothing."""

    def read(self, batch: int) -> int:
        return batch

    def tick(self, record: int, stopping: threading.Event) -> TickContent:
        return TickContent()

    def relabelled(self, record: int, refusal: Refusal) -> TickContent | None:
        return None

    def durable(self, batch: int) -> None:
        return None

    def hear(self) -> None:
        return None


class ReadTicks(AnyTicks):
    """Notes which batches were read."""

    def __init__(self) -> None:
        self.batches: list[int] = []

    def read(self, batch: int) -> int:
        self.batches.append(batch)
        return batch


class HearingTicks(AnyTicks):
    """Batches composed by what was heard of the pipeline before."""

    def __init__(self) -> None:
        self.composed: list[str] = []
        self._said = "before"

    def tick(self, record: int, stopping: threading.Event) -> TickContent:
        self.composed.append(self._said)
        return TickContent()

    def hear(self) -> None:
        if self.composed:
            self._said = "after it was heard"


class AskingTicks(AnyTicks):
    """A batch that another tick is made for, when the tracker answers at the second time."""

    asked = 0

    def relabelled(self, record: int, refusal: Refusal) -> TickContent | None:
        self.asked += 1
        if self.asked == 1:
            raise UnavailableError("it is away")
        return TickContent()


class NeverTicks(AnyTicks):
    """Batches whose ticks wait for ever."""

    def tick(self, record: int, stopping: threading.Event) -> TickContent:
        stopping.wait()
        raise Stopping


# --- the command ----------------------------------------------------------------------------------

Command = Callable[..., Attach]


@pytest.fixture
def command(running: EmbeddedTracker, logs: Logs) -> Iterator[Command]:
    """Starts `lowmark query attach` as a process; none outlives the test."""
    started: list[Attach] = []

    def start(*more: str) -> Attach:
        started.append(Attach(running.target, "p", logs.checkpoint.parent, *more))
        started[-1].start()
        return started[-1]

    yield start
    discard(started)


def test_the_command_waits_for_the_query_to_begin(
    running: EmbeddedTracker, logs: Logs, command: Command
) -> None:
    (logs.checkpoint / "metadata").rename(logs.checkpoint / "later")
    process = command()
    process.until_logs("parse: waits for a query to begin in ")
    (logs.checkpoint / "later").rename(logs.checkpoint / "metadata")
    logs.batch(0, 1)
    await_open_slots(running, 3, 1)
    assert process.stop() == 0, process.errors()
    assert process.lines == [(0, "parse: committed up to batch 0")]


def test_the_command_does_not_wait_for_it_with_once(logs: Logs, command: Command) -> None:
    (logs.checkpoint / "metadata").unlink()
    process = command("--once")
    assert process.end() == 1
    assert "metadata does not exist" in process.errors()


def test_the_command_ends_by_a_signal_though_a_batch_waits(
    running: EmbeddedTracker, logs: Logs, command: Command
) -> None:
    """The slot of what batch 1 read is not known before whoever wrote it has told."""
    logs.batch(0, 1)
    logs.batch(1, 2, source="file:///data/in/nobody-told.parquet")
    process = command("--once")
    await_open_slots(running, 3, 1)
    assert process.stop() == 1
    assert process.lines == [(0, "parse: committed up to batch 0")]
    assert "parse: some batches that are over are not committed" in process.errors()


def test_the_command_follows_ranges_of_offsets(running: EmbeddedTracker, tmp_path: Path) -> None:
    """Of a query over Kafka, say, whose records a front has labelled."""
    journal, checkpoint = str(tmp_path / "ranges"), tmp_path / "cp"
    for folder in ("offsets", "commits"):
        (checkpoint / folder).mkdir(parents=True)
    (checkpoint / "metadata").write_text(json.dumps({"id": QUERY}))
    running.register(PipelineSpec("log", ("parse",), fronts=("topic",)))
    with RangeFront(
        running.target, "log", "topic", "parse", journal, options=FrontOptions(clock=lambda: 0)
    ) as front:
        front.publish({"flights/0": 8, "flights/1": 9})
        front.publish({"flights/0": 16})
        for batch, ends in enumerate(([5, 0], [16, 9])):
            offsets = json.dumps({"flights": {str(p): end for p, end in enumerate(ends)}})
            (checkpoint / f"offsets/{batch}").write_text(
                f'v1\n{{"batchTimestampMs":1700000000000}}\n{offsets}'
            )
            (checkpoint / f"commits/{batch}").write_text('v1\n{"nextBatchWatermarkMs":0}')
        command = (
            "query", "attach", "--target", running.target, "--pipeline", "log", "--node-id", "parse",
            "--checkpoint", str(checkpoint), "--once",
        )  # fmt: skip
        told = lowmark(*command, "--set", f"ranges=0=parse:{journal}")
        assert told.returncode == 0, told.stderr
        nothing = lowmark(*command)
        assert nothing.returncode == 2
        assert "--reads, ranges, or both" in nothing.stderr
        front.leave()
    with running.subscriber("log") as subscriber:
        assert subscriber.wait_until(FOREVER, timeout_s=HANG_S)


def test_the_command_follows_a_query_that_reads_topics(
    running: EmbeddedTracker, tmp_path: Path
) -> None:
    """Two of them, by one source; their fronts have recorded in a directory what they label."""
    checkpoint, topics = tmp_path / "cp", str(tmp_path / "topics")
    for folder in ("offsets", "commits"):
        (checkpoint / folder).mkdir(parents=True)
    (checkpoint / "metadata").write_text(json.dumps({"id": QUERY}))
    running.register(PipelineSpec("log", ("parse",), fronts=("orders", "returns")))
    fronts = []
    for name in ("orders", "returns"):
        topic = FakeTopic(name)
        front = KafkaFront(running.target, "log", name, "parse", topic, topics)
        fronts.append((topic, front))
    start_all(*(front for _, front in fronts))
    for topic, front in fronts:
        topic.now = {0: 7}
        front.leave()
    offsets = json.dumps({"orders": {"0": 7}, "returns": {"0": 7}})
    (checkpoint / "offsets/0").write_text(f'v1\n{{"batchTimestampMs":1700000000000}}\n{offsets}')
    (checkpoint / "commits/0").write_text('v1\n{"nextBatchWatermarkMs":0}')
    command = (
        "query", "attach", "--target", running.target, "--pipeline", "log", "--node-id", "parse",
        "--checkpoint", str(checkpoint), "--once", "--set", "topic=0=parse:orders",
    )  # fmt: skip
    nowhere = lowmark(*command)
    assert nowhere.returncode == 2 and "needs topics" in nowhere.stderr
    told = lowmark(*command, "--set", "topic=0=parse:returns", "--set", f"topics={topics}")
    assert told.returncode == 0, told.stderr
    with running.subscriber("log") as subscriber:
        assert subscriber.wait_until(FOREVER, timeout_s=HANG_S)


def test_state_is_held_only_where_it_is_given_how_far_event_times_run_ahead(
    running: EmbeddedTracker, logs: Logs
) -> None:
    logs.batch(0, 1)
    with pytest.raises(TrackingError, match="ahead=1m"):
        attached(running, logs, state=HeldFor(5_000, 10_000))
    query = attached(running, logs, state=HeldFor(5_000, 10_000, 60_000)).start()
    assert query.wait_durable(HANG_S)
    assert query.close()
    with NodeClient(running.target, "p", "parse") as node:
        (held,) = node.check_join(HANG_S).holds
    assert bound_of(held.name) == 1_700_000_000_000 + 60_000 + 10_001  # when its batch was planned


def test_all_that_is_over_when_it_is_closed_is_committed(
    running: EmbeddedTracker, logs: Logs
) -> None:
    """Not the next batch alone: a query that ends, and leaves, has nothing left behind."""
    for number in range(4):
        logs.batch(number, number + 1)
    query = attached(running, logs).start()
    assert query.close()
    assert query.last_durable_batch == 3
