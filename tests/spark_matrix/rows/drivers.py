"""3: the driver killed at each arrow of the commit order, then started again from its checkpoint.

    offsets/N -> tasks -> sink commit -> commits/N -> tick handed over -> tick durable

The query acknowledges in its code, and another tracked query reads its sink.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

from pyspark.errors import StreamingQueryException

from examples.children import ROOT
from local_tracker.spark.session.tracked import Tracked
from tests.spark.support import SCHEMA, parse_operator
from tests.spark_matrix import driver
from tests.spark_matrix.registry import row
from tests.spark_matrix.world import SIDE, World
from tests.waits import PROGRAM_S
from tracker.testing.moments import MISSED

SLOTS = (10, 20, 30, 40)
KILLED_AT = 1
TRIES = 4
AWAY_S = 30.0  # paces: how long the tracker is away


def run_driver(
    world: World, sink: str, point: str, batch: int, master: str = "local[2]", partitions: int = 2
) -> int:
    """Runs a driver to its end; returns its exit status."""
    command = [
        sys.executable, "-m", "tests.spark_matrix.driver", world.target, world.name,
        str(world.directory), sink, point, str(batch), master, str(partitions),
    ]  # fmt: skip
    ended = subprocess.run(command, cwd=ROOT, timeout=PROGRAM_S, capture_output=True, check=False)
    if ended.returncode not in (0, MISSED, -signal.SIGKILL):
        said = ended.stderr.decode(errors="replace")
        world.fail(f"the driver ended with status {ended.returncode}: {said[-3000:]}")
    return ended.returncode


def killed(world: World, sink: str, point: str, *, elsewhere: bool = False) -> None:
    """The whole row. elsewhere: the driver comes back with other cores and partitions."""
    world.open("parse", driver.AFTER, edges=SIDE)
    output = world.sink if sink == "file" else world.published
    world.follow("cp", "parse", output("out", driver.AFTER), side=True)
    world.follow("cp-after", driver.AFTER)
    world.publish(*SLOTS)
    for batch in range(KILLED_AT, KILLED_AT + TRIES):
        status = run_driver(world, sink, point, batch)
        if status == -signal.SIGKILL:
            break
        # Missed: what the batch has come to is as good a start as any for the next.
        world.publish(SLOTS[-1] + 10 * batch)
    else:
        world.fail(f"the driver was never caught at {point!r}")
    assert_not_beyond(world, point, batch)
    if elsewhere:
        world.check(run_driver(world, sink, "none", 0, "local[1]", 3) == 0, "it did not end well")
    else:
        query = driver.start(world.spark, world.tracked(with_acks=True), world.directory, sink)
        query.processAllAvailable()
    read_on(world, world.tracked())
    world.sink_is_all("out", "parquet")
    world.sink_is_all("after", "parquet")
    world.finish()


def assert_not_beyond(world: World, point: str, batch: int) -> None:
    """Done means committed: min time has not passed the batch that was killed before its tick."""
    files = sorted(Path(world.pipeline.input).glob("s*"), key=lambda path: path.name.split("-")[2])
    slot = int(files[batch].name.split("-")[0][1:])
    over = (world.directory / f"cp/commits/{batch}").exists()
    world.check(over == (point in ("tick", "sent", "durable")), f"commits/{batch}: {over}")
    min_time = world.pipeline.describe().segments[0].min_time
    if point not in ("sent", "durable"):
        world.check(min_time <= slot, f"min time {min_time} is beyond the batch of slot {slot}")


def read_on(world: World, tracked: Tracked) -> None:
    """The reader of the sink."""
    world.copy(
        tracked, world.reader(3).parquet(world.path("out")), node="after", reads=driver.AFTER,
        out="after", checkpoint="cp-after",
    ).processAllAvailable()  # fmt: skip


@row("3.1", "driver killed before the tasks of a batch")
def before_tasks(world: World) -> None:
    killed(world, "file", "tasks")


@row("3.2", "driver killed between tasks and sink commit (writer)")
def before_manifest(world: World) -> None:
    killed(world, "writer", "sink")


@row("3.3", "driver killed between tasks and sink commit (file sink, orphans)")
def before_sink_commit(world: World) -> None:
    killed(world, "file", "sink")


@row("3.4", "driver killed between sink commit and commits/N (writer)")
def before_commit_writer(world: World) -> None:
    killed(world, "writer", "commit")


@row("3.5", "driver killed between sink commit and commits/N (file sink)", quick=True)
def before_commit(world: World) -> None:
    killed(world, "file", "commit")


@row("3.6", "driver killed between commits/N and its tick", quick=True)
def before_tick(world: World) -> None:
    killed(world, "file", "tick")


@row("3.7", "driver killed when the tick was handed over; other cores and partitions")
def tick_sent(world: World) -> None:
    killed(world, "writer", "sent", elsewhere=True)


@row("3.8", "driver killed after the tick was durable")
def after_tick(world: World) -> None:
    killed(world, "file", "durable")


@row("3.9", "driver killed before commits/N; other cores and partitions")
def elsewhere(world: World) -> None:
    killed(world, "file", "commit", elsewhere=True)


@row("3.10", "a sink commit that raises; the query restarted")
def commit_raises(world: World) -> None:
    world.open("parse", edges=SIDE)
    world.follow("cp", "parse", side=True)
    frame = world.source(1).mapInArrow(parse_operator(), SCHEMA)
    world.publish(3)
    query = world.copy(world.tracked(with_acks=True), frame)
    query.processAllAvailable()
    metadata, away = Path(world.path("out/_spark_metadata")), Path(world.path("away"))
    os.rename(metadata, away)
    metadata.touch()  # no directory: the sink cannot commit
    world.publish(4)
    try:
        query.processAllAvailable()
        world.fail("the commit has not raised")
    except StreamingQueryException:
        pass
    min_time = world.pipeline.describe().segments[0].min_time
    world.check(min_time <= 4, f"min time {min_time} is beyond a batch that was not committed")
    metadata.unlink()
    os.rename(away, metadata)
    world.publish(5)
    world.copy(world.tracked(with_acks=True), frame).processAllAvailable()
    world.sink_is_all("out", "parquet")
    world.finish()


@row("3.11", "the tracker away for thirty seconds during a commit")
def tracker_away(world: World) -> None:
    world.open("parse", edges=SIDE)
    world.follow("cp", "parse", side=True)
    # Tasks wait longer than the tracker is away; by default they would fail after 30 s.
    world.spark.sparkContext.setLocalProperty("lowmark.deadline_s", "90")
    try:
        query = world.copy(
            world.tracked(with_acks=True), world.source(1).mapInArrow(parse_operator(), SCHEMA)
        )
    finally:
        world.spark.sparkContext.setLocalProperty("lowmark.deadline_s", None)
    world.publish(3)
    query.processAllAvailable()
    world.publish(4, 5, 6)
    for process in world.tracker.shards:
        process.kill()
    threading.Event().wait(AWAY_S)
    done = query.last_durable_batch
    for process in world.tracker.shards:
        process.start()
    query.processAllAvailable()
    world.check(done < query.last_durable_batch, "nothing was waiting for the tracker")
    world.sink_is_all("out", "parquet")
    world.finish()
