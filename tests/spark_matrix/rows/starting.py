"""10: what is refused before a query is started, with nothing touched, and what one that runs says of
its waits."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

from local_tracker.spark.session.options import TrackingOptions
from local_tracker.spark.session.tracked import Tracked, TrackedQuery
from tests.spark_matrix.registry import row
from tests.spark_matrix.world import World
from tests.waits import HANG_S
from tracker.client import LowmarkError, NodeClient
from tracker.core.model import Cells, TickContent, Unit
from tracker.core.model.ack_values import unit_value
from tracker.core.model.units import unit_name
from tracker.core.model.waits import WaitKind
from tracker.errors import TrackingError


def refused(world: World, start: Any, *words: str) -> None:
    """The start is refused in these words, no query runs, and the node has no new key."""
    running = {str(query.id) for query in world.spark.streams.active}
    with NodeClient(world.target, world.name, "parse") as node:
        key = node.check_join(HANG_S).key
        try:
            start()
            world.fail("the query was started")
        except LowmarkError as error:
            said = str(error)
        except TrackingError as error:
            said = str(error)
        for word in words:
            world.check(word in said, f"{word!r} is missing: {said}")
        world.check(node.check_join(HANG_S).key == key, "the node has joined")
    left = {str(query.id) for query in world.spark.streams.active}
    world.check(left == running, f"queries run: {left}, before it was {running}")


@row("10.1", "sources that nobody has named: files with rate, socket, continuous, toTable()")
def unnamed_sources(world: World) -> None:
    world.open("parse")
    world.follow("cp", "parse", ranges=lambda before, after: [])
    tracked = world.tracked()
    rate = world.spark.readStream.format("rate").option("rowsPerSecond", 5).load()
    rows = rate.selectExpr("value AS slot", "value AS row")
    both = world.source(1).union(rows.where("slot < 0"))
    socket = world.spark.readStream.format("socket").option("host", "127.0.0.1").option("port", 9)
    refused(world, lambda: world.copy(tracked, both), "source 1, rate", "0: FileSource[")
    refused(world, lambda: world.copy(tracked, socket.load()), "source 0, socket")
    refused(
        world, lambda: world.copy(tracked, rows, reads={}, trigger={"continuous": "1 second"}),
        "continuous trigger",
    )  # fmt: skip
    table = world.source(1).writeStream.option("checkpointLocation", world.path("cp-table"))
    begun = table.toTable("of_nobody", format="parquet")
    refused_table = "was started before it was handed over"
    try:
        tracked.start(begun, node_id="parse", reads="parse")
        world.fail("a query that runs already was taken")
    except TrackingError as error:
        world.check(refused_table in str(error), f"it says {error}")
    world.check(not begun.isActive, "what nobody follows goes on")
    world.check(not Path(world.path("cp")).exists(), "a checkpoint was begun")
    query = world.copy(tracked, both, untracked=["1"])
    world.publish(3, 4)
    world.wait("both files are read", lambda: not world.open_items("parse"))
    world.sink_is_all("out", "parquet")
    world.finish()
    query.stop()


@row("10.2", "foreachBatch that publishes nothing of what it is said to create", quick=True)
def nothing_published(world: World) -> None:
    world.open("parse", "after")
    world.follow("cp", "parse", world.published("out", "after"))
    world.follow("cp-after", "after")
    tracked, publishing = world.tracked(), [False]

    def start(publish: Any) -> TrackedQuery:
        def each(frame: DataFrame, batch: int) -> None:
            if publishing[0]:
                publish(frame, batch)

        writer = world.source(2).writeStream.foreachBatch(each)
        writer = writer.option("checkpointLocation", world.path("cp"))
        return tracked.start(writer, node_id="parse", reads="parse", creates=["after"])

    refused(world, lambda: start(None), "create in ['after']", "tracked.writer(...)")
    publish = tracked.writer(world.path("out"))
    query = start(publish)
    world.publish(3, 4)
    try:
        query.processAllAvailable()
        world.fail("the batch has not failed")
    except TrackingError as error:
        said = "batch 0 had input and published nothing for ['after']"
        world.check(said in str(error), f"it says {error}")
    world.check(not (world.directory / "cp/commits/0").exists(), "Spark has committed the batch")
    world.expect_failed()
    tracked, publishing[0] = world.tracked(), True
    publish = tracked.writer(world.path("out"))
    start(publish).processAllAvailable()
    world.copy(
        tracked, world.reader(3).parquet(world.path("out")), node="after", reads="after",
        out="after", checkpoint="cp-after",
    ).processAllAvailable()  # fmt: skip
    world.sink_is_all("after", "parquet")
    world.finish()


@row("10.3", "a copied notebook under the node id of a query that runs", quick=True)
def copied_query(world: World) -> None:
    world.open("parse")
    world.follow("cp", "parse")
    query = world.copy(world.tracked(), world.source(1))
    world.publish(3)
    query.processAllAvailable()

    def copy(tracked: Tracked, **more: Any) -> None:
        world.copy(tracked, world.source(1), checkpoint="copied", out="copied", **more)

    copied = world.tracked()
    refused(world, lambda: copy(copied), f"runs for {str(query.id)!r}", "take_over=True")
    refused(
        world,
        lambda: copy(copied, options=TrackingOptions(take_over=True)),
        "restore the old checkpoint",
    )
    world.check(not Path(world.path("copied")).exists(), "the copy has begun")
    world.publish(4)
    query.processAllAvailable()
    world.check(query.tracking_failure is None, f"it was stopped: {query.tracking_failure}")
    world.sink_is_all("out", "parquet")
    world.finish()


@row("10.4", "a stray file in the input directory is named, and the query goes on")
def stray_file(world: World) -> None:
    world.open("parse")
    world.follow("cp", "parse")
    query = world.copy(world.tracked(), world.source(1))
    world.publish(3)
    query.processAllAvailable()
    stray = Path(world.pipeline.input) / "stray.parquet"
    shutil.copy(next(Path(world.pipeline.input).glob("*.parquet")), stray)
    query.query.processAllAvailable()
    world.publish(5)
    query.query.processAllAvailable()

    def waits() -> list[Any]:
        parts = world.pipeline.admin.explain(world.name).parts
        return [wait for part in parts for node in part.nodes for wait in node.waits]

    (wait,) = world.wait("the query says what it waits for", waits)
    world.check(wait.kind is WaitKind.UNKNOWN_ITEMS, f"it waits for {wait}")
    world.check(wait.batch == 1 and "stray.parquet" in wait.text, f"it waits for {wait}")
    world.check(bool(query.isActive), "the query was stopped")
    name = unit_name(str(stray))
    world.truth.created("parse", name, 5)
    with NodeClient(world.target, world.name, "who-wrote-it") as node:
        node.join(HANG_S)
        created = Cells.of([(0, 5, unit_value(name), 1)])
        node.commit(TickContent(created=created, units_created=(Unit(0, name, 5),))).result(HANG_S)
        query.processAllAvailable()
        world.check(not waits(), f"it waits for {waits()}")
        node.leave()
    world.finish()
