"""Each operator's plan is recognised for what its state does, or named as one that is not understood. Nothing
is started: what is read is what Spark has analysed."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.state import GroupStateTimeout

from local_tracker.spark.jvm import planned_query
from local_tracker.spark.state.rules import (
    Later,
    StateKind,
    StatePlan,
    Watermark,
    WatermarkPolicy,
    Window,
    WindowTime,
    lead,
)

S = 1_000_000
"""Microseconds in a second."""
TEN = Window(10 * S, 10 * S)


class Frames:
    """Streams with event times, and what queries make of them."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self.rows = (
            spark.readStream.format("rate").load().selectExpr("timestamp ts", "value k", "value v")
        )
        self.left = self.rows.withWatermark("ts", "5 seconds")
        renamed = self.rows.selectExpr("ts rts", "k rk")
        self.right = renamed.withWatermark("rts", "7 seconds")
        self.bare = renamed

    def joined(self, condition: str, kind: str = "inner") -> DataFrame:
        return self.left.join(self.right, F.expr(f"k = rk AND {condition}"), kind)

    def counted(self, *window: str) -> DataFrame:
        return self.left.groupBy(F.window("ts", *window)).count()

    def with_state(self, timeout: str = GroupStateTimeout.EventTimeTimeout) -> DataFrame:
        def nothing(key, rows, state):  # type: ignore[no-untyped-def]
            return iter(())

        return self.left.groupBy("k").applyInPandasWithState(
            nothing, "k long", "n long", "append", timeout
        )


@pytest.fixture(scope="module")
def frames(spark: SparkSession) -> Frames:
    return Frames(spark)


def plan_of(frame: DataFrame, mode: str = "append") -> StatePlan:
    planned = planned_query(frame.writeStream.format("noop").outputMode(mode))
    assert planned.state is not None
    return planned.state


def reasons(plan: StatePlan) -> set[tuple[object, int]]:
    """Of each wait, its steps and lag in µs."""
    return {(wait.steps, wait.lag_us) for wait in plan.waits}


WITHIN = "rts >= ts AND rts <= ts + INTERVAL 10 SECONDS"
LAG = 10_001_000
"""What is behind the watermark by an interval of 10 s, and the millisecond by which a join is strict, in µs."""


def _select_distinct(frames: Frames) -> DataFrame:
    frames.left.select("ts", "k").createOrReplaceTempView("lefts")
    return frames.spark.sql("SELECT DISTINCT ts, k FROM lefts")


BOUNDED: dict[str, tuple[Callable[[Frames], DataFrame], set[tuple[object, int]]]] = {
    "tumbling": (lambda f: f.counted("10 seconds"), {((TEN,), 0)}),
    "tumbling, from another start": (
        lambda f: f.counted("10 seconds", "10 seconds", "3 seconds"), {((Window(10 * S, 10 * S, 3 * S),), 0)},
    ),
    "sliding": (lambda f: f.counted("10 seconds", "4 seconds"), {((Window(10 * S, 4 * S),), 0)}),
    "by key and window": (
        lambda f: f.left.filter("v > 1").groupBy("k", F.window("ts", "10 seconds")).agg(F.max("v")),
        {((TEN,), 0)},
    ),
    "by the time itself": (lambda f: f.left.groupBy("ts").count(), {((), 0)}),
    "by the time under another name": (
        lambda f: f.left.withColumnRenamed("ts", "at").groupBy("at").count(), {((), 0)},
    ),
    "windows of windows": (
        lambda f: f.counted("10 seconds").groupBy(F.window("window", "25 seconds")).count(),
        {((TEN,), 0), ((TEN, WindowTime(), Window(25 * S, 25 * S)), 0)},
    ),
    "windows of window_time": (
        lambda f: f.counted("10 seconds").groupBy(F.window(F.window_time("window"), "30 seconds", "15 seconds"))
        .count(),
        {((TEN,), 0), ((TEN, WindowTime(), Window(30 * S, 15 * S)), 0)},
    ),
    "inner join": (lambda f: f.joined(WITHIN), {((), LAG), ((), 1000)}),
    "left outer join": (lambda f: f.joined(WITHIN, "left_outer"), {((), LAG), ((), 1000)}),
    "right outer join": (lambda f: f.joined(WITHIN, "right_outer"), {((), LAG), ((), 1000)}),
    "full outer join": (lambda f: f.joined(WITHIN, "full_outer"), {((), LAG), ((), 1000)}),
    "left semi join": (lambda f: f.joined(WITHIN, "left_semi"), {((), LAG), ((), 1000)}),
    "join with an interval in both directions": (
        lambda f: f.joined("rts BETWEEN ts - INTERVAL 3 SECONDS AND ts + INTERVAL 10 SECONDS"),
        {((), LAG), ((), 3_001_000)},
    ),
    "join with strict bounds": (
        lambda f: f.joined("rts > ts AND rts < ts + INTERVAL 10 SECONDS"), {((), 10 * S), ((), 0)},
    ),
    "join with a gap before its interval": (
        lambda f: f.joined("rts >= ts + INTERVAL 2 SECONDS AND rts <= ts + INTERVAL 10 SECONDS"),
        {((), LAG), ((), 0)},
    ),
    "join by event time": (lambda f: f.joined("ts = rts"), {((), 0)}),
    "join of windows": (
        lambda f: f.counted("10 seconds").join(
            f.right.groupBy(F.window("rts", "10 seconds")).agg(F.count("*").alias("n")), "window"
        ),
        {((TEN,), 0)},
    ),
    "windows above a join, of its left side": (
        lambda f: f.joined(WITHIN).groupBy(F.window("ts", "10 seconds")).count(),
        {((), LAG), ((), 1000), ((TEN,), LAG)},
    ),
    "windows above a join, of its right side": (
        lambda f: f.joined(WITHIN).groupBy(F.window("rts", "10 seconds")).count(),
        {((), LAG), ((), 1000), ((TEN,), LAG), ((Later(10 * S), TEN), LAG)},
    ),
    "a union, in windows": (
        lambda f: f.left.select("ts", "k").union(f.right).groupBy(F.window("ts", "10 seconds")).count(),
        {((TEN,), 0)},
    ),
    "windows beside rows that pass": (
        lambda f: f.counted("10 seconds").select("count").union(f.rows.select("v")), {((TEN,), 0)},
    ),
    "windows without repetitions, and few": (
        lambda f: f.left.dropDuplicates(["k", "ts"]).groupBy(F.window("ts", "10 seconds")).count().limit(3),
        {((TEN,), 0)},
    ),
    "SELECT DISTINCT": (_select_distinct, {((), 0)}),
}  # fmt: skip


