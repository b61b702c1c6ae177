"""A Spark front: a raw stream labelled by the timestamps of its batches."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from threading import Event

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

import tracker
from fronts.front import FrontOptions
from fronts.spark import SparkFront
from local_tracker.spark.formats.published import PublishedBatches
from local_tracker.spark.query.compose import BatchUnits, CreatedUnit
from local_tracker.spark.query.labels import FrontLabels
from local_tracker.spark.query.logs import CheckpointLog
from tests.spark.written_logs import QUERY, Logs
from tests.waits import HANG_S, until
from tracker.client import Admin, NodeClient
from tracker.core.log import Joined
from tracker.core.model import (
    Heartbeat,
    NodeKey,
    PipelineSpec,
    Refusal,
    RefusalCode,
    TickContent,
)
from tracker.core.model.units import file_name
from tracker.errors import RefusedError, StateError, TrackingError

SCHEMA = "timestamp timestamp, value long"
SLACK_NS = 10_000_000


def test_labels_never_go_below_what_was_promised() -> None:
    labels = FrontLabels(100)
    assert labels.label(0, 40) == 100  # the grant
    assert labels.promise(150) == 100  # held by the open batch
    assert labels.label(0, 160) == 100  # asked again
    labels.close(0)
    assert labels.promise(150) == 150
    assert labels.label(1, 149) == 150
    labels.close(1)
    assert labels.promise(120) == 150  # a clock that steps back


def test_labels_and_promises_are_whole_times() -> None:
    labels = FrontLabels(101, rounds=4)
    assert labels.lowest_slot == 104
    assert labels.label(0, 40) == 104
    labels.close(0)
    assert labels.promise(115) == 112
    assert labels.label(1, 118) == 116


def test_what_an_earlier_driver_published_holds_promises() -> None:
    labels = FrontLabels(100)
    labels.reopen(7, 105)
    assert labels.label(7, 300) == 105
    assert labels.promise(200) == 105
    labels.close(7)
    assert labels.promise(200) == 200


def test_what_was_published_before_an_eviction_is_refused_or_passed_over(tmp_path: Path) -> None:
    """The tick of such a batch creates nothing, and lets those behind it be committed."""
    strict, lenient = (
        SparkFront(
            "127.0.0.1:1",
            "p",
            "f",
            "parse",
            str(tmp_path),
            options=FrontOptions(pass_over_late=passes),
        )
        for passes in (False, True)
    )
    late, in_time = (
        BatchUnits("q", batch, b"f", (), (CreatedUnit(f"file-{batch}", (0,)),), {0: slot})
        for batch, slot in ((7, 99), (8, 100))
    )
    for front in (strict, lenient):
        front._node = NodeClient("127.0.0.1:1", "p", "f")
        front._segment_number, front._labels = 0, FrontLabels(100)  # as it was granted
        assert len(front.tick(in_time, Event()).created) == 1
    assert len(strict.tick(late, Event()).created) == 1
    strict._node._joined = Joined(NodeKey("f", 2), PipelineSpec("p", ("parse",)), (), 0, ())
    refusal = Refusal(RefusalCode.BELOW_MIN_TIME, "slot 99 is below 100")
    with pytest.raises(TrackingError, match="pass_over_late=True"):
        strict.relabelled(late, refusal)
    passed = lenient.tick(late, Event())
    assert (len(passed.created), passed.units_created) == (0, ())
    assert passed.batch is not None and passed.batch.id == 7
    assert lenient.late_batches == [7] and not strict.late_batches


@pytest.mark.parametrize("has_committed", [True, False])
def test_what_a_query_of_another_checkpoint_has_published_is_committed(
    tmp_path: Path, has_committed: bool
) -> None:
    """Batch 1 of a query was published, its driver was killed, and the front has got a new checkpoint: readers may have
    read the batch, and consume it."""

    def written(folder: str) -> None:
        Path(folder).mkdir(parents=True)
        (Path(folder) / "part-0.parquet").touch()

    def named(name: str, *_: object) -> str:
        return name

    with tracker.embedded() as running, running.node("p", "f") as node:
        running.register(PipelineSpec("p", ("parse",), fronts=("f",)))
        node.join()
        front = SparkFront(running.target, "p", "f", "parse", str(tmp_path))
        front._node, front._segment_number = node, 0
        front._labels = FrontLabels.joined(node, "f", "parse")
        published = PublishedBatches(str(tmp_path))
        for batch in (0, 1):
            name = file_name(5 + batch, "f.0", batch, "parquet")
            published.publish("old", batch, "{}", "run", written, partial(named, name), 5 + batch)
        front._checkpoint = CheckpointLog(str(tmp_path / "cp"))
        (tmp_path / "cp").mkdir()
        (tmp_path / "cp/metadata").write_text('{"id": "old"}')
        front._make_known(())
        if has_committed:
            node.commit(
                front.tick(front._record("old", 0, published.manifest("old", 0), "{}"), Event())
            ).result(HANG_S)
        for _ in range(2):  # the second time there is nothing left
            front._commit_left(node.join().last_batches)
            until(
                lambda: [s.open_slots for s in running.admin().pipeline("p").state.segments] == [2]
            )


@pytest.mark.parametrize("wins", ["before", "now"])
def test_what_a_driver_of_before_is_publishing_still_holds_promises(
    tmp_path: Path, wins: str
) -> None:
    """A driver stands just before its manifest, and another one has begun on its checkpoint: whose manifest comes first,
    its batch is created, and nothing was promised beyond it."""
    logs = Logs(tmp_path)
    logs.batch(0, 1)
    (logs.checkpoint / "commits/0").unlink()
    with tracker.embedded() as running:
        running.register(PipelineSpec("p", ("parse",), fronts=("f",), slack_ns=SLACK_NS))

        def begun() -> SparkFront:
            front = SparkFront(running.target, "p", "f", "parse", str(tmp_path / "raw"))
            front._node, front._segment_number = running.node("p", "f"), 0
            front._slack_ns = front._node.join().spec.slack_ns
            front._labels = FrontLabels.joined(front._node, "f", "parse")
            front._checkpoint = CheckpointLog(str(logs.checkpoint))
            front._reopen(-1)
            return front

        before = begun()
        offsets = before._checkpoint.offsets(0)
        label = before._label(offsets)
        now = begun()
        promise = now._labels.promise(label + 1_000)
        now._node.commit(TickContent(heartbeats=(Heartbeat("f", promise),))).result(HANG_S)
        if wins == "now":
            label = now._label(offsets)

        def written(folder: str) -> None:
            Path(folder).mkdir(parents=True)
            (Path(folder) / "part-0.parquet").touch()

        now._batches.publish(
            QUERY, 0, offsets.text, "run", written,
            lambda *_: file_name(label, "f.0", 0, "parquet"), label,
        )  # fmt: skip
        now._node.commit(now.tick(now.read(0), Event())).result(HANG_S)
        for front in (before, now):
            front._node.close()


def test_what_was_published_and_is_not_known_any_more_is_not_taken_for_nothing(
    tmp_path: Path,
) -> None:
    """Somebody has emptied the directory, with what says what is in it."""
    front = SparkFront("127.0.0.1:1", "p", "f", "parse", str(tmp_path))
    front._segment_number = 0
    with pytest.raises(TrackingError, match=r"batch 3 is over, and nothing in .* tells any more"):
        front.tick(front._record("q", 3, front._batches.manifest("q", 3), "{}"), Event())
    front._last_of_before, front._labels = 3, FrontLabels(100)  # it was no front then
    assert not front.tick(front._record("q", 3, None, "{}"), Event()).created.size


def raw(spark: SparkSession, checkpoint: Path) -> DataStreamWriter:
    return (
        spark.readStream.format("rate")
        .option("rowsPerSecond", 20)
        .load()
        .writeStream.option("checkpointLocation", str(checkpoint))
        .trigger(processingTime="300 milliseconds")
    )


def until_a_batch_is_over(query: StreamingQuery, checkpoint: Path) -> None:
    """Not `processAllAvailable`: on a slow machine the source has more, whatever was processed."""
    until(lambda: (checkpoint / "commits/0").exists() or not query.isActive)
    assert query.isActive, query.exception()


def test_stopping_before_starting_is_an_error(target: str, tmp_path: Path) -> None:
    front = SparkFront(target, "rate", "never", "parse", str(tmp_path))
    with pytest.raises(AssertionError, match="was not started"):
        front.stop()


def test_a_copy_of_a_front_does_not_stop_the_one_that_runs(
    spark: SparkSession, target: str, tmp_path: Path
) -> None:
    with Admin(target) as admin:
        admin.register(PipelineSpec("copied", ("parse",), fronts=("rate",), slack_ns=SLACK_NS))
    front = SparkFront(target, "copied", "rate", "parse", str(tmp_path / "raw"))
    query = front.start(raw(spark, tmp_path / "cp"))
    with pytest.raises(StateError, match="this SparkFront has been started already"):
        front.start(raw(spark, tmp_path / "cp-copy"), take_over=True)
    copy = SparkFront(target, "copied", "rate", "parse", str(tmp_path / "raw"))
    with pytest.raises(RefusedError, match=f"runs for {str(query.id)!r}.*take_over=True"):
        copy.start(raw(spark, tmp_path / "cp-copy"))
    assert not (tmp_path / "cp-copy").exists()
    until_a_batch_is_over(query, tmp_path / "cp")
    assert front.wait_durable(HANG_S) and front.failure is None
    later = SparkFront(target, "copied", "rate", "parse", str(tmp_path / "raw"))
    newer = later.start(raw(spark, tmp_path / "cp-copy"), take_over=True)
    until_a_batch_is_over(newer, tmp_path / "cp-copy")
    assert later.wait_durable(HANG_S) and later.failure is None
    later.stop(leave=True)
    query.stop()
