"""As `test_found_two_writers`, with Spark: a function of `foreachBatch` fails between its two writers, and its query is started
again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import DataFrame, SparkSession

from local_tracker import acks
from local_tracker.spark.session.tracked import Tracked
from tests.spark.conftest import Pipelines, TrackedIn
from tests.spark.support import SCHEMA, Batches
from tests.waits import HANG_S
from tracker.client import Subscriber
from tracker.core.model import Edge
from tracker.core.model.ack_values import child_values


def test_what_the_second_writer_has_evaluated_counts(
    pipelines: Pipelines, tracked_in: TrackedIn, spark: SparkSession, tmp_path: Path
) -> None:
    @acks.operator("audit")
    def audit(batches: Batches) -> Batches:
        """Hands each row to those who look at it by hand, in segment `side`."""
        for batch in batches:
            slots, rows = (batch.column(place).to_numpy() for place in (0, 1))
            acks.create("side", slots, child_values(rows.astype(np.uint64), "audit", 0))
            yield batch

    @acks.operator("parse")
    def parse(batches: Batches) -> Batches:
        yield from batches

    pipeline = pipelines("parse", "side", edges=(Edge("parse", "side"),))
    tracked = tracked_in(pipeline)
    tracked.track(acks)
    failing = [True]

    def start(tracked: Tracked):  # type: ignore[no-untyped-def]
        first = tracked.writer(str(tmp_path / "parsed"), "json")
        second = tracked.writer(str(tmp_path / "audited"), "json")

        def each_batch(frame: DataFrame, batch: int) -> None:
            first(frame.mapInArrow(parse, SCHEMA), batch)
            if failing.pop() if failing else False:
                raise OSError("the driver is killed here")
            second(frame.mapInArrow(audit, SCHEMA), batch)

        stream = spark.readStream.schema(SCHEMA).parquet(pipeline.input)
        return tracked.start(
            stream.writeStream.foreachBatch(each_batch).option(
                "checkpointLocation", str(tmp_path / "cp")
            ),
            node_id="parse", reads="parse",
        )  # fmt: skip

    pipeline.publish(3)
    query = start(tracked)
    with pytest.raises(Exception, match="killed here"):
        query.processAllAvailable()
    query.stop()
    query = start(tracked)
    query.processAllAvailable()
    query.stop()
    assert spark.read.json(str(tmp_path / "audited")).count() == 3
    with Subscriber(pipeline.target, pipeline.name) as subscriber:
        assert subscriber.wait_until(4, "parse", HANG_S)
        assert not subscriber.wait_until(4, "side", 1), "three rows are open there"
