"""What the state of a query holds of a backlog that it takes in one batch: `python -m benchmarks.state_backlog`.

An hour of slots in 60 files, windows that take ten of them, a watermark that is half a file behind.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from pyspark.sql import functions as F

from local_tracker.spark.session.tracked import Tracked
from local_tracker.spark.state import backlog
from tests.cluster.tracker import Tracker
from tests.spark.support import Pipeline
from tests.spark_matrix.registry import LOCAL
from tests.spark_matrix.sessions import make_session
from tracker.client import NodeClient

MINUTE = 6_000
"""In slots of 10 ms, by which files are labelled."""
FILES = 60
WAIT_S = 60.0


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        spark = make_session(LOCAL, root / "spark")
        tracker = Tracker(root / "tracker", 1).start()
        try:
            for most in (0, backlog.MAX_FILES):
                measure(spark, tracker.target, root / f"run-{time.monotonic_ns()}", most)
        finally:
            spark.stop()
            tracker.close()


def measure(spark, target: str, root: Path, most: int) -> None:  # type: ignore[no-untyped-def]
    """Prints by how much the lowest slot that is held lies behind the last, after the batch that evicts."""
    backlog.MAX_FILES = most
    root.mkdir()
    pipeline = Pipeline(target, root.name, root, ("in", "report"))
    try:
        for minute in range(FILES):
            pipeline.publish(minute * MINUTE)
        rows = spark.readStream.schema("slot long, row long").parquet(pipeline.input)
        timed = rows.select(F.timestamp_millis("slot").alias("at"))
        # A slot of 10 ms counts as a millisecond of event time: ten files make a minute.
        windows = timed.withWatermark("at", "3 seconds").groupBy(F.window("at", "1 minute")).count()
        writer = windows.writeStream.format("parquet").option("path", str(root / "out"))
        writer = writer.option("checkpointLocation", str(root / "cp"))
        tracked = Tracked(spark, target, pipeline.name)
        query = tracked.start(writer, node_id="windows", reads="in", creates=["report"])
        query.processAllAvailable()
        while query.last_durable_batch < 1:
            time.sleep(0.005)
        with NodeClient(target, pipeline.name, "windows") as node:
            lowest = min(each.slot for each in node.check_join(WAIT_S).holds)
        query.stop()
        held = "each file by itself" if most else "all files together"
        behind = FILES - 1 - lowest // MINUTE
        print(f"{held}: {behind} of {FILES} min held behind the last file")
    finally:
        pipeline.close()


if __name__ == "__main__":
    main()
