"""2: tasks that fail, race, run again, or die with their executor.

After each, `side` must come out empty: what an attempt handed over counts once, whichever it was.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from local_tracker import acks
from tests.spark.support import SCHEMA, Batches, parse_operator
from tests.spark_matrix.faults import (
    Stage,
    at_the_begin,
    at_the_end,
    executors,
    kill_own_jvm,
    once,
)
from tests.spark_matrix.registry import BOTH, CLUSTER, TWO_HOSTS, Profile, row
from tests.spark_matrix.rows.evaluation import Publish
from tests.spark_matrix.world import World
from tests.waits import HANG_S
from tracker.core.model.ack_values import child_values

# Spark starts a copy of a straggler on another host alone.
SPECULATION = Profile(
    "two-hosts",
    TWO_HOSTS,
    {
        "spark.speculation": "true",
        "spark.speculation.interval": "50ms",
        "spark.speculation.quantile": "0.4",
        "spark.speculation.multiplier": "1.1",
        "spark.speculation.minTaskRuntime": "1ms",
    },
)
DYNAMIC = Profile(
    "dynamic",
    CLUSTER.master,
    {
        "spark.dynamicAllocation.enabled": "true",
        "spark.dynamicAllocation.shuffleTracking.enabled": "true",
        "spark.dynamicAllocation.shuffleTracking.timeout": "1s",
        "spark.dynamicAllocation.executorIdleTimeout": "1s",
        "spark.dynamicAllocation.initialExecutors": "2",
        "spark.dynamicAllocation.minExecutors": "0",
        "spark.dynamicAllocation.maxExecutors": "2",
    },
)
NO_REUSE = Profile("no-worker-reuse", "local[2,2]", {"spark.python.worker.reuse": "false"})


def stages(*stage: Stage) -> Callable[[DataFrame], DataFrame]:
    """Functions over Arrow batches, one after the other."""

    def transform(frame: DataFrame) -> DataFrame:
        for each in stage:
            frame = frame.mapInArrow(each, SCHEMA)
        return frame

    return transform


def write(frame: DataFrame, publish: Publish, batch: int) -> None:
    publish(frame)


@row("2.1", "a task that fails once, after its hand-over", *BOTH, quick=CLUSTER)
def fails_once(world: World) -> None:
    marker = world.path("failed")

    def fail_here() -> None:
        raise RuntimeError("this attempt fails")

    world.evaluate(write, stages(parse_operator(), at_the_end(once(marker, fail_here))))
    world.check(Path(marker).exists(), "no task has failed")
    world.sink_is_all()
    world.finish()


@row("2.2", "a task that fails until the job does; the query restarted", *BOTH)
def job_fails(world: World) -> None:
    healed = world.path("healed")

    def fail_unless_healed(context: Any) -> None:
        if context.partitionId() == 0 and not os.path.exists(healed):
            raise RuntimeError("this attempt fails")

    transform = stages(parse_operator(), at_the_end(fail_unless_healed))
    try:
        world.evaluate(write, transform)
        world.fail("the job has not failed")
    except StreamingQueryException:
        pass
    world.check(world.open_items("side") == 0, "the failed batch has moved something")
    Path(healed).touch()
    world.each_batch(write, transform).processAllAvailable()
    world.sink_is_all()
    world.finish()


@row("2.3", "speculation: a straggler and its copy both hand over", SPECULATION)
def speculation(world: World) -> None:
    raced, limit_s = world.path("raced"), HANG_S

    def straggle(context: Any) -> None:
        import time

        if context.partitionId() != 0:
            return
        if context.attemptNumber() > 0:
            Path(raced).touch()
        # The first attempt has handed over and goes on when its copy has, too.
        deadline = time.monotonic() + limit_s
        while not os.path.exists(raced) and time.monotonic() < deadline:
            time.sleep(0.01)  # paces: its looks, in an executor without these tests

    world.evaluate(write, stages(parse_operator(), at_the_end(straggle)), slots=(3, 4))
    world.check(os.path.exists(raced), "Spark has started no copy of the straggler")
    world.sink_is_all()
    world.finish()


def killing(world: World, *transform: Stage) -> None:
    marker = world.path("killed")
    world.evaluate(write, stages(*transform))
    world.check(Path(marker).exists(), "no executor was killed")
    world.sink_is_all()
    world.finish()


@row("2.4", "an executor killed before its task read anything", CLUSTER)
def killed_before(world: World) -> None:
    kill = once(world.path("killed"), kill_own_jvm())
    killing(world, at_the_begin(kill), parse_operator())


@row("2.5", "an executor killed in the middle of its task", CLUSTER)
def killed_during(world: World) -> None:
    kill = once(world.path("killed"), kill_own_jvm())

    @acks.operator("parse")
    def parse(batches: Batches) -> Batches:
        from pyspark import TaskContext

        for batch in batches:
            slots, rows = (batch.column(place).to_numpy() for place in (0, 1))
            odd = rows % 2 == 1
            values = child_values(rows[odd].astype("uint64"), "malformed", 0)
            acks.create("side", slots[odd], values)
            yield batch
            kill(TaskContext.get())

    world.spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "3")
    try:
        killing(world, parse)
    finally:
        world.spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")


@row("2.6", "an executor killed after its task handed over", CLUSTER, quick=True)
def killed_after(world: World) -> None:
    kill = once(world.path("killed"), kill_own_jvm())
    killing(world, parse_operator(), at_the_end(kill))


def refetching(world: World, victims: Callable[[Sequence[int]], Sequence[int]]) -> None:
    """A shuffle is read twice; in between, executors that hold its output are killed."""
    killed: list[int] = []

    def each(frame: DataFrame, publish: Publish, batch: int) -> None:
        shuffled = frame.repartition(2, "row").rdd
        assert shuffled.count() == 20
        if not killed:
            for pid in victims(executors(world.spark)):
                killed.append(pid)
                os.kill(pid, signal.SIGKILL)
        publish(world.spark.createDataFrame(shuffled, SCHEMA))

    world.wait("both executors are there", lambda: len(executors(world.spark)) == 2)
    world.evaluate(each)
    world.check(bool(killed), "no executor was killed")
    world.sink_is_all()
    world.finish()


@row("2.7", "a fetch failure: part of a finished stage runs again under a new id", CLUSTER)
def refetched_in_part(world: World) -> None:
    refetching(world, lambda pids: pids[:1])


@row("2.8", "a fetch failure: a whole finished stage runs again under a new id", CLUSTER)
def refetched_whole(world: World) -> None:
    refetching(world, lambda pids: pids)


@row("2.9", "dynamic allocation removes idle executors", DYNAMIC)
def dynamic_allocation(world: World) -> None:
    world.evaluate(write)
    world.wait("idle executors are gone", lambda: not executors(world.spark))
    world.publish(12, 13, rows=10)
    world.tracked_query().processAllAvailable()
    world.sink_is_all()
    world.finish()


@row("2.10", "spark.python.worker.reuse off", NO_REUSE)
def no_worker_reuse(world: World) -> None:
    world.evaluate(write)
    world.sink_is_all()
    world.finish()


@row("2.11", "AQE coalesces partitions and changes a join", *BOTH)
def adaptive(world: World) -> None:
    plans = []

    def each(frame: DataFrame, publish: Publish, batch: int) -> None:
        spark = frame.sparkSession
        settings = {
            "spark.sql.adaptive.enabled": "true",
            "spark.sql.shuffle.partitions": "8",
            "spark.sql.autoBroadcastJoinThreshold": "-1",
            "spark.sql.adaptive.autoBroadcastJoinThreshold": "10MB",
            "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
        }
        before = {name: spark.conf.get(name, None) for name in settings}
        for name, value in settings.items():
            spark.conf.set(name, value)
        try:
            counts = frame.groupBy("slot").agg(F.count("row").alias("rows"))
            joined = frame.join(counts, "slot").select("slot", "row")
            assert len(joined.collect()) == 20
            plans.append(joined._jdf.queryExecution().executedPlan().toString())
            publish(joined)
        finally:
            for name, value in before.items():
                spark.conf.unset(name) if value is None else spark.conf.set(name, value)

    world.evaluate(each)
    for plan in plans:
        initial, final = plan.partition("== Initial Plan ==")[::2][::-1]
        changed = "BroadcastHashJoin" in final and "SortMergeJoin" in initial
        world.check(changed, f"AQE has not changed the join: {plan}")
        world.check("coalesced" in final, f"AQE has not coalesced anything: {plan}")
    world.sink_is_all()
    world.finish()
