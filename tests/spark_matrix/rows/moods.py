"""5: code that acknowledges other items each time it is evaluated. Nothing can be said of such a
batch, so it fails, with the name of the operator, before it is published."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame

from local_tracker import acks
from tests.spark.support import SCHEMA, Batches, parse_operator
from tests.spark_matrix.faults import at_the_end, once
from tests.spark_matrix.registry import row
from tests.spark_matrix.rows.evaluation import Publish
from tests.spark_matrix.world import SIDE, World
from tracker.errors import TrackingError


def moody_operator() -> Any:
    @acks.operator("moody")
    def moody(batches: Batches) -> Batches:
        from pyspark import TaskContext

        context: Any = TaskContext.get()
        acks.create("side", 3, 1 + context.taskAttemptId())
        yield from batches

    return moody


def twice(frame: DataFrame, publish: Publish, batch: int) -> None:
    assert frame.count()
    publish(frame)


@row("5.1", "a moody UDF fails its batch before it is published", quick=True)
def moody_batch(world: World) -> None:
    world.open("parse", edges=SIDE)
    world.follow("cp", "parse", side=True)
    world.publish(3, 4)
    moody = moody_operator()
    query = world.each_batch(twice, lambda frame: frame.mapInArrow(moody, SCHEMA))
    try:
        query.processAllAvailable()
        world.fail("the query has not failed")
    except TrackingError as error:
        world.check("operator 'moody' in batch 0" in str(error), f"it says {error}")
    world.check(not query.isActive, "the query goes on")
    world.check(not (world.directory / "cp/commits/0").exists(), "Spark has committed the batch")
    world.check(not list((world.directory / "out").glob("b*")), "the batch was published")
    world.check(world.open_items("side") == 0, "its acks have moved something")
    # Once its code is mended it goes on.
    world.expect_failed()
    parse = parse_operator()
    world.each_batch(twice, lambda frame: frame.mapInArrow(parse, SCHEMA)).processAllAvailable()
    world.sink_is_all()
    world.finish()


@row("5.2", "a moody UDF above a file sink holds min time at its batch")
def moody_file_sink(world: World) -> None:
    world.open("parse", edges=SIDE)
    world.open_and_close_side()
    world.publish(3, 4)

    def fail() -> None:
        raise RuntimeError("this attempt fails")

    frame = world.source().mapInArrow(moody_operator(), SCHEMA)
    frame = frame.mapInArrow(at_the_end(once(world.path("failed"), fail)), SCHEMA)
    query = world.copy(world.tracked(with_acks=True), frame)
    try:
        query.awaitTermination()
        world.fail("the query has not failed")
    except TrackingError as error:
        world.check("operator 'moody' in batch 0" in str(error), f"it says {error}")
    world.check(world.open_items("side") == 0, "its acks have moved something")
    # The sink's own commit came first: min time waits there for good, and says nothing false.
    world.expected = {"parse": 3, "side": 3}
