"""9: local trackers, and the executors that need them."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException

from local_tracker import acks
from tests.spark.support import Batches
from tests.spark_matrix import driver
from tests.spark_matrix.faults import Stage, once
from tests.spark_matrix.registry import BOTH, CLUSTER, row
from tests.spark_matrix.rows.drivers import read_on, run_driver
from tests.spark_matrix.rows.tasks import stages, write
from tests.spark_matrix.world import SIDE, World
from tracker.core.model.ack_values import child_values


def breaking(world: World, harm: Any) -> None:
    """Harm befalls the local tracker when a task has begun and has not handed over."""
    marker = world.path("harmed")
    begin = once(marker, harm)

    @acks.operator("parse")
    def parse(batches: Batches) -> Batches:
        from pyspark import TaskContext

        for batch in batches:
            slots, rows = (batch.column(place).to_numpy() for place in (0, 1))
            odd = rows % 2 == 1
            acks.create(
                "side", slots[odd], child_values(rows[odd].astype("uint64"), "malformed", 0)
            )
            begin(TaskContext.get())
            yield batch

    world.evaluate(write, stages(parse))
    world.check(Path(marker).exists(), "nothing was harmed")
    world.sink_is_all()
    world.finish()


@row("9.1", "the local tracker killed in the middle of a task", *BOTH, quick=CLUSTER)
def killed(world: World) -> None:
    def kill() -> None:
        # Of this pipeline, of this executor: the one that this worker is connected to.
        from local_tracker.worker import route

        way = route.current()
        assert way is not None
        socket = way.handle.address.removeprefix("unix:")
        for folder in Path("/proc").iterdir():
            try:
                words = (folder / "cmdline").read_bytes().split(b"\0")
            except (OSError, ValueError):
                continue
            if b"local_tracker.agent" in b" ".join(words) and socket.encode() in words:
                os.kill(int(folder.name), signal.SIGKILL)
                return
        raise RuntimeError(f"no local tracker listens at {socket}")

    breaking(world, kill)


@row("9.2", "the local tracker's socket gone in the middle of a task", *BOTH)
def socket_gone(world: World) -> None:
    def unlink() -> None:
        from local_tracker.worker import route

        way = route.current()
        assert way is not None
        os.unlink(way.handle.address.removeprefix("unix:"))
        way.handle.close()

    breaking(world, unlink)


@row("9.3", "a Python worker that forks")
def forks(world: World) -> None:
    def forked() -> Stage:
        @acks.operator("parse")
        def parse(batches: Batches) -> Batches:
            for batch in batches:
                slots, rows = (batch.column(place).to_numpy() for place in (0, 1))
                odd = rows % 2 == 1
                values = child_values(rows[odd].astype("uint64"), "malformed", 0)
                acks.create("side", slots[odd], values)
                # The child has the parent's socket and numbers, and must not spoil them.
                pid = os.fork()
                if pid == 0:
                    try:
                        acks.min_time("side")
                    finally:
                        os._exit(0)
                os.waitpid(pid, 0)
                yield batch

        return parse

    world.evaluate(write, stages(forked()))
    world.sink_is_all()
    world.finish()


@row("9.4", "two Spark applications on one host")
def two_applications(world: World) -> None:
    """The second runs the same pipeline's query after this one's has stopped, while this session's
    local tracker is still there."""
    world.open("parse", driver.AFTER, edges=SIDE)
    world.follow("cp", "parse", world.sink("out", driver.AFTER), side=True)
    world.follow("cp-after", driver.AFTER)
    world.publish(3, 4)
    query = driver.start(world.spark, world.tracked(with_acks=True), world.directory, "file")
    query.processAllAvailable()
    query.stop()
    world.publish(6, 7)
    world.check(run_driver(world, "file", "none", 0) == 0, "the other application did not end well")
    world.publish(9)
    driver.start(
        world.spark, world.tracked(with_acks=True), world.directory, "file"
    ).processAllAvailable()
    read_on(world, world.tracked())
    world.sink_is_all("after", "parquet")
    world.finish()


@row("9.5", "an executor without a route to the tracker: an error within its deadline")
def no_route(world: World) -> None:
    world.open("parse", edges=SIDE)
    world.follow("cp", "parse", side=True)
    world.publish(3, 4)
    unreachable = {
        "lowmark.socket": "tcp:127.0.0.1:9",  # nobody listens at the discard port
        "lowmark.deadline_s": "2",
    }
    context = world.spark.sparkContext
    for name, value in unreachable.items():
        context.setLocalProperty(name, value)
    began = time.monotonic()
    try:
        query = world.each_batch(write)
        query.processAllAvailable()
        world.fail("the tasks have found a way")
    except StreamingQueryException as error:
        said = str(error)
        took_s = time.monotonic() - began
        world.check("has this host a route to the tracker" in said, f"it says {said[:2000]}")
        world.check("9" in said and "not durable within 2 s" in said, f"it says {said[:2000]}")
        # Two attempts of a task, one after the other; far less than for ever.
        world.check(took_s < 60, f"it took {took_s:.0f} s")
    finally:
        for name in unreachable:
            context.setLocalProperty(name, None)
    world.check(world.open_items("side") == 0, "something was handed over")
    world.expect_failed()
    world.each_batch(write).processAllAvailable()
    world.sink_is_all()
    world.finish()
