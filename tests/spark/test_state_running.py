"""A query is asked what its logs do not tell of its state, while it runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import cast

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

from local_tracker.spark import jvm
from local_tracker.spark.query.logs import CheckpointLog
from local_tracker.spark.state import running as module
from local_tracker.spark.state.bounds import LogBounds
from local_tracker.spark.state.running import RunningQuery
from local_tracker.spark.state.stored import StoredState
from tests.spark.support import can_read_state
from tracker.client.state_names import UNKNOWN, Rows

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


class Run:
    """A query over files of event times, in seconds, and what is known of its batches."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self._spark, self._root, self._files = spark, root, 0
        self.query: StreamingQuery | None = None

    def stream(self, name: str) -> DataFrame:
        (self._root / name).mkdir(exist_ok=True)
        rows = self._spark.readStream.schema("at double, k long").json(str(self._root / name))
        return rows.selectExpr(f"timestamp_seconds(at) {name}", f"k k_{name}").withWatermark(
            name, "5 seconds"
        )

    def put(self, name: str, *seconds: float) -> None:
        self._files += 1
        lines = "".join(json.dumps({"at": second, "k": 1}) + "\n" for second in seconds)
        hidden = self._root / name / f".{self._files}"
        hidden.write_text(lines)
        hidden.rename(self._root / name / f"{self._files}.json")

    def start(self, frame: DataFrame) -> None:
        checkpoint = self._root / "checkpoint"
        planned = [int(p.name) for p in (checkpoint / "offsets").glob("[0-9]*")]
        writer = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
        plan = jvm.planned_query(writer).state
        assert plan is not None
        self.query = writer.start()
        self.log = CheckpointLog(jvm.checkpoint_root(self.query))
        self.asked = RunningQuery(self._spark, self.query, self.log.root, max(planned, default=-1))
        self.bounds = LogBounds(plan, self.log, self.asked)

    def process(self) -> int:
        """Up to the last batch that there is; returns it."""
        assert self.query is not None
        self.query.processAllAvailable()
        return max(self.log.committed())

    def stop(self) -> None:
        if self.query is not None:
            self.query.stop()


@pytest.fixture
def run(spark: SparkSession, tmp_path: Path) -> Run:
    return Run(spark, tmp_path)


def test_the_stream_that_is_ahead_bounds_what_a_join_under_policy_min_has_absorbed(
    run: Run,
) -> None:
    left, right = run.stream("ts"), run.stream("rts")
    condition = "k_ts = k_rts AND rts >= ts AND rts <= ts + INTERVAL 10 SECONDS"
    joined = left.join(right, F.expr(condition))
    try:
        run.start(joined)
        run.put("rts", 50)
        run.put("ts", 200)
        told = run.bounds.told(run.process())
        assert (told.bound_ms, told.earlier_ms) == (210_002, None)
        # Another run has not seen that stream yet: what it has not evaluated is not guessed.
        run.stop()
        run.start(joined)
        run.put("rts", 60)
        told = run.bounds.told(run.process())
        assert (told.bound_ms, told.is_empty) == (70_002, False)
        last = max(run.log.committed())
        earlier = run.bounds.told(run.log.committed()[0])
        assert (earlier.bound_ms, earlier.in_state_ms) == (UNKNOWN, None)
        # What is left of it is in the state, if that can be read.
        expected = 210_002 if can_read_state() else None
        assert run.bounds.told(last).in_state_ms == expected
    finally:
        run.stop()


