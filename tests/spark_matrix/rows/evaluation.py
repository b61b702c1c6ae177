"""1: how often, and how much of it, Spark evaluates a batch.

The query's code hands every row with an odd number to `side`. Were an evaluation counted twice its
acks would cancel, and were none counted they would be missing: `side` could not become empty.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from local_tracker import acks
from local_tracker.spark.session.options import TrackingOptions
from tests.spark.support import SCHEMA, parse_operator
from tests.spark_matrix.registry import BOTH, LOCAL, row
from tests.spark_matrix.world import SIDE, World
from tracker.core.model.ack_values import child_value
from tracker.errors import TrackingError

Publish = Callable[[DataFrame], None]


@row("1.1", "one action", *BOTH, quick=LOCAL)
def one_action(world: World) -> None:
    world.evaluate(lambda frame, publish, batch: publish(frame))
    world.sink_is_all()
    world.finish()


@row("1.2", "isEmpty() then write", *BOTH)
def is_empty_then_write(world: World) -> None:
    def each(frame: DataFrame, publish: Publish, batch: int) -> None:
        assert not frame.isEmpty()
        publish(frame)

    world.evaluate(each)
    world.sink_is_all()
    world.finish()


def local_trackers() -> set[Path]:
    return set(Path(os.environ["LOWMARK_DIRECTORY"]).glob("*.sock"))


@row("1.3", "count() and write", *BOTH, quick=LOCAL)
def count_and_write(world: World) -> None:
    def each(frame: DataFrame, publish: Publish, batch: int) -> None:
        assert frame.count() == 20
        publish(frame)

    before = local_trackers()
    world.evaluate(each)
    executors = 2 if world.on_cluster else 1
    world.check(
        len(local_trackers() - before) == executors, "an executor has not one local tracker"
    )
    world.sink_is_all()
    world.finish()


@row("1.4", "orderBy().write: two stages", *BOTH)
def order_by_then_write(world: World) -> None:
    world.evaluate(lambda frame, publish, batch: publish(frame.orderBy("row")))
    world.sink_is_all()
    world.finish()


@row("1.5", "a self-join of the batch", *BOTH)
def self_join(world: World) -> None:
    def each(frame: DataFrame, publish: Publish, batch: int) -> None:
        publish(frame.join(frame.select("row"), "row"))

    world.evaluate(each)
    world.sink_is_all()
    world.finish()


def scalar_operator() -> Any:
    """A row's number, after handing it to `side` if it is odd."""

    @acks.udf_operator("parse", "long")
    def number(slot: int, row: int) -> int:
        if row % 2 == 1:
            acks.create("side", slot, child_value(row, "malformed", 0))
        return row

    return number


@row("1.6", "a filter on the UDF's column")
def filter_on_the_column(world: World) -> None:
    number = scalar_operator()

    def transform(frame: DataFrame) -> DataFrame:
        seen = frame.withColumn("seen", number("slot", "row"))
        return seen.filter(F.col("seen") % 3 == 0).select("slot", F.col("seen").alias("row"))

    world.evaluate(lambda frame, publish, batch: publish(frame), transform)
    world.sink_is([(row, slot) for slot, row in world.rows() if row % 3 == 0])
    world.finish()


@row("1.7", "the UDF's column unused: it is not evaluated, units count")
def column_unused(world: World) -> None:
    number = scalar_operator()

    def transform(frame: DataFrame) -> DataFrame:
        return frame.withColumn("seen", number("slot", "row")).select("slot", "row")

    world.open("parse", edges=SIDE)
    world.follow("cp", "parse")
    # One item of `side` that the query has nothing to do with, so that there is something to check.
    world.open_and_close_side()
    world.publish(3, 4, 6, 9)
    world.each_batch(lambda frame, publish, batch: publish(frame), transform).processAllAvailable()
    world.sink_is_all()
    world.finish()


@row("1.8", "limit(3)", *BOTH)
def limit(world: World) -> None:
    world.open("parse")
    world.follow("cp", "parse")
    world.publish(3, 4, 6, 9, rows=40)
    tracked = world.tracked()
    publish = tracked.writer(world.path("out"), "json")
    plus = F.udf(lambda row: row + 1, "long")
    writer = (
        world.source()
        .withColumn("row", plus("row"))
        .writeStream.foreachBatch(lambda frame, batch: publish(frame.limit(3), batch))
    )
    query = tracked.start(
        writer.option("checkpointLocation", world.path("cp")), node_id="parse", reads="parse"
    )
    query.processAllAvailable()
    possible = {(row + 1, slot) for slot, row in world.rows()}
    found = world.sink_rows()
    world.check(len(set(found)) == 6 and set(found) <= possible, f"limit(3) twice gave {found}")
    world.finish()


