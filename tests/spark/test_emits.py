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
from tests.docs.pages import ROOT, blocks
from tests.waits import HANG_S
from tracker.client import Admin, NodeClient, Subscriber
from tracker.core.model import Cells, Edge, PipelineSpec, TickContent, TimeKind, Unit
from tracker.core.model.ack_values import unit_value
from tracker.core.model.slots import FOREVER, slot_of
from tracker.errors import TrackingError
from tracker.service.rpc.nodes import MAX_RESOLVE_WAIT_MS

SLACK_NS = 10_000_000
SEGMENTS = ("windows", "report")
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

    def refuse(
        self, frame: DataFrame, said: str, mode: str = "append", emits: Any = None, **more: Any
    ) -> None:
        options = TrackingOptions(emits=emits or EventTime("window-results"))
        with pytest.raises(TrackingError, match=said):
            self._tracked.start(
                self._writer(frame, mode), node_id="windows", reads="windows", creates=["report"],
                options=options, **more,
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
    windows.refuse(grouped.union(windows.frame()), "operator Union .* span_ms")
    windows.refuse(here, "none of its operators emits .* span_ms")
    windows.refuse(grouped, "output mode is Update", "update")
    windows.refuse(
        grouped, r"by rows in 'report'.* and emits", emits="window-results", rows={"report": "at"}
    )