@pytest.mark.parametrize("operator", BOUNDED)
def test_an_operator_waits_for_what_its_plan_says(frames: Frames, operator: str) -> None:
    make, wanted = BOUNDED[operator]
    plan = plan_of(make(frames))
    assert plan.kind is StateKind.BOUNDED, plan
    assert reasons(plan) == wanted


NOTHING: dict[str, tuple[Callable[[Frames], DataFrame], str]] = {
    "rows that pass": (lambda f: f.left.filter("v > 1").selectExpr("ts", "v + 1 AS w"), "append"),
    "dropDuplicates": (lambda f: f.left.dropDuplicates(["k", "ts"]), "append"),
    "dropDuplicatesWithinWatermark": (
        lambda f: f.left.dropDuplicatesWithinWatermark(["k"]), "append",
    ),
    "limit": (lambda f: f.left.limit(5), "append"),
    "mapInPandas": (lambda f: f.left.mapInPandas(lambda parts: parts, f.left.schema), "append"),
    "join with a table": (
        lambda f: f.left.join(f.spark.range(3).groupBy("id").count(), F.expr("k = id"), "left"), "append",
    ),
    "union of streams": (lambda f: f.left.select("ts", "k").union(f.right), "append"),
    "windows in update mode": (lambda f: f.counted("10 seconds"), "update"),
    "sorted windows in complete mode": (lambda f: f.counted("10 seconds").orderBy("count"), "complete"),
    "counts without a watermark in update mode": (lambda f: f.rows.groupBy("k").count(), "update"),
}  # fmt: skip


@pytest.mark.parametrize("operator", NOTHING)
def test_an_operator_that_emits_at_once_waits_for_nothing(frames: Frames, operator: str) -> None:
    make, mode = NOTHING[operator]
    plan = plan_of(make(frames), mode)
    assert plan.kind is StateKind.NOTHING, plan
    assert not plan.emits_later


UNKNOWN: dict[str, tuple[Callable[[Frames], DataFrame], str]] = {
    "a join bounded on one side": (lambda f: f.joined("rts >= ts"), "not bounded on both sides"),
    "a join by key alone": (lambda f: f.joined("v > 3"), "not bounded on both sides"),
    "a join whose interval is computed": (
        lambda f: f.joined("rts >= ts AND rts <= ts + make_interval(0, 0, 0, 0, 0, 0, v)"),
        "not bounded on both sides",
    ),
    "a join within months": (
        lambda f: f.joined("rts >= ts AND rts <= ts + INTERVAL 1 MONTH"), "not bounded on both sides",
    ),
    "a join by the time of one watermark": (
        lambda f: f.left.join(f.bare, F.expr("k = rk AND ts = rts")), "only one of them has a watermark",
    ),
    "a dynamic gap": (
        lambda f: f.left.groupBy(F.session_window("ts", F.expr("concat(CAST(v AS STRING), ' seconds')"))).count(),
        "gap is not fixed",
    ),
    "windows of sessions": (
        lambda f: f.left.groupBy(F.session_window("ts", "5 seconds")).count()
        .groupBy(F.window("session_window", "30 seconds")).count(),
        "above session windows",
    ),
    "windows of a union with rows of no watermark": (
        lambda f: f.left.select("ts", "k").union(f.bare).groupBy(F.window("ts", "10 seconds")).count(),
        "an aggregation by window",
    ),
    "a watermark above windows": (
        lambda f: f.counted("10 seconds").selectExpr("window.end AS at", "count").withWatermark("at", "1 second")
        .groupBy("at").count(),
        "withWatermark above a window of 10s",
    ),
    "groups without a time": (lambda f: f.left.groupBy("k").count(), "an aggregation by no event time"),
    "windows by another time, too": (
        lambda f: f.joined(WITHIN).groupBy(F.window("ts", "10 seconds"), "rts").count(),
        "an aggregation by .*window",
    ),
    "an operator with a function behind windows": (
        lambda f: f.with_state().union(f.counted("10 seconds").select("count")),
        "applyInPandasWithState beside a window of 10s",
    ),
}  # fmt: skip


