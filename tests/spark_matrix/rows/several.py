"""7: several queries, one pipeline."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from local_tracker.spark.session.options import TrackingOptions
from local_tracker.spark.session.tracked import Tracked, TrackedQuery
from tests.spark.support import SCHEMA
from tests.spark_matrix.registry import BOTH, CLUSTER, row
from tests.spark_matrix.world import World
from tracker.core.model import Edge


def reading(
    world: World, tracked: Tracked, table: str, node: str, files: int, creates: Sequence[str] = ()
) -> TrackedQuery:
    """A query that copies a table into one of its own name."""
    return world.copy(
        tracked, world.reader(files).parquet(world.path(table)), node=node, reads=node, out=node,
        checkpoint=f"cp-{node}", creates=creates,
    )  # fmt: skip


@row("7.1", "a chain of three", *BOTH, quick=CLUSTER)
def chain(world: World) -> None:
    world.open("parse", "enrich", "total")
    world.follow("cp", "parse", world.sink("out", "enrich"))
    world.follow("cp-enrich", "enrich", world.sink("enrich", "total"))
    world.follow("cp-total", "total")
    tracked = world.tracked()
    first = world.copy(tracked, world.source(2), creates=["enrich"])
    world.publish(3, 4, 4, 6)
    first.processAllAvailable()
    second = reading(world, tracked, "out", "enrich", 1, ["total"])
    second.processAllAvailable()
    third = reading(world, tracked, "enrich", "total", 3)
    for slot in (9, 11, 12):
        world.publish(slot)
    for query in (first, second, third):
        query.processAllAvailable()
    world.sink_is_all("total", "parquet")
    world.finish()


@row("7.2", "a fork: one table, two readers, one started later", quick=True)
def fork(world: World) -> None:
    world.open("parse", "enrich", edges=(Edge("parse", "audit"),))
    world.follow("cp", "parse", world.sink("out", "enrich", "audit"))
    world.follow("cp-enrich", "enrich")
    world.follow("cp-audit", "audit")
    tracked = world.tracked()
    first = world.copy(tracked, world.source(1), creates=["enrich", "audit"])
    world.publish(3, 4)
    first.processAllAvailable()
    reading(world, tracked, "out", "enrich", 1).processAllAvailable()
    world.publish(6, 8)
    first.processAllAvailable()
    held = world.pipeline.describe()
    audit = world.pipeline.segments.index("audit")
    world.check(held.segments[audit].min_time <= 3, "min time has not waited for the reader")
    reading(world, tracked, "out", "audit", 3).processAllAvailable()
    world.sink_is_all("enrich", "parquet")
    world.sink_is_all("audit", "parquet")
    world.finish()


@row("7.3", "a stream-stream join of two segments, read by a third query")
def joined(world: World) -> None:
    world.open(
        "parse", edges=(Edge("parse", "after"), Edge("more", "after")),
        fronts={"front": "parse", "second": "more"},
    )  # fmt: skip
    world.follow("cp", {"0": "parse", "1": "more"}, world.sink("out", "after"))
    world.follow("cp-after", "after")
    tracked = world.tracked()
    left = world.source(1).withColumn("key", F.col("row") % 4)
    right = world.source(1, "second").select(
        (F.col("row") % 4).alias("key"), F.col("row").alias("r")
    )
    both = left.join(right, "key").select("slot", "row")
    reads = {world.pipeline.input: "parse", world.pipeline.input_of("second"): "more"}
    world.publish(3)
    world.publish(4, front="second")
    # Without event times rows stay in state for good, and any of them may be matched at any time.
    query = world.copy(
        tracked, both, reads=reads, creates=["after"], options=TrackingOptions(state="free")
    )
    query.processAllAvailable()
    world.publish(6)
    query.processAllAvailable()
    reading(world, tracked, "out", "after", 2).processAllAvailable()
    world.sink_is([(row, slot) for slot, row in world.rows() if slot != 4], "after", "parquet")
    world.finish()


LINKS = [(0, 5), (0, 6), (5, 7), (6, 7), (7, 8), (8, 5), (8, 9), (20, 21)]
"""A graph with a circle, and a part that is not reached from 0 to 3."""


def breadth_first(world: World, delay: int) -> None:
    """Each batch's new neighbours are published into the very directory that the query reads."""
    world.open("walk", edges=(Edge("walk", "walk", delay),))
    world.follow("cp", "walk", world.published("in", "walk"))
    tracked = world.tracked()
    publish = tracked.writer(world.pipeline.input)
    found: set[int] = set()

    def step(frame: DataFrame, batch: int) -> None:
        at = {(row.slot, row.row) for row in frame.collect()}
        found.update(vertex for _, vertex in at)
        near = {
            (slot, target)
            for (slot, vertex), (source, target) in itertools.product(sorted(at), LINKS)
            if source == vertex and target not in found
        }
        found.update(vertex for _, vertex in near)
        if near:
            publish(world.spark.createDataFrame(sorted(near), SCHEMA).coalesce(1), batch)

    writer = world.source(1).writeStream.foreachBatch(step)
    query = tracked.start(
        writer.option("checkpointLocation", world.path("cp")), node_id="walk", reads="walk",
        creates=["walk"], options=TrackingOptions(may_publish_nothing=True),
    )  # fmt: skip
    world.publish(3, 5)
    query.processAllAvailable()
    reached = set(range(len(world.pipeline.slots))) | {5, 6, 7, 8, 9}
    world.check(found == reached, f"reached {sorted(found)}, there are {sorted(reached)}")
    steps = len(list((world.directory / "cp/commits").glob("[0-9]*")))
    world.check(steps >= 5, f"the walk took {steps} batches")
    world.finish()


@row("7.4", "a cycle: breadth-first search, no delay on the way back", quick=True)
def cycle(world: World) -> None:
    breadth_first(world, 0)


@row("7.5", "a cycle: breadth-first search, a delay on the way back")
def delayed_cycle(world: World) -> None:
    breadth_first(world, 2)
