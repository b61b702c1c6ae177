"""4: what Spark, and people, do to checkpoints and logs."""

from __future__ import annotations

import shutil
from pathlib import Path

from local_tracker.spark.session.rescaling import checkpoint_state, rescale_query
from local_tracker.spark.session.tracked import TrackedQuery
from tests.spark_matrix.registry import Profile, row
from tests.spark_matrix.world import World
from tracker.client import Subscriber
from tracker.core.model import Edge
from tracker.errors import TrackingError

SHORT_LOGS = Profile(
    "short-logs",
    "local[2,2]",
    {
        "spark.sql.streaming.fileSource.log.compactInterval": "3",
        "spark.sql.streaming.fileSink.log.compactInterval": "3",
        "spark.sql.streaming.fileSource.log.cleanupDelay": "0",
        "spark.sql.streaming.fileSink.log.cleanupDelay": "0",
        "spark.sql.streaming.minBatchesToRetain": "12",
    },
)
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
STATE = Profile(
    "rocksdb",
    "local[2,2]",
    {"spark.sql.streaming.stateStore.providerClass": ROCKSDB},
)


@row("4.1", "compaction of every log, old entries purged", SHORT_LOGS)
def compaction(world: World) -> None:
    world.open("parse", "after")
    world.follow("cp", "parse", world.sink("out", "after"))
    world.follow("cp-after", "after")
    tracked = world.tracked()
    query = world.copy(tracked, world.source(1), creates=["after"])
    reader = None
    for slot in range(10, 40):
        world.publish(slot)
        query.processAllAvailable()
        reader = reader or world.copy(
            tracked, world.reader(1).parquet(world.path("out")), node="after", reads="after",
            out="after", checkpoint="cp-after",
        )  # fmt: skip
    assert reader is not None
    reader.processAllAvailable()
    for name in ("cp/offsets", "cp/sources/0", "out/_spark_metadata"):
        left = {path.name for path in Path(world.path(name)).iterdir()}
        world.check("0" not in left, f"{name} still has its first entry")
    world.sink_is_all("after", "parquet")
    world.finish()


@row("4.2", "state repartition: a batch without input", STATE)
def state_repartition(world: World) -> None:
    world.open("parse")
    world.follow("cp", "parse")
    world.publish(3, 4)

    def start() -> None:
        # Into a writer: a reader of Spark's file sink misses the entry of the batch that wrote nothing.
        tracked = world.tracked()
        writer = world.source(1).dropDuplicates(["row"]).writeStream
        query = tracked.start(
            writer.foreachBatch(tracked.writer(world.path("out"), "json")).option(
                "checkpointLocation", world.path("cp")
            ),
            node_id="parse", reads="parse",
        )  # fmt: skip
        query.processAllAvailable()
        query.stop()

    start()
    batches = len(list(Path(world.path("cp/commits")).glob("[0-9]*")))
    world.spark._streamingCheckpointManager.repartition(world.path("cp"), 3)
    more = len(list(Path(world.path("cp/commits")).glob("[0-9]*")))
    world.check(more == batches + 1, f"repartition has made {more - batches} batches")
    world.publish(5, 6)
    start()
    world.sink_is_all()
    world.finish()


@row("4.8", "state rescaled at a chosen time, while input comes", STATE, since="4.2")
def rescaled_state(world: World) -> None:
    world.open("parse")
    world.follow("cp", "parse")
    tracked = world.tracked()

    def start(**trigger: bool) -> TrackedQuery:
        writer = world.source(1).dropDuplicates(["row"]).writeStream
        if trigger:
            writer = writer.trigger(availableNow=trigger["availableNow"])
        return tracked.start(
            writer.foreachBatch(tracked.writer(world.path("out"), "json")).option(
                "checkpointLocation", world.path("cp")
            ),
            node_id="parse", reads="parse",
        )  # fmt: skip

    world.publish(3)
    query, slot = start(), 4
    query.processAllAvailable()  # a query that has not run has nothing to rescale
    with Subscriber(world.target, world.name) as subscriber:
        for partitions, at in ((4, 8), (3, 16)):
            while slot <= at + 2:  # so that it is stopped while it has work
                world.publish(slot)
                slot += 1

            def reached(at: int = at) -> None:
                complete = subscriber.wait_until(at, "parse", world.patience_s)
                world.check(complete, f"slot {at} was not complete in time")

            try:
                query, done = rescale_query(
                    world.spark, query, start, world.path("cp"), partitions, reached=reached
                )
            except TrackingError as error:
                world.refused(error)  # nothing was stopped: the query goes on as it was
                continue
            world.check(done.to_partitions == partitions, f"it was rescaled as {done}")
            state = checkpoint_state(world.path("cp"))
            world.check(state.partitions == partitions, f"the checkpoint says {state}")
    world.publish(slot)
    query.processAllAvailable()
    query.stop()
    world.sink_is_all()
    world.finish()


