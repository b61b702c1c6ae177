"""Tables that are marked, by delta-rs and pyiceberg, while tracked queries of Spark write and read them: a mark
is no row, stalls nobody, and Spark's readers see it as docs/consumers-reference.md shows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import load_catalog
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamWriter

from local_tracker.spark.session.tracked import Tracked, TrackedQuery
from tests.connectors.lake.sessions import SQL_CATALOG, sql_catalog
from tests.docs.pages import ROOT, blocks
from tests.spark.conftest import Pipelines
from tests.spark.support import SCHEMA, Pipeline, Witness, sink_rows
from tracker.consumers.periods.cut import Cut, Period
from tracker.consumers.periods.delta import DeltaMark
from tracker.consumers.periods.iceberg import IcebergMark
from tracker.consumers.periods.once import Action, do_once

SLOTS = (10, 20, 25, 30)
SECOND = 10**9
HOURS = Cut(slots=3_600, slack_ns=SECOND)
NOON = int(datetime(2026, 3, 1, 12, tzinfo=UTC).timestamp())
PAGE = ROOT / "docs" / "consumers-reference.md"


def hour(number: int) -> Period:
    """The first that the page asks for is the second one."""
    return HOURS.period("orders", "load", NOON + number * 3_600)


def shown(info: str) -> str:
    """A program of the page."""
    (found,) = [block.text for block in blocks(PAGE) if block.info == info]
    return found


class Copies:
    """A front's files are copied into a table, and the table into files, by two tracked queries."""

    def __init__(self, fmt: str, spark: SparkSession, pipeline: Pipeline, directory: Path) -> None:
        self.format, self.spark, self.pipeline, self.directory = fmt, spark, pipeline, directory
        self.tracked = Tracked(spark, pipeline.target, pipeline.name)

    def _started(self, writer: DataStreamWriter, node: str, **options: Any) -> TrackedQuery:
        writer = writer.option("checkpointLocation", str(self.directory / f"cp-{node}"))
        return self.tracked.start(writer, node_id=node, reads=node, **options)

    def write(self, table: str) -> TrackedQuery:
        frame = self.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
        writer = frame.parquet(self.pipeline.input).writeStream.format(self.format)
        return self._started(writer, "write", creates=["read"], to_table=table)

    def read(self, frame: DataFrame) -> TrackedQuery:
        writer = frame.writeStream.format("parquet")
        return self._started(writer.option("path", str(self.directory / "out")), "read")

    def witness(self) -> Witness:
        rows = sink_rows(str(self.directory / "cp-read"), str(self.directory / "out"))
        return Witness(self.pipeline, {"read": rows})

    def run(self, table: str, source: Callable[[], DataFrame], mark: Action) -> None:
        """Hours are marked before the reader begins, between its batches, and behind them. source: the
        table, as a query reads it."""
        write = self.write(table)
        with self.witness():
            do_once(mark, hour(0), None)
            self.pipeline.publish(SLOTS[0])
            write.processAllAvailable()
            read = self.read(source())
            read.processAllAvailable()
            for number, slot in enumerate(SLOTS[1:], 1):
                do_once(mark, hour(number), None)
                read.processAllAvailable()  # there is a mark, and no rows
                self.pipeline.publish(slot)
                write.processAllAvailable()
                read.processAllAvailable()
            do_once(mark, hour(len(SLOTS)), None)
            read.processAllAvailable()
            self.pipeline.leave()
            self.pipeline.assert_finished()
        rows = self.spark.read.parquet(str(self.directory / "out")).collect()
        assert sorted((r["slot"], r["row"]) for r in rows) == sorted(
            (slot, row) for row, slot in enumerate(self.pipeline.slots)
        )


@pytest.fixture
def copies(
    request: pytest.FixtureRequest, spark: SparkSession, pipelines: Pipelines, tmp_path: Path
) -> Iterator[Copies]:
    made = Copies(request.param, spark, pipelines("write", "read"), tmp_path)
    yield made
    made.tracked.stop()


@pytest.mark.parametrize("copies", ["delta"], indirect=True)
def test_marks_of_a_delta_table_are_seen_and_pass_for_no_rows(copies: Copies) -> None:
    spark, table, name = copies.spark, str(copies.directory / "table"), "marked_delta"
    spark.sql(f"CREATE TABLE {name} (slot bigint, row bigint) USING delta LOCATION '{table}'")
    copies.run(name, lambda: spark.readStream.format("delta").load(table), DeltaMark(HOURS, table))
    seen: dict[str, Any] = {"spark": spark, "table": table}
    exec(compile(shown("python delta marks"), PAGE.name, "exec"), seen)
    assert seen["is_complete"]
    told = [(row["key"], row["version"]) for row in seen["complete"].orderBy("version").collect()]
    assert [key for key, _ in told] == [hour(number).key for number in range(1, len(SLOTS) + 1)]
    as_of = spark.read.format("delta").option("versionAsOf", seen["as_of"]).load(table)
    assert as_of.count() == len([slot for slot in copies.pipeline.slots if slot == SLOTS[0]])


@pytest.mark.parametrize("copies", ["iceberg"], indirect=True)
def test_marks_of_an_iceberg_table_are_seen_and_pass_for_no_rows(copies: Copies) -> None:
    spark, name = copies.spark, "db.marked"
    table = f"{SQL_CATALOG}.{name}"
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {SQL_CATALOG}.db")
    spark.sql(f"CREATE TABLE {table} (slot bigint, row bigint) USING iceberg")
    catalog = load_catalog(SQL_CATALOG, **sql_catalog(spark))
    mark = IcebergMark(HOURS, name, catalog)
    copies.run(table, lambda: spark.readStream.table(table), mark)
    statements = shown("sql iceberg marks").replace("lake.db.orders", table).split(";")
    answers = [spark.sql(each).collect()[0][0] for each in statements if each.strip()]
    of_first = len([slot for slot in copies.pipeline.slots if slot == SLOTS[0]])
    assert answers == [True, hour(len(SLOTS)).fields()["end"], of_first]

    # And while others write, each of which tries again behind the other.
    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('commit.retry.num-retries' = '20')")
    with ThreadPoolExecutor(1) as pool:
        later = [hour(number) for number in range(len(SLOTS) + 1, len(SLOTS) + 6)]
        marking = [pool.submit(do_once, mark, each, None) for each in later]
        for _ in range(5):
            spark.sql(f"INSERT INTO {table} VALUES (1, 1)")
        for each in marking:
            each.result()
    keys = spark.sql(
        f"SELECT summary['lowmark.key'] AS key FROM {table}.snapshots "
        "WHERE summary['lowmark.key'] IS NOT NULL ORDER BY committed_at"
    ).collect()
    assert [row["key"] for row in keys] == [hour(number).key for number in range(len(SLOTS) + 6)]
    assert spark.table(table).where("slot = 1").count() == 5