@pytest.mark.parametrize("operator", UNKNOWN)
def test_what_is_not_understood_is_named(frames: Frames, operator: str) -> None:
    make, named = UNKNOWN[operator]
    plan = plan_of(make(frames))
    assert plan.kind is StateKind.UNKNOWN, plan
    assert plan.emits_later
    assert re.search(named, plan.what), plan.what


def test_session_windows_of_a_fixed_gap_have_an_earliest_end(frames: Frames) -> None:
    plan = plan_of(frames.left.groupBy("k", F.session_window("ts", "1 minute 30 seconds")).count())
    assert plan.kind is StateKind.SESSION
    assert reasons(plan) == {((Later(90 * S),), 0)}


def test_a_function_with_state_and_timers_is_the_user_s(frames: Frames) -> None:
    plan = plan_of(frames.with_state())
    assert plan.kind is StateKind.USER
    assert plan.what == "applyInPandasWithState" and plan.has_timers and not plan.by_clock
    assert plan_of(frames.with_state(GroupStateTimeout.ProcessingTimeTimeout)).by_clock


@pytest.mark.parametrize("condition", [WITHIN, "rts > ts AND rts < ts + INTERVAL 10 SECONDS"])
def test_a_join_says_its_interval(frames: Frames, condition: str) -> None:
    said = str(plan_of(frames.joined(condition)))
    assert said == "a join within 10s (watermark: ts 5s, rts 7s, policy min)"


def test_watermarks_and_their_policy_are_those_of_plan_and_session(frames: Frames) -> None:
    joined = frames.joined(WITHIN)
    both = (Watermark("ts", 5000), Watermark("rts", 7000))
    assert plan_of(joined).watermarks == both
    assert plan_of(joined).policy is WatermarkPolicy.MIN
    frames.spark.conf.set("spark.sql.streaming.multipleWatermarkPolicy", "max")
    try:
        assert plan_of(joined).policy is WatermarkPolicy.MAX
    finally:
        frames.spark.conf.unset("spark.sql.streaming.multipleWatermarkPolicy")


def test_a_join_within_days_says_no_window_above_it_where_days_differ(frames: Frames) -> None:
    """Spark adds a day of the session's time zone, and evicts by 24 hours."""
    days = frames.joined("rts >= ts AND rts <= ts + INTERVAL 2 DAYS")
    windows = days.groupBy(F.window("rts", "10 seconds")).count()
    assert plan_of(days).kind is plan_of(windows).kind is StateKind.BOUNDED
    zone = frames.spark.conf.get("spark.sql.session.timeZone")
    frames.spark.conf.set("spark.sql.session.timeZone", "Europe/Vienna")
    try:
        assert plan_of(days).kind is StateKind.BOUNDED
        assert plan_of(windows).kind is StateKind.UNKNOWN
    finally:
        frames.spark.conf.set("spark.sql.session.timeZone", str(zone))


def test_windows_end_where_spark_ends_them(frames: Frames) -> None:
    """The same windows over rows that are there already, in one batch."""
    times_ms = [0, 99, 100, 349, 350, 9_999, 10_100, 1_384_848_000_123, 1_384_848_000_100]
    sizes = ["10 seconds", "7 minutes", "1 day", "250 milliseconds"]
    rows = frames.spark.createDataFrame([(time,) for time in times_ms], "at long")
    ends = [
        F.unix_micros(F.window(F.timestamp_millis("at"), size, size, "100 milliseconds")["end"])
        for size in sizes
    ]
    found = [rows.select("at", end).collect() for end in ends]
    for size, each in zip(sizes, found, strict=True):
        (wait,) = plan_of(frames.counted(size, size, "100 milliseconds")).waits
        assert {row[0]: row[1] for row in each} == {
            time_ms: lead(wait.steps, time_ms * 1000) for time_ms in times_ms
        }
