"""Delta and Iceberg tables on the S3 server: a query writes one, and another reads it.

What a batch did is seen by its rows, past the tables' own logs: the writer copies the rows of its input
files, and the reader copies rows into files of its own.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from local_tracker.spark.session.tracked import Tracked, TrackedQuery
from tests.connectors.connector import AFTER, PARSE, How, Site
from tests.connectors.kinds.files import OnS3, read_files, with_task
from tests.connectors.parts.together import BUCKET
from tests.spark.support import SCHEMA
from tests.spark_matrix.places import Looked, StoreAway
from tests.spark_matrix.truth import Followed, Output, listed_by_sink, listed_by_source
from tests.spark_matrix.world import World
from tests.spark_versions.environments import TABLES_PYSPARK

COLUMNS = SCHEMA.replace(" long", " bigint")
CATALOG = "ice"


@dataclass
class Copied:
    """The rows that the writer's batches have put into the table, and those that the reader has taken. What
    a batch has written is one item, which is consumed by the batch that takes the last of its rows."""

    world: World
    written: dict[str, set[int]] = field(default_factory=dict)
    """By item."""
    read: dict[int, set[int]] = field(default_factory=dict)
    """By batch of the reader."""
    reader: Followed | None = None

    def of_writer(self, query: Followed, batch: int) -> list[str]:
        """The item that a batch has created, by the files that it has read."""
        before = query.offsets.get("0", {"logOffset": -1})["logOffset"]
        after = query.logged_offsets(batch)["0"]["logOffset"]
        source, folder = query.checkpoint / "sources" / "0", self.world.place.look("in")
        names = (
            _name(path)
            for entry in range(before + 1, after + 1)
            for path in listed_by_source(source, entry)
        )
        item = f"batch {batch}"
        self.written[item] = {row for name in names for row in _rows(folder / name)}
        return [item]

    def of_reader(self, before: Any, after: Any) -> Iterable[tuple[str, None]]:
        """The items that the reader's next batch to be taken has read to their end, by the files that it has
        written. Raises StoreAway where a row is of a batch that is not taken yet."""
        assert self.reader is not None, "the reader is followed"
        batch, out = self.reader.next_batch(), self.world.place.look("after")
        assert batch is not None, "it is asked of a batch that is done"
        names = listed_by_sink(self.reader, out, batch)
        rows = self.read[batch] = {row for name in names for row in _rows(out / _name(name))}
        if not rows <= set().union(*self.written.values()):
            raise StoreAway("a row that is read was written by a batch that is not taken yet")
        so_far = set().union(*self.read.values())
        return [
            (item, None)
            for item, wanted in self.written.items()
            if wanted & rows and wanted <= so_far
        ]


class Table(OnS3):
    """From files into a table of a catalog, and from there into files."""

    pyspark = TABLES_PYSPARK

    def site(self, world: World) -> Site:
        name = "r" + re.sub("[^a-z0-9]", "_", world.name.lower())
        return Site(super().site(world).url, {"table": self.table_named(name)})

    def table_named(self, name: str) -> str:
        """As SQL knows it."""
        raise NotImplementedError

    def open(self, world: World) -> None:
        super().open(world)
        copied = Copied(world)
        written = Output("table", world.place.look("table"), (AFTER,), copied.of_writer)
        world.follow("cp", PARSE, written)
        sink = world.sink("after")
        copied.reader = world.follow("cp-after", AFTER, sink, ranges=copied.of_reader)

    def check(self, world: World) -> None:
        wanted = sorted((row, slot) for slot, row in world.rows())
        table = world.spark.read.table(self.site(world).more["table"])
        found = sorted((row["row"], row["slot"]) for row in table.collect())
        world.check(
            found == wanted, f"the table holds {len(found)} rows, written were {len(wanted)}"
        )
        world.sink_is_all("after", "parquet")


def write_table(
    fmt: str, spark: SparkSession, tracked: Tracked, site: Site, how: How
) -> TrackedQuery:
    writer = with_task(read_files(spark, site, how), how).writeStream.format(fmt)
    writer = writer.option("checkpointLocation", site("cp"))
    return tracked.start(
        writer, node_id=PARSE, reads=PARSE, creates=[AFTER], to_table=site.more["table"]
    )


def copy_table(world: World, tracked: Tracked, frame: DataFrame) -> TrackedQuery:
    return world.copy(tracked, frame, node=AFTER, reads=AFTER, out="after", checkpoint="cp-after")


class DeltaOnS3(Table):
    """The catalog is the session's own, and knows where the table is; who reads it names that place."""

    number, name, jars = 4, "a Delta table on S3", ("delta", "s3a-3.4")

    def settings(self) -> dict[str, str]:
        return {
            **super().settings(),
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            # A commit of a few files is not worth fifty tasks.
            "spark.databricks.delta.snapshotPartitions": "1",
        }

    def table_named(self, name: str) -> str:
        return name

    @staticmethod
    def start(spark: SparkSession, tracked: Tracked, site: Site, how: How) -> TrackedQuery:
        spark.sql(
            f"CREATE TABLE IF NOT EXISTS {site.more['table']} ({COLUMNS}) USING delta "
            f"LOCATION '{site('table')}'"
        )
        return write_table("delta", spark, tracked, site, how)

    def read_on(self, world: World, tracked: Tracked) -> TrackedQuery:
        reader = world.spark.readStream.format("delta").option("maxFilesPerTrigger", 3)
        return copy_table(world, tracked, reader.load(world.path("table")))


class IcebergOnS3(Table):
    """The catalog is a SQLite database, in which a commit is a change of one row."""

    number, name, jars = 5, "an Iceberg table on S3", ("iceberg", "sqlite-jdbc", "s3a-3.4")

    def settings(self) -> dict[str, str]:
        catalog = f"spark.sql.catalog.{CATALOG}"
        return {
            **super().settings(),
            "spark.sql.extensions": "org.apache.iceberg.spark.extensions."
            "IcebergSparkSessionExtensions",
            catalog: "org.apache.iceberg.spark.SparkCatalog",
            f"{catalog}.type": "jdbc",
            f"{catalog}.uri": f"jdbc:sqlite:{self.parts.sqlite}",
            f"{catalog}.jdbc.schema-version": "V1",
            f"{catalog}.warehouse": f"s3a://{BUCKET}/warehouse",
        }

    def table_named(self, name: str) -> str:
        return f"{CATALOG}.rows.{name}"

    @staticmethod
    def start(spark: SparkSession, tracked: Tracked, site: Site, how: How) -> TrackedQuery:
        spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {CATALOG}.rows")
        spark.sql(f"CREATE TABLE IF NOT EXISTS {site.more['table']} ({COLUMNS}) USING iceberg")
        return write_table("iceberg", spark, tracked, site, how)

    def read_on(self, world: World, tracked: Tracked) -> TrackedQuery:
        reader = world.spark.readStream.option("streaming-max-files-per-micro-batch", 3)
        return copy_table(world, tracked, reader.table(self.site(world).more["table"]))


def _rows(path: Looked) -> list[int]:
    """The numbers of the rows in a file."""
    table = pq.read_table(io.BytesIO(path.read_bytes()), columns=["row"])
    return list(table["row"].to_pylist())


def _name(path: str) -> str:
    return path.rpartition("/")[2]