@row("1.9", "two writes of different results", *BOTH)
def two_writes(world: World) -> None:
    world.open("parse", edges=SIDE)
    world.follow("cp", "parse", side=True)
    world.publish(3, 4, 6, 9)
    tracked = world.tracked(with_acks=True)
    more = tracked.writer(world.path("twice"), "json")

    def each(frame: DataFrame, publish: Publish, batch: int) -> None:
        publish(frame.filter("row % 3 = 0"))
        more(frame.selectExpr("slot", "row * 2 AS row"), batch)

    world.each_batch(each, tracked=tracked).processAllAvailable()
    world.sink_is([(row, slot) for slot, row in world.rows() if row % 3 == 0])
    world.sink_is([(row * 2, slot) for slot, row in world.rows()], "twice")
    world.finish()


@row("1.10", "persist() and two actions", *BOTH)
def persist(world: World) -> None:
    def each(frame: DataFrame, publish: Publish, batch: int) -> None:
        frame.persist()
        assert frame.count() == 20
        publish(frame)
        frame.unpersist()

    world.evaluate(each)
    world.sink_is_all()
    world.finish()


@row("1.11", "a cached partition evicted between two actions", *BOTH, quick=LOCAL)
def cache_evicted(world: World) -> None:
    evicted = []

    def each(frame: DataFrame, publish: Publish, batch: int) -> None:
        frame.persist()
        assert frame.count() == 20
        evicted.append(evict_a_partition(world))
        publish(frame)
        frame.unpersist()

    world.evaluate(each)
    world.check(all(evicted), "no cached partition was there to be evicted")
    world.sink_is_all()
    world.finish()


def evict_a_partition(world: World) -> bool:
    """Drops one block of the cached frame wherever it is, as an executor short of memory does."""
    context = world.spark.sparkContext
    jvm: Any = context._jvm
    environment = context._jsc.sc().env()
    # Looked up by name: listing its methods would need a class that Spark does not ship.
    types = [
        jvm.org.apache.spark.util.Utils.classForName(f"org.apache.spark.{name}", True, False)
        for name in ("SparkEnv", "storage.BlockManager")
    ]
    lookup, method_type = jvm.java.lang.invoke.MethodHandles, jvm.java.lang.invoke.MethodType
    method = lookup.publicLookup().findVirtual(
        types[0], "blockManager", method_type.methodType(types[1])
    )
    receiver = jvm.java.util.ArrayList()
    receiver.add(environment)
    blocks = method.invokeWithArguments(receiver).master()
    cached = [
        info.id()
        for info in context._jsc.sc().getRDDStorageInfo()
        if info.numCachedPartitions() > 1
    ]
    for rdd in cached:
        blocks.removeBlock(jvm.org.apache.spark.storage.RDDBlockId(rdd, 0))
    return bool(cached)


@row("1.12", "a query that writes nothing", quick=True)
def writes_nothing(world: World) -> None:
    world.open("parse")
    world.follow("cp", "parse")
    world.publish(3, 4, 6, 9)
    tracked = world.tracked()
    parse = parse_operator()
    writer = (
        world.source().mapInArrow(parse, SCHEMA).writeStream.foreachBatch(lambda frame, batch: None)
    )
    query = tracked.start(
        writer.option("checkpointLocation", world.path("cp")), node_id="parse", reads="parse"
    )
    query.processAllAvailable()
    world.finish()


@row("1.13", "an operator that is not evaluated, though it must be: the batch fails", quick=True)
def not_evaluated(world: World) -> None:
    world.open("parse", edges=SIDE)
    world.follow("cp", "parse", side=True)
    world.publish(3, 4)
    query = world.each_batch(
        lambda frame, publish, batch: publish(frame.limit(0)),
        options=TrackingOptions(operators=["parse"]),
    )
    try:
        query.processAllAvailable()
        world.fail("the batch was committed")
    except TrackingError as error:
        world.check("operator 'parse' in batch 0" in str(error), f"it says {error}")
    world.check(not list((world.directory / "out").glob("b*")), "the batch was published")
    world.expect_failed()
    world.each_batch(
        lambda frame, publish, batch: publish(frame), options=TrackingOptions(operators=["parse"])
    ).processAllAvailable()
    world.sink_is_all()
    world.finish()
