"""A query that emits from its state is a front of its output: whoever reads that waits for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from fronts.files import FileFront
from fronts.front import FrontOptions
from local_tracker.spark.query.emits import EventTime
from local_tracker.spark.query.logs import SinkLog
from local_tracker.spark.session import tracked_query
from local_tracker.spark.session.options import TrackingOptions
from local_tracker.spark.session.tracked import Tracked, TrackedQuery
from tests.cluster.children import now_slot
from tests.docs.pages import ROOT, blocks
from tests.waits import HANG_S
from tracker.client import Admin, NodeClient, Subscriber
from tracker.core.model import Cells, Edge, PipelineSpec, TickContent, TimeKind, Unit
from tracker.core.model.ack_values import unit_value
from tracker.core.model.slots import FOREVER, slot_of
from tracker.core.model.units import slot_in_name
from tracker.errors import TrackingError
from tracker.service.rpc.nodes import MAX_RESOLVE_WAIT_MS

SLACK_NS = 10_000_000
SEGMENTS = ("windows", "report")


class Query:
    """Counts rows by the second that they tell, and emits a second when later ones have come."""

    def __init__(self, spark: SparkSession, target: str, pipeline: str, directory: Path) -> None:
        self._tracked = Tracked(spark, target, pipeline)
        self._spark, self._directory = spark, directory

    def start(self, **more: Any) -> TrackedQuery:
        counted = (
            self._spark.readStream.schema("second long")
            .parquet(str(self._directory / "in"))
            .select(F.timestamp_seconds("second").alias("at"))
            .withWatermark("at", "1 second")
            .groupBy("at")
            .count()
        )
        writer = (
            counted.writeStream.format("parquet")
            .outputMode("append")
            .option("path", str(self._directory / "out"))
            .option("checkpointLocation", str(self._directory / "cp"))
        )
        return self._tracked.start(
            writer, node_id="windows", reads="windows", creates=["report"],
            options=TrackingOptions(emits="emitted"), **more,
        )  # fmt: skip


@pytest.fixture
def registered(target: str, request: pytest.FixtureRequest) -> Iterator[str]:
    name = request.node.name
    with Admin(target) as admin:
        edge = Edge("windows", "report")
        spec = PipelineSpec(
            name, SEGMENTS, (edge,), fronts=("input", "emitted"), start_slot=now_slot()
        )
        admin.register(spec)
        yield name


def test_what_is_emitted_from_state(
    spark: SparkSession, target: str, registered: str, tmp_path: Path
) -> None:
    query = Query(spark, target, registered, tmp_path)
    with (
        Subscriber(target, registered) as subscriber,
        FileFront(target, registered, "input", "windows", tmp_path / "in") as front,
        NodeClient(target, registered, "reader") as reader,
    ):
        reader.join(HANG_S)
        running = query.start()
        for first in (100, 110, 120):
            front.write([{"second": first + n} for n in range(3)])
            front.wait_durable(HANG_S)
            running.processAllAvailable()
        told = read(reader, tmp_path, running, 0)
        # Nothing is open any more and no batch runs: its driver goes on promising.
        assert subscriber.wait_until(now_slot(), "report", timeout_s=HANG_S)
        running.stop()
        held = subscriber.min_time("report")
        # The state outlives the driver, and so does what the reader may not be told before.
        front.write([{"second": 130}])
        front.leave()
        assert subscriber.wait_until(held, "windows", timeout_s=HANG_S)
        assert not subscriber.wait_until(FOREVER, "report", timeout_s=0)
        running = query.start()
        running.processAllAvailable()
        read(reader, tmp_path, running, told)
        assert subscriber.wait_until(now_slot(), "report", timeout_s=HANG_S)
        running.stop(leave=True)
        assert subscriber.wait_until(FOREVER, timeout_s=HANG_S)
    counted = spark.read.parquet(str(tmp_path / "out")).selectExpr("cast(at as long)", "count")
    emitted = sorted((row[0], row[1]) for row in counted.collect())
    assert emitted == [(first + n, 1) for first in (100, 110, 120) for n in range(3)]


def read(reader: NodeClient, directory: Path, running: TrackedQuery, first: int) -> int:
    """Consume what was emitted from batch `first` on, by its slots, which must fit the batches; returns
    the first batch that is not over."""
    report = SEGMENTS.index("report")
    units: list[Unit] = []
    labels: list[int] = []
    batches = [batch for batch in running.checkpoint.committed() if batch >= first]
    for batch in batches:
        names = SinkLog(str(directory / "out")).created(batch)
        slots = reader.resolve_units("report", names, MAX_RESOLVE_WAIT_MS)
        assert set(slots) == set(names), f"batch {batch} was not told"
        timestamp = slot_of(running.checkpoint.offsets(batch).timestamp_ms * 1_000_000, SLACK_NS)
        assert all(slot >= timestamp for slot in slots.values())
        consumed = [n for group in running.checkpoint.consumed(batch).values() for n in group]
        oldest = [slot for name in consumed if (slot := slot_in_name(name)) is not None]
        assert all(slot >= max(oldest) for slot in slots.values() if oldest)
        assert len(set(slots.values())) <= 1, "a batch has one label"
        labels += sorted(set(slots.values()))
        units += [Unit(report, name, slot) for name, slot in slots.items()]
    assert units, "nothing was emitted"
    assert labels == sorted(labels)
    cells = Cells.of((report, unit.slot, unit_value(unit.name), 1) for unit in units)
    reader.commit(TickContent(consumed=cells, units_consumed=tuple(units))).result(HANG_S)
    return batches[-1] + 1


def test_rows_with_slots_of_their_own_are_not_emitted(
    spark: SparkSession, target: str, registered: str, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    query = Query(spark, target, registered, tmp_path)
    with pytest.raises(TrackingError, match=r"by rows in 'report'.* and emits"):
        query.start(rows={"report": "at"})


WINDOW_S = 10
(PROGRAM,) = (b.text for b in blocks(ROOT / "docs/spark-reference.md") if b.info == "python event")


class Windows:
    """Counts rows by windows of ten seconds, in a pipeline whose time is that of the rows: a window is final
    and can be read once min time has reached its end."""

    def __init__(self, spark: SparkSession, target: str, pipeline: str, directory: Path) -> None:
        self._tracked = Tracked(spark, target, pipeline)
        self.spark, self._directory = spark, directory

    def frame(self) -> DataFrame:
        rows = self.spark.readStream.schema("second long").parquet(str(self._directory / "in"))
        at = rows.select(F.timestamp_seconds("second").alias("at"))
        return at.withWatermark("at", "1 second")

    def start(self) -> TrackedQuery:
        """As docs/spark-reference.md shows it."""
        counted = self.frame().groupBy(F.window("at", f"{WINDOW_S} seconds")).count()
        writer = self._writer(counted.select("window.end", "count"))
        names: dict[str, Any] = {"tracked": self._tracked, "writer": writer}
        exec(compile(PROGRAM, "docs/spark-reference.md", "exec"), names)
        query = names["query"]
        assert isinstance(query, TrackedQuery)
        return query

    def refuse(self, frame: DataFrame, said: str, mode: str = "append") -> None:
        with pytest.raises(TrackingError, match=said):
            self._tracked.start(
                self._writer(frame, mode), node_id="windows", reads="windows", creates=["report"],
                options=TrackingOptions(emits=EventTime("window-results")),
            )  # fmt: skip

    def _writer(self, frame: DataFrame, mode: str = "append") -> Any:
        writer = frame.writeStream.format("parquet").outputMode(mode)
        writer = writer.option("path", str(self._directory / "out"))
        return writer.option("checkpointLocation", str(self._directory / "cp"))

    def out(self) -> list[tuple[int, int]]:
        """The ends, in seconds, and counts of the windows that can be read."""
        read = self.spark.read.parquet(str(self._directory / "out"))
        return sorted(tuple(row) for row in read.selectExpr("cast(end as long)", "count").collect())


@pytest.fixture
def by_event_time(target: str, request: pytest.FixtureRequest) -> Iterator[str]:
    name = request.node.name
    with Admin(target) as admin:
        spec = PipelineSpec(
            name, SEGMENTS, (Edge("windows", "report"),), fronts=("input", "window-results"),
            start_slot=slot_of_second(100), time=TimeKind.EVENT,
        )  # fmt: skip
        admin.register(spec)
        yield name


def slot_of_second(second: int) -> int:
    return slot_of(second * 1_000_000_000, SLACK_NS)


def test_a_window_is_final_and_readable_once_min_time_has_reached_its_end(
    spark: SparkSession,
    target: str,
    by_event_time: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    windows, newest = Windows(spark, target, by_event_time, tmp_path), [100]

    def publish(front: FileFront, *seconds: int) -> None:
        newest[0] = seconds[-1]
        front.write([{"second": second} for second in seconds])
        front.wait_durable(HANG_S)

    with (
        Subscriber(target, by_event_time) as subscriber,
        FileFront(target, by_event_time, "input", "windows", tmp_path / "in", options=FrontOptions(clock=lambda: newest[0] * 1_000_000_000)) as front,
        NodeClient(target, by_event_time, "reader") as reader,
    ):  # fmt: skip
        reader.join(HANG_S)
        running = windows.start()
        publish(front, 101, 102, 108)
        running.processAllAvailable()
        publish(front, 103, 109, 113)  # the watermark comes to 112
        running.processAllAvailable()
        # It has been emitted; whoever is to read it has not yet.
        assert windows.out() == [(110, 5)]
        assert not subscriber.wait_until(slot_of_second(110), "report", timeout_s=0)
        told = read_windows(reader, tmp_path, running, 0)
        assert subscriber.wait_until(slot_of_second(112), "report", timeout_s=HANG_S)
        running.stop()
        # What is in the state outlives the driver. A run that ends makes its last promise before.
        publish(front, 127)
        monkeypatch.setattr(tracked_query, "_HEARTBEAT_INTERVAL_MS", 3_600_000)
        running = windows.start()
        running.processAllAvailable()
        read_windows(reader, tmp_path, running, told)
        running.stop()
        assert subscriber.wait_until(slot_of_second(126), "report", timeout_s=HANG_S)
        assert windows.out() == [(110, 5), (120, 1)]
        # The window of 127 is in the state, and is not promised, nor is anything by a driver that is idle.
        monkeypatch.undo()
        running = windows.start()
        running.processAllAvailable()
        assert subscriber.min_time("report") == slot_of_second(126)
        running.stop(leave=True)
        front.leave()
        assert subscriber.wait_until(FOREVER, "report", timeout_s=HANG_S)


def read_windows(reader: NodeClient, directory: Path, running: TrackedQuery, first: int) -> int:
    """Consume what was emitted from batch `first` on; returns the first batch that is not over."""
    units: list[Unit] = []
    batches = [batch for batch in running.checkpoint.committed() if batch >= first]
    for batch in batches:
        names = SinkLog(str(directory / "out")).created(batch)
        slots = reader.resolve_units("report", names, MAX_RESOLVE_WAIT_MS)
        assert set(slots) == set(names), f"batch {batch} was not told"
        before = running.checkpoint.offsets(batch - 1).watermark_ms if batch else 0
        least = slot_of(before * 1_000_000, SLACK_NS)
        assert all(slot == max(least, slot_of_second(100)) for slot in slots.values())
        units += [Unit(SEGMENTS.index("report"), name, slot) for name, slot in slots.items()]
    assert units, "nothing was emitted"
    cells = Cells.of((unit.segment, unit.slot, unit_value(unit.name), 1) for unit in units)
    reader.commit(TickContent(consumed=cells, units_consumed=tuple(units))).result(HANG_S)
    return batches[-1] + 1


def test_operators_that_emit_by_other_rules_are_refused_by_name(
    spark: SparkSession, target: str, by_event_time: str, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    windows = Windows(spark, target, by_event_time, tmp_path)
    here, there = windows.frame(), windows.frame().withColumnRenamed("at", "there")
    grouped = here.groupBy("at").count().select("at")
    windows.refuse(here.join(there, F.expr("at = there"), "leftOuter"), "operator Join .* span_ms")
    windows.refuse(grouped.union(here), "operator Union .* span_ms")
    windows.refuse(here, "none of its operators emits .* span_ms")
    windows.refuse(grouped, "output mode is Update", "update")
