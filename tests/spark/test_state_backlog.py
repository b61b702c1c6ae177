"""Each file of a backlog is held by its own latest row where its rows can be read again, and with all others where not."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from local_tracker.spark.jvm import PlannedQuery, planned_query
from local_tracker.spark.query.logs import CheckpointLog
from local_tracker.spark.state.backlog import Backlog, event_times
from local_tracker.spark.state.bounds import LogBounds
from local_tracker.spark.state.entries import Told
from local_tracker.spark.state.rules import StateKind
from tracker.client.state_names import Bound, Rows
from tracker.core.model import Unit

SLACK_NS = 10_000_000
APART = 6_000
"""An hour of slots holds sixty of these: files are labelled a minute from each other."""
LAST_MS = 10**9
"""The watermark by which all of the batch is out."""
TOLD = Told(0, LAST_MS)
SCHEMA = "at_ms long, other_ms long, text string"

Times = Sequence[int | None]
"""Of the rows of a file, in ms since 1970."""
PLAIN: Mapping[str, Times] = {"a/0": (1_000, 3_000), "a/1": (60_000, 2_000), "a/2": (120_000,)}
"""The second file has a row that is older than those of the first."""


@dataclass(frozen=True)
class Streams:
    spark: SparkSession
    root: Path

    def rows(self, folder: str = "a", file_format: str = "parquet") -> DataFrame:
        reader = self.spark.readStream.schema(SCHEMA).format(file_format)
        return reader.load(str(self.root / folder))

    def timed(self, folder: str = "a", column: str = "at_ms", name: str = "at") -> DataFrame:
        timed = self.rows(folder).select(F.timestamp_millis(column).alias(name))
        return timed.withWatermark(name, "5 seconds")


def windowed(frame: DataFrame) -> DataFrame:
    return frame.groupBy(F.window("at", "10 seconds")).count()


def joined(streams: Streams, right: DataFrame, how: str = "inner") -> DataFrame:
    soon = F.expr("later >= at AND later <= at + INTERVAL 10 SECONDS")
    return streams.timed().join(right, soon, how)


def with_text(streams: Streams) -> DataFrame:
    timed = streams.rows().select(F.to_timestamp("text").alias("at"))
    return windowed(timed.withWatermark("at", "5 seconds"))


@dataclass(frozen=True)
class Case:
    """latest_ms: of each file that is held by itself; the others are held with all."""

    build: Callable[[Streams], DataFrame]
    latest_ms: Mapping[str, int]
    files: Mapping[str, Times] = field(default_factory=lambda: PLAIN)


EACH = {"a/0": 3_000, "a/1": 60_000, "a/2": 120_000}
BOTH_SIDES = {**PLAIN, "b/0": (5_000,), "b/1": (70_000, 4_000)}
OF_BOTH = {**EACH, "b/0": 5_000, "b/1": 70_000}

CASES = {
    "windows": Case(lambda s: windowed(s.timed()), EACH),
    "a filter below, whose rows count": Case(
        lambda s: windowed(
            s.rows().filter("at_ms > 50000").select(F.timestamp_millis("at_ms").alias("at"))
            .withWatermark("at", "5 seconds")
        ),
        EACH,
    ),
    "sessions": Case(
        lambda s: s.timed().groupBy(F.session_window("at", "10 seconds")).count(), EACH
    ),
    "an inner join": Case(
        lambda s: joined(s, s.timed("b", name="later")), OF_BOTH, BOTH_SIDES
    ),
    "a left outer join": Case(
        lambda s: joined(s, s.timed("b", name="later"), "left"), OF_BOTH, BOTH_SIDES
    ),
    "a full outer join": Case(
        lambda s: joined(s, s.timed("b", name="later"), "full"), OF_BOTH, BOTH_SIDES
    ),
    "a directory that is read twice, by two columns": Case(
        lambda s: joined(s, s.timed("a", "other_ms", "later")),
        {name: 7_000 + latest_ms for name, latest_ms in EACH.items()},
    ),
    "a union": Case(
        lambda s: windowed(s.timed().union(s.timed("b"))), OF_BOTH, BOTH_SIDES
    ),
    "a null among the rows of one": Case(
        lambda s: windowed(s.timed()),
        {"a/1": 60_000, "a/2": 120_000},
        {**PLAIN, "a/0": (1_000, None)},
    ),
    "nulls alone, and no rows": Case(
        lambda s: windowed(s.timed()), {"a/2": 120_000}, {**PLAIN, "a/0": (None,), "a/1": ()}
    ),
    "a null on one side of a join": Case(
        lambda s: joined(s, s.timed("b", name="later"), "left"),
        {name: latest_ms for name, latest_ms in OF_BOTH.items() if name != "b/1"},
        {**BOTH_SIDES, "b/1": (70_000, None)},
    ),
    "times that are text, in the session's time zone": Case(with_text, {}),
    "a watermark above a deduplication": Case(
        lambda s: windowed(
            s.rows().select(F.timestamp_millis("at_ms").alias("at")).dropDuplicates()
            .withWatermark("at", "5 seconds")
        ),
        {},
    ),
    "one side of a join that cannot be read again": Case(
        lambda s: joined(
            s,
            s.rows("b", "json").select(F.timestamp_millis("at_ms").alias("later"))
            .withWatermark("later", "5 seconds"),
        ),
        {},
        BOTH_SIDES,
    ),
}  # fmt: skip


@pytest.fixture
def streams(spark: SparkSession, tmp_path: Path) -> Streams:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
    return Streams(spark, tmp_path)


def written(streams: Streams, files: Mapping[str, Times]) -> list[Unit]:
    """The files, as units whose slots are far apart."""
    units = []
    for number, (name, times_ms) in enumerate(files.items()):
        path = streams.root / f"{name}.parquet"
        others_ms = [None if at_ms is None else at_ms + 7_000 for at_ms in times_ms]
        columns = pa.array(times_ms, pa.int64()), pa.array(others_ms, pa.int64())
        texts = pa.array([None] * len(times_ms), pa.string())
        pq.write_table(pa.table([*columns, texts], ["at_ms", "other_ms", "text"]), path)
        units.append(Unit(0, f"file://{path}", number * 60 * APART))
    return units


def planned(frame: DataFrame) -> PlannedQuery:
    return planned_query(frame.writeStream.format("noop").outputMode("append"))


def backlog_of(streams: Streams, query: PlannedQuery) -> tuple[Backlog, LogBounds]:
    assert query.state is not None
    bounds = LogBounds(query.state, CheckpointLog(str(streams.root / "cp")))
    return Backlog(streams.spark, query.event_times, SLACK_NS, bounds.bound_of), bounds


def by_name(found: Mapping[Bound, Sequence[Unit]]) -> dict[str, Bound]:
    """The bound of each file. None is there twice."""
    names = [(unit.name, bound) for bound, units in found.items() for unit in units]
    assert len(dict(names)) == len(names)
    return dict(names)


@pytest.mark.parametrize("name", CASES)
def test_a_file_is_held_by_its_own_latest_row(streams: Streams, name: str) -> None:
    case = CASES[name]
    units = written(streams, case.files)
    query = planned(case.build(streams))
    backlog, _ = backlog_of(streams, query)
    state = query.state
    assert state is not None and state.emits_later
    expected: dict[str, Bound] = {}
    for unit, file in zip(units, case.files, strict=True):
        latest_ms = case.latest_ms.get(file)
        if latest_ms is None:
            expected[unit.name] = LAST_MS
        else:
            is_session = state.kind is StateKind.SESSION
            expected[unit.name] = Rows(latest_ms) if is_session else state.bound_ms(latest_ms)
    assert by_name(backlog.by_bound(units, TOLD)) == expected


def test_what_is_close_together_or_over_is_not_read_again(streams: Streams) -> None:
    units = written(streams, PLAIN)
    query = planned(windowed(streams.timed()))
    reads = Backlog(cast(SparkSession, None), query.event_times, SLACK_NS, lambda at_ms: at_ms)
    near = [Unit(0, unit.name, place) for place, unit in enumerate(units)]
    assert reads.by_bound(near, TOLD) == {LAST_MS: near}
    assert reads.by_bound(units, Told(LAST_MS, LAST_MS)) == {LAST_MS: units}
    assert reads.by_bound(units, Told(0, LAST_MS, is_empty=True)) == {LAST_MS: units}


@pytest.mark.parametrize("harm", ["gone", "a name that Spark would take for a pattern"])
def test_what_cannot_be_read_again_is_held_together(streams: Streams, harm: str) -> None:
    units = written(streams, PLAIN)
    query = planned(windowed(streams.timed()))
    backlog, _ = backlog_of(streams, query)
    if harm == "gone":
        (streams.root / "a/1.parquet").unlink()
    else:
        units.append(Unit(0, f"file://{streams.root}/a/[0-9].parquet", 0))
    assert backlog.by_bound(units, TOLD) == {LAST_MS: units}


def test_a_plan_of_classes_that_are_not_known_is_not_read_again() -> None:
    """They differ from one version of Spark to another."""

    class Plan:
        def getClass(self) -> Any:
            raise AttributeError("getClass")

    assert event_times(Plan()) == ()


def test_a_tick_that_is_made_again_reads_no_file_again(streams: Streams) -> None:
    units = written(streams, PLAIN)
    backlog, _ = backlog_of(streams, planned(windowed(streams.timed())))
    found = backlog.by_bound(units, TOLD)
    for file in PLAIN:
        (streams.root / f"{file}.parquet").unlink()
    assert backlog.by_bound(units, TOLD) == found
    later = list(itertools.islice(reversed(units), 2))
    assert backlog.by_bound(later, TOLD) == {LAST_MS: later}, "another batch is read anew"
