"""What a state repartition would be refused for, said before anything is stopped or changed. That one
is done rightly while input comes, the matrix shows (rows 4.2 and 4.8)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from local_tracker.spark import versions
from local_tracker.spark.session.rescaling import (
    ROCKSDB,
    check_rescale,
    checkpoint_state,
    repartition_state,
    rescale_query,
)
from tests.waits import HANG_S
from tracker.errors import TrackingError

PACKAGE = "org.apache.spark.sql.execution.streaming.state"
HDFS = f"{PACKAGE}.HDFSBackedStateStoreProvider"
SETTINGS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.stateStore.providerClass": f"{PACKAGE}.{ROCKSDB}",
}


def checkpoint(
    root: Path, *, begun: int = 3, committed: int = 3, provider: str = f"{PACKAGE}.{ROCKSDB}",
    state: bool = True,
) -> Path:  # fmt: skip
    """A checkpoint as Spark writes one, as far as it is looked at."""
    for name, last in (("offsets", begun), ("commits", committed)):
        (root / name).mkdir(parents=True)
        for batch in range(last + 1):
            settings = {
                "spark.sql.shuffle.partitions": "2",
                "spark.sql.streaming.stateStore.providerClass": provider,
            }
            head = {"batchWatermarkMs": 0, "batchTimestampMs": 1, "conf": settings}
            (root / name / str(batch)).write_text(f"v1\n{json.dumps(head)}\n{{}}\n")
            (root / name / f".{batch}.crc").touch()
    if state:
        (root / "state").mkdir()
    return root


class Untouchable:
    """A query that must not be stopped."""

    def stop(self) -> None:
        raise AssertionError("it was stopped")


def test_a_checkpoint_says_what_its_query_is_at(tmp_path: Path) -> None:
    state = checkpoint_state(checkpoint(tmp_path, begun=4))
    assert (state.begun, state.committed, state.partitions, state.stateful) == (4, 3, 2, True)
    assert state.provider.endswith(ROCKSDB)


def test_a_directory_without_batches_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TrackingError, match=r"holds no batch.*has the query run"):
        checkpoint_state(tmp_path)


@pytest.mark.parametrize(
    ("made", "partitions", "why"),
    [
        ({"state": False}, 4, "keeps no state"),
        ({"provider": HDFS}, 4, "HDFSBackedStateStoreProvider; only that of RocksDBStateStore"),
        ({"provider": ""}, 4, "a provider that is not noted"),
        ({}, 2, "has 2 partitions already"),
        ({}, 0, "0 state partitions: from 1 to"),
        ({}, 100_001, "100001 state partitions: from 1 to 100000 can be"),
    ],
)
def test_what_spark_would_refuse_is_refused_before_the_query_is_stopped(
    spark: SparkSession, tmp_path: Path, made: dict[str, object], partitions: int, why: str
) -> None:
    root = checkpoint(tmp_path, **made)  # type: ignore[arg-type]
    with pytest.raises(TrackingError, match=why):
        check_rescale(spark, root, partitions)

    def start(**trigger: bool) -> None:
        raise AssertionError("it was started")

    with pytest.raises(TrackingError, match=why):
        rescale_query(spark, Untouchable(), start, root, partitions)


def test_a_query_runs_on_where_the_moment_to_rescale_at_is_not_reached(
    spark: SparkSession, tmp_path: Path
) -> None:
    """`Subscriber.wait_until` says so by False."""
    root = checkpoint(tmp_path)

    def start(**trigger: bool) -> None:
        raise AssertionError("it was started")

    with pytest.raises(TrackingError, match="was not reached in time; the query runs on"):
        rescale_query(spark, Untouchable(), start, root, 4, reached=lambda: False)
    assert checkpoint_state(root).partitions == 2


def test_a_batch_that_is_under_way_is_finished_first_or_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    root = checkpoint(tmp_path, begun=4)
    with pytest.raises(TrackingError, match=r"batch 4 has begun and is not over.*availableNow"):
        repartition_state(spark, root, 4)
    started: list[dict[str, bool]] = []

    class Query:
        def stop(self) -> None: ...

        def awaitTermination(self, timeout_s: int) -> bool:
            return False

    def start(**trigger: bool) -> Query:
        started.append(trigger)
        return Query()

    with pytest.raises(TrackingError, match=r"batch 4.*was not over after 5 s"):
        rescale_query(
            spark, Query(), start, root, 4, finish_timeout_s=5
        )  # expires: the stub decides
    assert started == [{"availableNow": True}], "it is not started again behind the caller's back"


def counted(spark: SparkSession, root: Path) -> StreamingQuery:
    """A query that keeps state, over one more row than there was."""
    (root / "in").mkdir(exist_ok=True)
    (root / "in" / f"{len(list((root / 'in').iterdir()))}.json").write_text('{"row": 1}')
    frame = spark.readStream.schema("row INT").json(str(root / "in")).groupBy("row").count()
    writer = frame.writeStream.format("noop").outputMode("update").trigger(availableNow=True)
    return writer.option("checkpointLocation", str(root / "checkpoint")).start()


def test_a_repartition_that_was_killed_is_taken_up_by_the_same_number(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark starts the query only when it is over, and so does `rescale_query`, whose query is finished by nobody."""
    repartition, root = versions.repartition, tmp_path / "checkpoint"

    def killed(spark: SparkSession, where: str, partitions: int) -> None:
        repartition(spark, where, partitions)
        batch = checkpoint_state(root).begun
        for name in (f"{batch}", f".{batch}.crc"):
            (root / "commits" / name).unlink()
        raise OSError("the disk is full")

    monkeypatch.setattr(versions, "repartition", killed)
    before = {name: spark.conf.get(name) for name in SETTINGS}
    for name, value in SETTINGS.items():
        spark.conf.set(name, value)
    try:
        query = counted(spark, tmp_path)
        assert query.awaitTermination(HANG_S)
        with pytest.raises(TrackingError, match=r"repeat it with 3 when this is mended: .*full"):
            repartition_state(spark, root, 3)
        assert checkpoint_state(root).unfinished
        with pytest.raises(TrackingError, match=r"a repartition to 3 .* is not over.*repeat it"):
            check_rescale(spark, root, 4)
        monkeypatch.undo()
        again, done = rescale_query(
            spark, query, lambda **trigger: counted(spark, tmp_path), root, 3
        )
        assert (done.to_partitions, done.batch) == (3, 1)
        assert again.awaitTermination(HANG_S) and checkpoint_state(root).committed == 2
        with pytest.raises(TrackingError, match="has 3 partitions already"):
            check_rescale(spark, root, 3)
    finally:
        for name, given in before.items():
            spark.conf.set(name, given)
