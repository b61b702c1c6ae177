"""A program in a Spark Connect session, whose server is started for it.

    python -m tests.spark_matrix.connected TARGET PIPELINE DIRECTORY POINT

It copies the front's files to `out` by a tracked query, one a batch. POINT is `kill`: then it and the
server are killed by SIGKILL when Spark has done all batches, whatever is told of them; or `end`: then a job
copies `out` to `report`, and all that such a session cannot track is tried. It prints one JSON object, with
what Lowmark refused.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import SparkSession

from examples.history import Recorder
from local_tracker import acks
from local_tracker.spark.session.tracked import Tracked
from tests.spark.support import SCHEMA
from tests.spark_matrix.recording import recording
from tests.spark_matrix.sessions import SETTINGS
from tracker.errors import TrackingError

NOWHERE = "sc://127.0.0.1:9"
"""A server that is not there: PySpark 3.5 comes without one, and is refused before it is asked."""


def connected(directory: Path, cores: int = 2) -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_HOME"] = os.path.dirname(pyspark.__file__)
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["SPARK_TESTING"] = "1"  # the server takes a port of its own
    if pyspark.__version__.startswith("3."):
        from pyspark.sql.connect.session import SparkSession as Client

        return Client(NOWHERE)  # a builder would ask the server
    builder = SparkSession.builder.remote(f"local[{cores}]")
    settings = {**SETTINGS, "spark.sql.warehouse.dir": str(directory / "warehouse")}
    for setting, value in settings.items():
        builder = builder.config(setting, value)
    return builder.getOrCreate()


class Program:
    def __init__(self, spark: SparkSession, tracked: Tracked, directory: Path) -> None:
        self.spark, self.tracked, self.directory = spark, tracked, directory
        self.source = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
        self.source = self.source.parquet(str(directory / "in"))
        self.refused: list[str] = []

    def copy(self) -> Any:
        writer = self.source.writeStream.format("parquet").option("path", f"{self.directory}/out")
        return self.tracked.start(
            writer.option("checkpointLocation", f"{self.directory}/cp"),
            node_id="parse", reads="parse", creates=["after"],
        )  # fmt: skip

    def report(self) -> None:
        frame = self.spark.read.schema(SCHEMA).parquet(f"{self.directory}/out")
        out = f"{self.directory}/report"
        self.tracked.job(frame.write, out, node_id="after", reads="after", job_id="all")

    def refuse(self) -> None:
        """What cannot be tracked here, and what no session can: each must be refused, and touch nothing."""
        rate = (
            self.spark.readStream.format("rate").load().selectExpr("value AS slot", "value AS row")
        )
        sink = self.source.writeStream.format("noop")
        cp = f"{self.directory}/refused"
        self._refuses(lambda: self.tracked.writer(f"{self.directory}/out"))
        self._refuses(lambda: self.tracked.track(acks))
        self._refuses(lambda: self._start(sink))
        self._refuses(
            lambda: self._start(
                self.source.writeStream.foreachBatch(lambda frame, batch: None)
                .option("checkpointLocation", cp), creates=["after"],
            )
        )  # fmt: skip
        self._refuses(
            lambda: self._start(
                self.source.union(rate).writeStream.format("noop").option("checkpointLocation", cp)
            )
        )
        self._refuses(
            lambda: self._start(
                sink.trigger(continuous="1 second").option("checkpointLocation", cp)
            )
        )
        assert not Path(cp).exists(), "a query that was refused has begun a checkpoint"
        assert not self.spark.streams.active

    def _start(self, writer: Any, **more: Any) -> None:
        self.tracked.start(writer, node_id="refused", reads="parse", **more)

    def _refuses(self, act: Callable[[], object]) -> None:
        try:
            act()
        except TrackingError as error:
            self.refused.append(str(error))
        else:
            raise AssertionError(f"{len(self.refused)} were refused, and the next was not")


def main(target: str, pipeline: str, directory: Path, point: str) -> int:
    spark = connected(directory)
    recorder = Recorder(directory / "history" / f"connected-{os.getpid()}.jsonl")
    with recording(lambda _: recorder):
        try:
            tracked = Tracked(spark, target, pipeline)
        except TrackingError as error:
            print(json.dumps({"unsupported": str(error)}), flush=True)
            return 0
        program = Program(spark, tracked, directory)
        query = program.copy()
        if point == "kill":
            query.query.processAllAvailable()
            os.kill(os.getpid(), signal.SIGKILL)
        query.processAllAvailable()
        query.stop()
        program.report()
        program.refuse()
    print(json.dumps({"refused": program.refused}), flush=True)
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4]))
