"""A source with partitioned offsets and the front of its log, on real Spark.

The source makes up its rows as they are read, so its front need not: it publishes ranges of its own, of
which no batch reads one as a whole.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming import DataStreamWriter

from fronts.ranges import RangeFront
from local_tracker.spark.formats.ranges import OffsetRanges, PublishedRanges
from local_tracker.spark.query.logs import CheckpointLog
from local_tracker.spark.session.options import TrackingOptions
from local_tracker.spark.session.tracked import Tracked, TrackedQuery
from tests.cluster.children import now_slot
from tests.waits import HANG_S
from tracker.client import Admin, Subscriber
from tracker.core.model import PipelineSpec
from tracker.core.model.slots import FOREVER

ROWS_PER_BATCH = 10
PARTITION = "offset"
NOW = now_slot()


@pytest.fixture
def registered(target: str, request: pytest.FixtureRequest) -> Iterator[str]:
    name = request.node.name
    with Admin(target) as admin:
        admin.register(PipelineSpec(name, ("parse",), fronts=("log",), start_slot=NOW))
        yield name


class Query:
    """The tracked query, started as often as is wanted."""

    def __init__(self, spark: SparkSession, target: str, pipeline: str, directory: str) -> None:
        self._tracked = Tracked(spark, target, pipeline)
        self._spark, self._directory = spark, directory
        self.journal = f"{directory}/ranges"
        self.checkpoint = CheckpointLog(f"{directory}/cp")

    def start(self) -> TrackedQuery:
        # The offset holds the time of its last row too, which is no partition.
        slots = PublishedRanges(self.journal).slots
        source = OffsetRanges("parse", slots, only=frozenset({PARTITION}))
        options = TrackingOptions(ranges={"0": source})
        return self._tracked.start(self._writer(), node_id="parse", reads={}, options=options)

    def _writer(self) -> DataStreamWriter:
        return (
            self._spark.readStream.format("rate-micro-batch")
            .option("rowsPerBatch", ROWS_PER_BATCH)
            .load()
            .writeStream.format("parquet")
            .option("path", f"{self._directory}/out")
            .option("checkpointLocation", f"{self._directory}/cp")
            .trigger(availableNow=True)  # one batch
        )

    def run(self) -> TrackedQuery:
        """One batch more. Not all of it need be published yet."""
        running = self.start()
        running.query.awaitTermination()
        return running


def test_ranges_of_a_real_source(
    spark: SparkSession, target: str, registered: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    query = Query(spark, target, registered, str(tmp_path_factory.mktemp("log")))
    with (
        Subscriber(target, registered) as subscriber,
        RangeFront(target, registered, "log", "parse", query.journal) as front,
    ):
        front.publish({PARTITION: 7})
        front.publish({PARTITION: 14})
        query.run().stop()  # up to 10
        running = query.run()  # up to 20, and its tick waits for who publishes from 14 on
        assert not running.wait_durable(0)
        assert running.last_durable_batch == 0
        front.publish({PARTITION: 17})
        assert not running.wait_durable(0)
        front.publish({PARTITION: 30})
        assert running.wait_durable(HANG_S)
        running.stop()
        query.run().stop()  # up to 30
        front.leave()
        assert subscriber.wait_until(FOREVER, timeout_s=HANG_S)
    ends = [json.loads(query.checkpoint.offsets(b).sources["0"] or "") for b in range(3)]
    assert [end[PARTITION] for end in ends] == [10, 20, 30]
    with Admin(target) as admin:
        (segment,) = admin.pipeline(registered).state.segments
    assert (segment.open_slots, segment.open_items) == (0, 0)