def test_a_checkpoint_that_names_no_operator_with_sessions_does_not_say_that_none_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As one that an older Spark began."""
    for named in ((), ((0, "stateStoreSave"),)):
        monkeypatch.setattr(StoredState, "_operators", lambda self, named=named: named)
        with pytest.raises(LookupError, match="does not tell where its session windows are"):
            StoredState(cast(SparkSession, None), "/checkpoint").left_ms(0)


def test_session_windows_are_over_when_the_state_has_none_that_began_by_then(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "READ_EACH_S", 0.0)
    sessions = run.stream("ts").groupBy("k_ts", F.session_window("ts", "5 seconds")).count()
    try:
        run.start(sessions)
        run.put("ts", 30)
        told = run.bounds.told(run.process())
        assert (told.bound_ms, told.left_ms) == (Rows(30_000), 29_999)
        run.put("ts", 33)  # the session goes on, until 38
        run.process()
        run.put("ts", 42.5)
        told = run.bounds.told(run.process())
        assert (told.over_ms, told.left_ms) == (37_500, 29_999)
        run.put("ts", 43)
        told = run.bounds.told(run.process())
        assert (told.over_ms, told.left_ms) == (38_000, 42_499)
    finally:
        run.stop()


@pytest.mark.parametrize(
    ("name", "rows", "others", "is_empty"),
    [
        ("stateStoreSave", 0, None, True),
        ("stateStoreSave", 1, None, False),
        ("transformWithStateInPandasExec", 0, 0, True),
        ("transformWithStateInPandasExec", 0, 2, False),
        ("transformWithStateInPandasExec", 1, 0, False),
        ("transformWithStateExec", 0, None, False),
    ],
    ids=[
        "empty",
        "rows",
        "no timer",
        "a timer alone",
        "a row without timers",
        "timers not counted",
    ],
)
def test_a_state_is_empty_when_no_row_and_no_timer_is_left(
    monkeypatch: pytest.MonkeyPatch, name: str, rows: int, others: int | None, is_empty: bool
) -> None:
    """others: what the operator counts beside its rows."""
    counted = {} if others is None else {"rocksdbNumInternalColFamiliesKeys": others}
    operator = {"operatorName": name, "numRowsTotal": rows, "customMetrics": counted}
    progress = {"stateOperators": [operator]}
    monkeypatch.setattr(RunningQuery, "_progress_of", lambda self, batch: progress)
    monkeypatch.setattr(RunningQuery, "_counts_rows", lambda self: True)
    asked = RunningQuery(cast(SparkSession, None), cast(StreamingQuery, None), "/checkpoint", -1)
    assert asked.is_empty(0) is is_empty


class Report:
    """Of a query's progress, as its JVM has it. has_run: it is of a batch that has run; else the query waits for data."""

    def __init__(self, batch: int, rows: int, *, has_run: bool) -> None:
        self._batch, self._rows = batch, rows
        self._took = {"triggerExecution": 1} | ({"addBatch": 1} if has_run else {})

    def batchId(self) -> int:
        return self._batch

    def durationMs(self) -> Report:
        return self

    def containsKey(self, name: str) -> bool:
        return name in self._took

    def json(self) -> str:
        operator = {"operatorName": "flatMapGroupsWithState", "numRowsTotal": self._rows}
        return json.dumps({"batchId": self._batch, "stateOperators": [operator]})


class Reporting:
    """A query that reports what it does at one moment, and at the next one when it is asked again."""

    isActive = True

    def __init__(self, now: list[Report], then: list[Report]) -> None:
        self._jsq, self._moments = self, [now, now, then]

    def streamingQuery(self) -> Reporting:
        return self

    def lastProgress(self) -> Report | None:
        self._moments = self._moments[1:] or self._moments
        return next(iter(self._moments[0][-1:]), None)

    def recentProgress(self) -> list[Report]:
        return self._moments[0]


IDLE, RUN = Report(3, 0, has_run=False), Report(3, 1, has_run=True)


@pytest.mark.parametrize(
    ("then", "is_empty"),
    [
        ([IDLE, RUN], False),
        ([IDLE, Report(3, 0, has_run=True)], True),
        ([IDLE, RUN, Report(4, 1, has_run=False)], False),
    ],
    ids=["rows", "none", "it waits again"],
)
def test_what_a_query_reports_while_it_waits_for_data_is_not_of_the_batch_that_it_runs_next(
    monkeypatch: pytest.MonkeyPatch, then: list[Report], is_empty: bool
) -> None:
    """It names the number of that one, and the state that the batch before it has left."""
    monkeypatch.setattr(RunningQuery, "_counts_rows", lambda self: True)
    query = cast(StreamingQuery, Reporting([IDLE], then))
    asked = RunningQuery(cast(SparkSession, None), query, "/checkpoint", 2)
    assert asked.is_empty(3) is is_empty


def test_the_state_is_read_while_a_query_waits_for_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "READ_EACH_S", 0.0)
    monkeypatch.setattr(StoredState, "left_ms", lambda self, batch: batch)
    query = cast(StreamingQuery, Reporting([IDLE], [IDLE]))
    asked = RunningQuery(cast(SparkSession, None), query, "/checkpoint", 1)
    assert [asked.left_ms(batch, batch + 10) for batch in (1, 2)] == [None, 2]


@pytest.mark.parametrize("counts", ["true", "false"])
def test_a_state_whose_rows_are_not_counted_is_not_taken_for_empty(
    run: Run, spark: SparkSession, counts: str
) -> None:
    settings = {
        "spark.sql.streaming.stateStore.providerClass": ROCKSDB,
        "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": counts,
    }
    before = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        run.start(run.stream("ts").groupBy(F.window("ts", "5 seconds")).count())
        run.put("ts", 30)
        batch = run.process()
        progress = run.query.lastProgress if run.query is not None else None
        assert progress is not None
        assert (progress["stateOperators"][0]["numRowsTotal"] == 0) is (counts == "false")
        assert not run.asked.is_empty(batch)
    finally:
        run.stop()
        for name, found in before.items():
            if found is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, found)
