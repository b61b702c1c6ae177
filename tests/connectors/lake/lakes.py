"""A front's files are copied into a table, and the table into files, by two tracked queries."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamWriter

from local_tracker.spark.attached import AttachedQuery
from local_tracker.spark.tracked import Tracked, TrackedQuery
from tests.cluster.children import WAIT_S
from tests.connectors.lake.sessions import CATALOG
from tests.spark.support import SCHEMA, Pipeline, Witness, sink_rows
from tracker.client import Admin

SLOTS = (10, 20, 25, 30, 45, 50)
COLUMNS = SCHEMA.replace(" long", " bigint")


class Lake:
    """One table. table: its location; name: as SQL knows it."""

    format: str
    max_files: str
    """The option of a reader that bounds the files of a batch."""

    def __init__(
        self, spark: SparkSession, pipeline: Pipeline, directory: Path, table: str, name: str
    ) -> None:
        self.spark, self.pipeline, self.directory = spark, pipeline, directory
        self.tracked = Tracked(spark, pipeline.target, pipeline.name)
        self.table, self.name = table, name

    def committed_rows(self) -> list[int]:
        """Slots of the rows that the batches of the writing query have added, by the table's log."""
        raise NotImplementedError

    def plain_writer(self, *, files: int = 1, mode: str = "append") -> DataStreamWriter:
        """Of the query that writes, into the table's location."""
        frame = self.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", files)
        writer = frame.parquet(self.pipeline.input).writeStream.format(self.format).outputMode(mode)
        writer = writer.option("checkpointLocation", str(self.directory / "cp"))
        return writer.option("path", self.table)

    def write(self, *, files: int = 1, mode: str = "append", **options: Any) -> TrackedQuery:
        writer = self.plain_writer(files=files, mode=mode)
        return self.tracked.start(
            writer, node_id="write", reads="write", creates=["read"], **options
        )

    def source(self, *, files: int = 1, **options: Any) -> DataFrame:
        reader = self.spark.readStream.format(self.format).option(self.max_files, files)
        return reader.options(**options).load(self.table)

    def attached(self) -> Sequence[AttachedQuery]:
        """Both queries, followed by their checkpoints and the table's log alone, up to what is over."""
        target, name = self.pipeline.target, self.pipeline.name
        follows = [
            AttachedQuery(
                target, name, "write", str(self.directory / "cp"), reads="write", creates=["read"],
                sink=self.table,
            ).start(),
            AttachedQuery(
                target, name, "read", str(self.directory / "cp-read"), reads={self.table: "read"}
            ).start(),
        ]  # fmt: skip
        for follow in follows:
            assert follow.wait_durable(WAIT_S)
        return follows

    def read(self, frame: DataFrame | None = None, **options: Any) -> TrackedQuery:
        writer = (self.source() if frame is None else frame).writeStream.format("parquet")
        writer = writer.option("checkpointLocation", str(self.directory / "cp-read"))
        return self.tracked.start(
            writer.option("path", str(self.directory / "out")),
            **{"node_id": "read", "reads": "read", **options},
        )

    def witness(self, *segments: str) -> Witness:
        """Of these segments, or all."""
        done = {
            "write": self.committed_rows,
            "read": sink_rows(str(self.directory / "cp-read"), str(self.directory / "out")),
            "after": sink_rows(str(self.directory / "cp-after"), str(self.directory / "after")),
        }
        return Witness(self.pipeline, {name: done[name] for name in segments or ("write", "read")})

    def copy_on(self) -> TrackedQuery:
        """The query that reads what `read` has written."""
        frame = self.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
        writer = frame.parquet(str(self.directory / "out")).writeStream.format("parquet")
        writer = writer.option("checkpointLocation", str(self.directory / "cp-after"))
        return self.tracked.start(
            writer.option("path", str(self.directory / "after")), node_id="after", reads="after"
        )

    def sql(self, statement: str) -> None:
        """`{}` stands for the table."""
        self.spark.sql(statement.format(self.name))

    def waits(self) -> str:
        """What the reading query says that it waits for."""
        with Admin(self.pipeline.target) as admin:
            explained = admin.explain(self.pipeline.name)
        return str(explained)

    @contextmanager
    def spark_setting(self, name: str, value: str) -> Iterator[None]:
        before = self.spark.conf.get(name)
        self.spark.conf.set(name, value)
        try:
            yield
        finally:
            self.spark.conf.set(name, str(before))

    def finish(self) -> None:
        self.pipeline.leave()
        self.pipeline.assert_finished()

    def rows_read(self) -> list[tuple[int, int]]:
        rows = self.spark.read.parquet(str(self.directory / "out")).collect()
        return sorted((row["slot"], row["row"]) for row in rows)

    def rows_published(self) -> list[tuple[int, int]]:
        return sorted((slot, row) for row, slot in enumerate(self.pipeline.slots))


class DeltaLake(Lake):
    format, max_files = "delta", "maxFilesPerTrigger"

    def __init__(self, spark: SparkSession, pipeline: Pipeline, directory: Path) -> None:
        table = str(directory / "table")
        super().__init__(spark, pipeline, directory, table, f"delta.`{table}`")

    def committed_rows(self) -> list[int]:
        found: list[int] = []
        for path in sorted((Path(self.table) / "_delta_log").glob("*.json")):
            actions = [json.loads(line) for line in path.read_text().splitlines() if line.strip()]
            batches = [action["txn"]["version"] for action in actions if "txn" in action]
            over = [(self.directory / "cp/commits" / str(batch)).exists() for batch in batches]
            if over and all(over):
                for added in (a["add"] for a in actions if "add" in a and a["add"]["dataChange"]):
                    found += pq.read_table(f"{self.table}/{added['path']}")["slot"].to_pylist()
        return found


class IcebergLake(Lake):
    format, max_files = "iceberg", "streaming-max-files-per-micro-batch"

    def __init__(self, spark: SparkSession, pipeline: Pipeline, directory: Path) -> None:
        name = f"{CATALOG}.db.t_{directory.name.replace('-', '_')}"
        spark.sql(f"CREATE TABLE {name} ({COLUMNS}) USING iceberg")
        catalog = Path(spark.conf.get(f"spark.sql.catalog.{CATALOG}.warehouse") or "")
        super().__init__(
            spark, pipeline, directory, str(catalog / "/".join(name.split(".")[1:])), name
        )

    def committed_rows(self) -> list[int]:
        """By the names of the files: Iceberg puts query and batch there."""
        metadata = self.directory / "cp/metadata"
        if not metadata.exists():
            return []
        query = json.loads(metadata.read_text())["id"]
        found: list[int] = []
        for path in sorted(Path(self.table).glob(f"data/*-{query}-*.parquet")):
            batch = path.name.split(f"-{query}-")[1].split("-")[0]
            if (self.directory / "cp/commits" / batch).exists():
                found += pq.read_table(str(path))["slot"].to_pylist()
        return found
