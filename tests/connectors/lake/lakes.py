"""A front's files are copied into a table, and the table into files, by two tracked queries."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamWriter

from examples.tables import read_delta, read_iceberg, write_delta, write_iceberg
from local_tracker.spark.query.logs import CheckpointLog, SinkLog
from local_tracker.spark.session.attached import AttachedQuery
from local_tracker.spark.session.tracked import Tracked, TrackedQuery
from tests.connectors.lake.sessions import CATALOG
from tests.connectors.places import S3Place
from tests.spark.support import SCHEMA, Pipeline, Witness
from tests.spark_matrix.places import LocalPlace
from tests.waits import HANG_S
from tracker.client import Admin

SLOTS = (10, 20, 25, 30, 45, 50)
COLUMNS = SCHEMA.replace(" long", " bigint")


class Lake:
    """One table. table: its location; name: as SQL knows it."""

    format: str
    max_files: str
    """The option of a reader that bounds the files of a batch."""
    over_deletions: ClassVar[Mapping[str, Any]]
    """The options of a reader that goes on over rows that are only taken away."""
    keeps_rows: bool
    """Whether a reader that begins finds all rows, however old what added them is."""

    def __init__(
        self,
        spark: SparkSession,
        pipeline: Pipeline,
        directory: Path,
        place: LocalPlace | S3Place,
        table: str,
        name: str,
    ) -> None:
        """directory: of the test; place: for checkpoints and the reader's files."""
        self.spark, self.pipeline, self.directory = spark, pipeline, directory
        self.url, self.look = place.url, place.look
        self.tracked = Tracked(spark, pipeline.target, pipeline.name)
        self.table, self.name = table, name

    def committed_rows(self) -> list[int]:
        """Slots of the rows that the batches of the writing query have added, by the table's log."""
        raise NotImplementedError

    def newest(self) -> int:
        """The number of the newest version, or snapshot."""
        raise NotImplementedError

    def shown(self, version: int) -> str:
        """How one that appends is shown."""
        raise NotImplementedError

    def append(self, rows: DataFrame) -> None:
        """By nobody who is tracked."""
        raise NotImplementedError

    def compact(self) -> None:
        """Writes the table's files anew."""
        raise NotImplementedError

    def clean_up(self) -> None:
        """Deletes what only older versions need."""
        raise NotImplementedError

    def write_as_shown(self) -> TrackedQuery:
        """By the program of the format's page."""
        raise NotImplementedError

    def read_as_shown(self) -> TrackedQuery:
        """By the program of the format's page."""
        raise NotImplementedError

    def plain_writer(self, *, files: int = 1, mode: str = "append") -> DataStreamWriter:
        """Of the query that writes, into the table's location."""
        frame = self.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", files)
        writer = frame.parquet(self.pipeline.input).writeStream.format(self.format).outputMode(mode)
        writer = writer.option("checkpointLocation", self.url("cp"))
        return writer.option("path", self.table)

    def write(self, *, files: int = 1, mode: str = "append", **options: Any) -> TrackedQuery:
        writer = self.plain_writer(files=files, mode=mode)
        return self.tracked.start(
            writer, node_id="write", reads="write", creates=["read"], **options
        )

    def source(self, *, files: int = 1, **options: Any) -> DataFrame:
        reader = self.spark.readStream.format(self.format).option(self.max_files, files)
        return reader.options(**options).load(self.table)

    def plain_reader(self) -> DataStreamWriter:
        """Of a query that copies the table into files."""
        writer = self.source().writeStream.format("parquet")
        writer = writer.option("checkpointLocation", self.url("cp-read"))
        return writer.option("path", self.url("out"))

    def attached(self) -> Sequence[AttachedQuery]:
        """Both queries, followed by their checkpoints and the table's log alone, up to what is over."""
        target, name = self.pipeline.target, self.pipeline.name
        follows = [
            AttachedQuery(
                target, name, "write", self.url("cp"), reads="write", creates=["read"],
                sink=self.table,
            ).start(),
            AttachedQuery(
                target, name, "read", self.url("cp-read"), reads={self.table: "read"}
            ).start(),
        ]  # fmt: skip
        for follow in follows:
            assert follow.wait_durable(HANG_S)
        return follows

    def read(self, frame: DataFrame | None = None, **options: Any) -> TrackedQuery:
        writer = (self.source() if frame is None else frame).writeStream.format("parquet")
        writer = writer.option("checkpointLocation", self.url("cp-read"))
        return self.tracked.start(
            writer.option("path", self.url("out")),
            **{"node_id": "read", "reads": "read", **options},
        )

    def witness(self, *segments: str) -> Witness:
        """Of these segments, or all."""
        done: dict[str, Callable[[], Sequence[int]]] = {
            "write": self.committed_rows,
            "read": partial(self._copied, "cp-read", "out"),
            "after": partial(self._copied, "cp-after", "after"),
        }
        return Witness(self.pipeline, {name: done[name] for name in segments or ("write", "read")})

    def _copied(self, checkpoint: str, out: str) -> list[int]:
        """Slots of the rows in the files that the batches of a file sink have committed."""
        log, sink = CheckpointLog(str(self.look(checkpoint))), SinkLog(str(self.look(out)))
        names = [name for batch in log.committed() for name in sink.created(batch)]
        paths = [self.look(out) / name.rpartition("/")[2] for name in names]
        return [slot for path in paths for slot in pq.read_table(path)["slot"].to_pylist()]

    def copy_on(self) -> TrackedQuery:
        """The query that reads what `read` has written."""
        frame = self.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
        writer = frame.parquet(self.url("out")).writeStream.format("parquet")
        writer = writer.option("checkpointLocation", self.url("cp-after"))
        return self.tracked.start(
            writer.option("path", self.url("after")), node_id="after", reads="after"
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
        before = self.spark.conf.get(name, None)
        self.spark.conf.set(name, value)
        try:
            yield
        finally:
            if before is None:
                self.spark.conf.unset(name)
            else:
                self.spark.conf.set(name, before)

    def finish(self) -> None:
        self.pipeline.leave()
        self.pipeline.assert_finished()

    def rows_read(self) -> list[tuple[int, int]]:
        rows = self.spark.read.parquet(self.url("out")).collect()
        return sorted((row["slot"], row["row"]) for row in rows)

    def rows_published(self) -> list[tuple[int, int]]:
        return sorted((slot, row) for row, slot in enumerate(self.pipeline.slots))


def table_name(pipeline: Pipeline) -> str:
    """For a catalog."""
    return "t_" + re.sub("[^a-z0-9]", "_", pipeline.name.lower())


class DeltaLake(Lake):
    format, max_files = "delta", "maxFilesPerTrigger"
    over_deletions: ClassVar[Mapping[str, Any]] = {"ignoreDeletes": "true"}
    keeps_rows = True

    def __init__(
        self,
        spark: SparkSession,
        pipeline: Pipeline,
        directory: Path,
        place: S3Place | None = None,
    ) -> None:
        where = place or LocalPlace(directory)
        table = where.url("table")
        super().__init__(spark, pipeline, directory, where, table, f"delta.`{table}`")

    def newest(self) -> int:
        return int(self.spark.sql(f"DESCRIBE HISTORY {self.name} LIMIT 1").collect()[0]["version"])

    def shown(self, version: int) -> str:
        return f"version {version} (WRITE)"

    def append(self, rows: DataFrame) -> None:
        rows.write.format("delta").mode("append").save(self.table)

    def compact(self) -> None:
        self.sql("OPTIMIZE {}")

    def clean_up(self) -> None:
        with self.spark_setting("spark.databricks.delta.retentionDurationCheck.enabled", "false"):
            self.sql("VACUUM {} RETAIN 0 HOURS")

    def write_as_shown(self) -> TrackedQuery:
        frame = self.spark.readStream.schema(SCHEMA).parquet(self.pipeline.input)
        return write_delta(self.tracked, frame, self.table, self.url("cp"))

    def read_as_shown(self) -> TrackedQuery:
        out, checkpoint = self.url("out"), self.url("cp-read")
        return read_delta(self.tracked, self.spark, self.table, out, checkpoint)

    def committed_rows(self) -> list[int]:
        found: list[int] = []
        for path in sorted((self.look("table") / "_delta_log").glob("*.json")):
            actions = [json.loads(line) for line in path.read_text().splitlines() if line.strip()]
            batches = [action["txn"]["version"] for action in actions if "txn" in action]
            over = [(self.look("cp") / "commits" / str(batch)).exists() for batch in batches]
            if over and all(over):
                for added in (a["add"] for a in actions if "add" in a and a["add"]["dataChange"]):
                    found += pq.read_table(self.look("table") / added["path"])["slot"].to_pylist()
        return found


class IcebergLake(Lake):
    format, max_files = "iceberg", "streaming-max-files-per-micro-batch"
    over_deletions: ClassVar[Mapping[str, Any]] = {"streaming-skip-delete-snapshots": "true"}
    keeps_rows = False

    def __init__(self, spark: SparkSession, pipeline: Pipeline, directory: Path) -> None:
        name = f"{CATALOG}.db.{table_name(pipeline)}"
        spark.sql(f"CREATE TABLE {name} ({COLUMNS}) USING iceberg")
        catalog = Path(spark.conf.get(f"spark.sql.catalog.{CATALOG}.warehouse") or "")
        table = str(catalog / "/".join(name.split(".")[1:]))
        super().__init__(spark, pipeline, directory, LocalPlace(directory), table, name)

    def newest(self) -> int:
        self.sql("REFRESH TABLE {}")
        snapshots = self.spark.sql(
            f"SELECT snapshot_id FROM {self.name}.snapshots ORDER BY committed_at"
        )
        return int(snapshots.collect()[-1]["snapshot_id"])

    def shown(self, version: int) -> str:
        return f"snapshot {version} (append)"

    def append(self, rows: DataFrame) -> None:
        rows.writeTo(self.name).append()

    def call(self, procedure: str, arguments: str) -> None:
        """A procedure of Iceberg's, for this table."""
        table = self.name.removeprefix(f"{CATALOG}.")
        self.spark.sql(f"CALL {CATALOG}.system.{procedure}(table => '{table}', {arguments})")

    def compact(self) -> None:
        options = "map('min-input-files', '1', 'rewrite-all', 'true')"
        self.call("rewrite_data_files", f"options => {options}")

    def clean_up(self) -> None:
        self.call(
            "expire_snapshots", "older_than => TIMESTAMP '2100-01-01 00:00:00', retain_last => 1"
        )

    def write_as_shown(self) -> TrackedQuery:
        frame = self.spark.readStream.schema(SCHEMA).parquet(self.pipeline.input)
        return write_iceberg(self.tracked, frame, self.name, self.url("cp"))

    def read_as_shown(self) -> TrackedQuery:
        out, checkpoint = self.url("out"), self.url("cp-read")
        return read_iceberg(self.tracked, self.spark, self.name, out, checkpoint)

    def committed_rows(self) -> list[int]:
        """By the names of the files: Iceberg puts query and batch there."""
        metadata = self.look("cp") / "metadata"
        if not metadata.exists():
            return []
        query = json.loads(metadata.read_text())["id"]
        found: list[int] = []
        for path in sorted(Path(self.table).glob(f"data/*-{query}-*.parquet")):
            batch = path.name.split(f"-{query}-")[1].split("-")[0]
            if (self.look("cp") / "commits" / batch).exists():
                found += pq.read_table(str(path))["slot"].to_pylist()
        return found