@row("4.3", "two sources, in two segments", quick=True)
def two_sources(world: World) -> None:
    world.open(
        "parse", edges=(Edge("parse", "after"), Edge("more", "after", 2)),
        fronts={"front": "parse", "second": "more"},
    )  # fmt: skip
    world.follow("cp", {"0": "parse", "1": "more"}, world.sink("out", "after"))
    world.follow("cp-after", "after")
    world.publish(3, 4)
    world.publish(5, front="second")
    tracked = world.tracked()
    both = world.source(1).union(world.source(2, "second"))
    reads = {world.pipeline.input: "parse", world.pipeline.input_of("second"): "more"}
    query = world.copy(tracked, both, reads=reads, creates=["after"])
    query.processAllAvailable()
    world.publish(7, front="second")
    world.publish(8)
    query.processAllAvailable()
    world.copy(
        tracked, world.reader(3).parquet(world.path("out")), node="after", reads="after",
        out="after", checkpoint="cp-after",
    ).processAllAvailable()  # fmt: skip
    world.sink_is_all("after", "parquet")
    world.finish()


@row("4.4", "a reader whose batches cut its producer's")
def cuts_batches(world: World) -> None:
    world.open("parse", "after")
    world.follow("cp", "parse", world.sink("out", "after"))
    world.follow("cp-after", "after")
    tracked = world.tracked()
    # Two files a batch, of which the reader takes three at a time.
    query = world.copy(tracked, world.source(2).repartition(2), creates=["after"])
    reader = world.copy(
        tracked, world.reader(3).parquet(world.path("out")), node="after", reads="after",
        out="after", checkpoint="cp-after",
    )  # fmt: skip
    for slot in range(3, 17, 2):
        world.publish(slot, slot + 1)
        query.processAllAvailable()
    reader.processAllAvailable()
    world.sink_is_all("after", "parquet")
    world.finish()


@row("4.5", "a checkpoint rolled back to an older copy is refused", quick=True)
def rolled_back(world: World) -> None:
    world.open("parse")
    world.follow("cp", "parse")
    for slot in (3, 4):
        world.publish(slot)
        query = world.copy(world.tracked(), world.source(1))
        query.processAllAvailable()
        query.stop()
        if slot == 3:
            shutil.copytree(world.path("cp"), world.path("older"))
    world.truth.look()
    shutil.move(world.path("cp"), world.path("newer"))
    shutil.move(world.path("older"), world.path("cp"))
    refused(world, "tracker has batch 1", "restore the newer one")
    shutil.rmtree(world.path("cp"))
    shutil.move(world.path("newer"), world.path("cp"))
    go_on(world)


@row("4.6", "a checkpoint deleted, old data again: refused", quick=True)
def deleted(world: World) -> None:
    world.open("parse")
    world.follow("cp", "parse")
    world.publish(3, 4)
    query = world.copy(world.tracked(), world.source(1))
    query.processAllAvailable()
    query.stop()
    world.truth.look()
    shutil.move(world.path("cp"), world.path("kept"))
    refused(world, "has batch 1 of query", "restore the old checkpoint")
    world.check(not Path(world.path("cp")).exists(), "a new checkpoint was begun")
    shutil.move(world.path("kept"), world.path("cp"))
    go_on(world)


def refused(world: World, *words: str) -> None:
    try:
        world.copy(world.tracked(), world.source(1), out="elsewhere")
        world.fail("the query was started")
    except TrackingError as error:
        for word in words:
            world.check(word in str(error), f"{word!r} is missing: {error}")


def go_on(world: World) -> None:
    """With the right checkpoint again, the query goes on."""
    world.publish(5)
    world.copy(world.tracked(), world.source(1)).processAllAvailable()
    world.sink_is_all("out", "parquet")
    world.finish()


@row("4.7", "orphaned files in the sink's directory: only listed ones count")
def orphans(world: World) -> None:
    world.open("parse", "after")
    world.follow("cp", "parse", world.sink("out", "after"))
    world.follow("cp-after", "after")
    tracked = world.tracked()
    world.publish(3)
    query = world.copy(tracked, world.source(1), creates=["after"])
    query.processAllAvailable()
    committed = next(Path(world.path("out")).glob("part-*.parquet"))
    shutil.copy(committed, committed.with_name("part-00007-of-a-killed-attempt.snappy.parquet"))
    world.publish(4)
    query.processAllAvailable()
    world.copy(
        tracked, world.reader(1).parquet(world.path("out")), node="after", reads="after",
        out="after", checkpoint="cp-after",
    ).processAllAvailable()  # fmt: skip
    world.sink_is_all("after", "parquet")
    world.finish()
