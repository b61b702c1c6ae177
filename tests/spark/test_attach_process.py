"""`lowmark query attach` beside a real query that knows nothing of Lowmark, killed and started again.

The command runs where PySpark cannot be imported.
"""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming import DataStreamWriter

from local_tracker.spark.query.logs import CheckpointLog, SinkLog
from local_tracker.spark.session.tracked import Tracked
from tests.spark.conftest import Pipelines
from tests.spark.support import SCHEMA, Attach, Pipeline
from tests.waits import HANG_S
from tracker.client import NodeClient
from tracker.core.model import Cells, TickContent
from tracker.core.model.ack_values import unit_value


@pytest.fixture
def pipeline(pipelines: Pipelines) -> Pipeline:
    return pipelines("parse", "after")


def once(pipeline: Pipeline, *more: str) -> str:
    """Tells what there is to tell; returns what it has said."""
    with Attach(pipeline.target, pipeline.name, pipeline.directory, "--once", *more) as attach:
        attach.ends_well()
    return "\n".join(line for _, line in attach.lines)


def plain(spark: SparkSession, pipeline: Pipeline) -> DataStreamWriter:
    """An ordinary query: a file a batch, copied to Parquet."""
    directory = pipeline.directory
    return (
        spark.readStream.schema(SCHEMA)
        .option("maxFilesPerTrigger", 1)
        .parquet(pipeline.input)
        .writeStream.format("parquet")
        .option("path", str(directory / "out"))
        .option("checkpointLocation", str(directory / "cp"))
    )


def run(writer: DataStreamWriter) -> None:
    """Until it has read all that there is."""
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()


def test_followed_and_tracked_by_turns_counts_once(spark: SparkSession, pipeline: Pipeline) -> None:
    """Both name a batch alike, so whoever comes second finds it told."""
    directory = pipeline.directory
    tracked = Tracked(spark, pipeline.target, pipeline.name)
    for slot, follows in ((10, True), (20, False), (30, True)):
        pipeline.publish(slot)
        if follows:
            run(plain(spark, pipeline))
            once(pipeline)
        else:
            query = tracked.start(
                plain(spark, pipeline), node_id="parse", reads="parse", creates=["after"]
            )
            query.processAllAvailable()
            query.stop()
    assert '"last_batch": 2' in once(pipeline, "--json")
    consume_downstream(pipeline, str(directory / "cp"), str(directory / "out"))
    pipeline.leave()
    pipeline.assert_finished()


def consume_downstream(pipeline: Pipeline, checkpoint: str, out: str) -> None:
    """A plain reader of the sink takes out what attach must have put in, each file once."""
    names = [
        n for batch in CheckpointLog(checkpoint).committed() for n in SinkLog(out).created(batch)
    ]
    with NodeClient(pipeline.target, pipeline.name, "reader") as node:
        node.join(HANG_S)
        segment = node.segment("after")
        slots = node.resolve_units("after", names, 1_000)
        assert set(slots) == set(names)
        cells = Cells.of((segment, slots[name], unit_value(name), 1) for name in names)
        node.commit(TickContent(consumed=cells)).result(HANG_S)
