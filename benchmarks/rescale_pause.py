"""How long a stateful query stands still while its state gets another number of partitions, by the size of the state:
`python -m benchmarks --only rescale_pause`. The query counts rows by key, one state row a key, in RocksDB."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from benchmarks.figures import Budget, Curve, Figure
from local_tracker.spark.session.rescaling import ROCKSDB, Rescaled, rescale_query
from tests.spark_matrix.registry import LOCAL
from tests.spark_matrix.sessions import make_session

_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_PACKAGE = "org.apache.spark.sql.execution.streaming.state"
PARTITIONS = (2, 4)
"""Of the state: to and fro."""


def find(budget: Budget) -> Iterable[Figure | Curve]:
    sizes = (
        (1_000, 100_000, 1_000_000)
        if budget is Budget.QUICK
        else (1_000, 100_000, 1_000_000, 4_000_000)
    )
    rounds = budget.pick(2, 3, 4)
    line: list[tuple[float, float]] = []
    with tempfile.TemporaryDirectory(prefix="lowmark-bench-") as directory:
        spark = make_session(LOCAL, Path(directory) / "spark")
        try:
            spark.conf.set(_PROVIDER, f"{_PACKAGE}.{ROCKSDB}")
            spark.conf.set("spark.sql.shuffle.partitions", str(PARTITIONS[0]))
            for rows in sizes:
                query = Counting(spark, Path(directory) / str(rows), rows)
                done = query.rescaled(rounds)
                pauses = tuple(each.pause_s for each in done)
                figure = Figure(
                    f"pause of query rescale, a state of {rows:,} rows",
                    pauses,
                    "s",
                    f"between {PARTITIONS[0]} and {PARTITIONS[1]} partitions; Spark's repartition is "
                    f"{max(each.repartition_s for each in done):.1f} s of the longest; checkpoint of "
                    f"{query.checkpoint_bytes() / 2**20:.1f} MiB",
                )
                yield figure
                line.append((float(rows), figure.median))
        finally:
            spark.stop()
    yield Curve("pause of query rescale", "rows of state", "s", {"pause": line})


class Counting:
    """A query that has counted so many keys, and runs on."""

    def __init__(self, spark: SparkSession, directory: Path, rows: int) -> None:
        self._spark, self._directory = spark, directory
        self.checkpoint = directory / "checkpoint"
        spark.range(rows).write.parquet(str(directory / "in"))

    def start(self, **trigger: Any) -> StreamingQuery:
        source = self._spark.readStream.schema("id long").parquet(str(self._directory / "in"))
        writer = source.groupBy("id").count().writeStream.outputMode("update").format("noop")
        if trigger:
            writer = writer.trigger(**trigger)
        return writer.option("checkpointLocation", str(self.checkpoint)).start()

    def rescaled(self, times: int) -> list[Rescaled]:
        """To and fro, so many times."""
        query = self.start()
        query.processAllAvailable()
        done = []
        for number in range(times):
            to = PARTITIONS[1 - number % 2]
            query, each = rescale_query(self._spark, query, self.start, self.checkpoint, to)
            done.append(each)
        query.stop()
        return done

    def checkpoint_bytes(self) -> int:
        """Of all files of the checkpoint, as they are by now."""
        return sum(
            os.path.getsize(Path(place) / name)
            for place, _, names in os.walk(self.checkpoint)
            for name in names
        )
