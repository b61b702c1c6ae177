"""A driver that kills itself and its JVM by SIGKILL at one place of the commit order.

    python -m tests.spark_matrix.driver TARGET PIPELINE DIRECTORY SINK POINT BATCH MASTER PARTITIONS

SINK is `file` or `writer`. POINT is a `Moment`, at which batch BATCH finds its end:

    tasks     the input is fixed (`offsets/N`), and a task begins
    sink      the tasks are over, the sink has not committed
    commit    the sink has committed, `commits/N` is not there
    tick      `commits/N` is there, the tick was not handed over
    sent      the tick was handed over, and no answer awaited
    durable   the tick is durable
    none      nowhere: it runs to the end of the input

It ends with status 3 if the place was missed.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from examples.history import Recorder
from local_tracker import acks
from local_tracker.spark.session.tracked import Tracked, TrackedQuery
from tests.spark.support import SCHEMA, parse_operator
from tests.spark_matrix.recording import recording
from tests.spark_matrix.registry import Profile
from tests.spark_matrix.sessions import make_session
from tracker.testing.killing import Killer
from tracker.testing.moments import MISSED, Moment

AFTER = "after"
"""The segment of who reads the sink."""

_never = lambda batch: False  # noqa: E731


def start(
    spark: SparkSession, tracked: Tracked, directory: Path, sink: str, task: Any = None,
    written: Any = _never,
) -> TrackedQuery:  # fmt: skip
    """The query: one file a batch, so that batch N is the front's file N; its code acknowledges."""
    frame = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
    frame = frame.parquet(str(directory / "in"))
    if task is not None:
        frame = frame.mapInArrow(task, SCHEMA)
    frame = frame.mapInArrow(parse_operator(), SCHEMA).repartition("row")
    if sink == "file":
        writer = frame.writeStream.format("parquet").option("path", str(directory / "out"))
    else:
        publish = tracked.writer(str(directory / "out"))

        def each_batch(rows: DataFrame, batch: int) -> None:
            publish(rows, batch)
            written(batch)

        writer = frame.writeStream.foreachBatch(each_batch)
    writer = writer.option("checkpointLocation", str(directory / "cp"))
    return tracked.start(writer, node_id="parse", reads="parse", creates=[AFTER])


def main(
    target: str, pipeline: str, directory: Path, sink: str, point: str, batch: int, master: str,
    partitions: str,
) -> None:  # fmt: skip
    profile = Profile("driver", master, {"spark.sql.shuffle.partitions": partitions})
    spark = make_session(profile, directory / "spark")
    killer, moment = Killer.here(batch), None if point == "none" else Moment(point)
    recorder = Recorder(directory / "history" / f"driver-{os.getpid()}.jsonl")
    if moment and not (moment is Moment.SINK and sink == "file"):
        killer.plant(moment)
    with recording(lambda _: recorder):
        tracked = Tracked(spark, target, pipeline)
        tracked.track(acks)
        task = killer.in_task() if point == "tasks" else None
        written = killer.die_at if point == "commit" else _never
        query = start(spark, tracked, directory, sink, task, written)
        if moment and sink == "file" and moment in (Moment.SINK, Moment.COMMIT):
            watched = (moment, directory / "out", directory / "cp")
            threading.Thread(target=killer.watch_files, args=watched, daemon=True).start()
        query.processAllAvailable()
        query.stop()
    spark.stop()
    sys.exit(0 if point == "none" else MISSED)


if __name__ == "__main__":
    main(
        sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4], sys.argv[5], int(sys.argv[6]),
        sys.argv[7], sys.argv[8],
    )  # fmt: skip
