"""The front of a query that labels and promises by event time: what it has promised is out and readable.

Spark is played by a few lines that follow its rules for one watermark and append mode: rows are late by the
watermark of the batch before, results leave by the batch's own. The driver is killed between any two steps.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from local_tracker.spark.formats.interface import QueryReads
from local_tracker.spark.formats.outputs import sink_output
from local_tracker.spark.query.emits import (
    BatchTimes,
    ByWatermark,
    EventTime,
    emitting_front,
)
from local_tracker.spark.query.labels import FrontLabels
from local_tracker.spark.query.logs import CheckpointLog, SinkLog
from local_tracker.spark.query.plans import Routes
from local_tracker.spark.query.ticks import QueryTicks
from local_tracker.spark.state.rules import LONGEST_MS
from tracker.client import LowmarkError
from tracker.core.model import Edge, PipelineSpec, TimeKind
from tracker.core.model.slots import slot_of
from tracker.core.model.units import file_name
from tracker.errors import TrackingError

DELAY_MS = 4
SLACK_NS = 2_000_000
SPEC = PipelineSpec(
    "p", ("windows", "report"), (Edge("windows", "report"),), fronts=("input", "emitted"),
    time=TimeKind.EVENT, slack_ns=SLACK_NS,
)  # fmt: skip

Window = tuple[int, int]
"""First millisecond and end, exclusive."""


@dataclass(frozen=True)
class Operator:
    """The windows that a row at a millisecond falls into. It is late when they have ended by the watermark of
    the batch before. merges: windows that touch become one, as sessions do. waits_ms: a window leaves that much
    after its end. at_its_end: a result is of that very moment, and no window that ends before it."""

    windows: Callable[[int], Iterable[Window]]
    merges: bool = False
    waits_ms: int = 0
    at_its_end: bool = False

    def last_us(self, window: Window) -> int:
        """The last instant of a result."""
        return window[1] * 1000 - (0 if self.at_its_end else 1)


def sliding(size: int, slide: int) -> Operator:
    def windows(at: int) -> list[Window]:
        latest = at - at % slide
        return [(begin, begin + size) for begin in range(latest, at - size, -slide)]

    return Operator(windows)


def moment(at: int) -> list[Window]:
    return [(at, at)]


OPERATORS = {
    "tumbling": sliding(10, 10),
    "sliding": sliding(10, 3),
    "groups of a time": Operator(moment, at_its_end=True),
    "sessions": Operator(lambda at: [(at, at + 5)], merges=True),
    "outer rows of a join": Operator(moment, waits_ms=7, at_its_end=True),
}


class Spark:
    """What the batches of a query are and emit. rows: of each batch, in milliseconds."""

    def __init__(self, operator: Operator, rows: list[list[int]]) -> None:
        self.operator = operator
        self.watermarks: list[int] = []
        self.emitted: list[list[Window]] = []
        state: set[Window] = set()
        before = watermark = latest = 0
        for taken in rows:
            before, watermark = watermark, max(watermark, latest - DELAY_MS)
            for at in taken:
                for window in operator.windows(at):
                    if window[1] > before:
                        state = self._with(state, window)
            out = {window for window in state if window[1] + operator.waits_ms <= watermark}
            state -= out
            latest = max([latest, *taken])
            self.watermarks.append(watermark)
            self.emitted.append(sorted(out))

    def _with(self, state: set[Window], window: Window) -> set[Window]:
        if not self.operator.merges:
            return state | {window}
        touching = {w for w in state if w[0] <= window[1] and window[0] <= w[1]} | {window}
        merged = min(first for first, _ in touching), max(end for _, end in touching)
        return (state - touching) | {merged}

    def times(self, batch: int) -> BatchTimes:
        before = self.watermarks[batch - 1] if batch else 0
        return BatchTimes(batch, 0, self.watermarks[batch], before)

    def slot(self, window: Window) -> int:
        """Of a result."""
        return slot_of(self.operator.last_us(window) * 1000, SLACK_NS)

    def slots(self, batches: Iterable[int]) -> list[int]:
        return [self.slot(window) for batch in batches for window in self.emitted[batch]]


class Tracker:
    """What is durable: ticks, and promises."""

    def __init__(self, start_slot: int) -> None:
        self.promised, self.last_durable = start_slot, -1

    def promise(self, slot: int, spark: Spark) -> None:
        assert slot >= self.promised, "a promise went back"
        self.promised = slot
        missing = spark.slots(range(self.last_durable + 1, len(spark.emitted)))
        assert all(later >= slot for later in missing), "promised, and not all of it is out"

    def take(self, batch: int, label: int, spark: Spark) -> None:
        assert batch == self.last_durable + 1
        assert label >= self.promised, "labelled below what was promised"
        assert all(slot >= label for slot in spark.slots([batch])), "labelled above a result"
        self.last_durable = batch


class Driver:
    """One life of a driver, which dies by being forgotten."""

    def __init__(self, spark: Spark, tracker: Tracker) -> None:
        self._spark, self._tracker = spark, tracker
        self._emission = ByWatermark(
            "emitted", FrontLabels(tracker.promised), SPEC, spark.operator.waits_ms
        )
        self._next = tracker.last_durable + 1
        self._label: int | None = None
        if tracker.last_durable >= 0:
            self._emission.resume(spark.watermarks[tracker.last_durable])

    def step(self, what: str, committed: int) -> None:
        """committed: how many batches Spark has over by now."""
        if what == "label" and self._next < committed:
            self._label = self._emission.label(self._spark.times(self._next), ())
        elif what == "durable" and self._label is not None:
            if self._tracker.last_durable < self._next:
                self._tracker.take(self._next, self._label, self._spark)
        elif what == "told" and self._tracker.last_durable == self._next:
            self._emission.durable(self._next)
            self._next, self._label = self._next + 1, None
        elif what == "promise":
            self._tracker.promise(self._emission.promise(), self._spark)


STEPS = ("over", "label", "durable", "told", "promise", "kill")


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from(sorted(OPERATORS)),
    st.lists(st.lists(st.integers(100, 160), max_size=4), min_size=1, max_size=8),
    st.lists(st.sampled_from(STEPS), max_size=60),
)
def test_what_is_promised_is_out_wherever_the_driver_dies(
    name: str, rows: list[list[int]], steps: list[str]
) -> None:
    spark = Spark(OPERATORS[name], [*rows, [], []])  # the last ones let go of what they may
    tracker = Tracker(slot_of(100 * 1_000_000, SLACK_NS))
    start, over = tracker.promised, 0
    driver = Driver(spark, tracker)
    finish = ["label", "durable", "promise", "told", "promise"] * len(spark.emitted)
    for step in [*steps, "kill", *["over"] * len(spark.emitted), *finish]:
        if step == "over":
            over = min(over + 1, len(spark.emitted))
        elif step == "kill":
            driver = Driver(spark, tracker)
        else:
            driver.step(step, over)
    # It gets as far as the watermark allows, and an idle driver stays there.
    reached = slot_of((spark.watermarks[-1] - spark.operator.waits_ms) * 1_000_000, SLACK_NS)
    assert tracker.promised == max(start, reached)
    driver.step("promise", over)
    assert tracker.promised == max(start, reached)


def test_a_promise_is_kept_when_nothing_comes_after_the_restart() -> None:
    """The driver died between the tick of a batch and the promise behind it."""
    emission = ByWatermark("emitted", FrontLabels(50), SPEC, 0)
    assert emission.promise() == 50
    emission.resume(200)
    assert emission.promise() == slot_of(200 * 1_000_000, SLACK_NS)


def test_a_batch_that_is_being_committed_holds_the_promise_before_it() -> None:
    emission = ByWatermark("emitted", FrontLabels(0), SPEC, 0)
    assert emission.label(BatchTimes(7, 0, 200, 150), ()) == 75
    assert emission.promise() == 75
    emission.durable(7)
    assert emission.promise() == 100


def test_nothing_is_promised_past_a_label_whose_tick_is_to_come() -> None:
    labels = FrontLabels(0)
    assert labels.label(7, 50) == 50
    assert labels.promise(90) == 50
    labels.close(7)
    assert labels.promise(90) == 90


def test_a_front_that_comes_after_its_time_was_announced_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    late = ByWatermark("emitted", FrontLabels(100), SPEC, 0)
    assert late.label(BatchTimes(3, 0, 180, 150), ()) == 100
    assert late.label(BatchTimes(4, 0, 190, 180), ()) == 100
    (said,) = caplog.messages
    assert "batch 3: min time had passed 1970-01-01 00:00:00.200000" in said and "slot 100" in said


# --- through the logs -----------------------------------------------------------------------------


class Checkpoint:
    """A query's logs, as Spark writes them, of batches that each read a file and wrote one."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for folder in ("cp/offsets", "cp/commits", "cp/sources/0", "out/_spark_metadata"):
            (root / folder).mkdir(parents=True)
        (root / "cp/metadata").write_text(json.dumps({"id": "q-1"}))

    def batch(self, number: int, watermark_ms: int, next_ms: int) -> None:
        header = {"batchWatermarkMs": watermark_ms, "batchTimestampMs": 1_700_000_000_000}
        read = {"path": f"file:///in/{file_name(60, 'input', number, 'json')}", "batchId": number}
        wrote = {"path": f"file:///out/{number}.json", "size": 1, "isDir": False, "action": "add"}
        entries: list[tuple[str, list[Any]]] = [
            ("cp/sources/0", [read]),
            ("cp/offsets", [header, {"logOffset": number}]),
            ("out/_spark_metadata", [wrote]),
            ("cp/commits", [{"nextBatchWatermarkMs": next_ms}]),
        ]
        for folder, lines in entries:
            text = "\n".join(["v1", *(json.dumps(line) for line in lines)])
            (self.root / folder / str(number)).write_text(text)

    def ticks(self, granted: int, last_durable: int) -> tuple[QueryTicks, ByWatermark]:
        """Of a driver that starts."""
        log = CheckpointLog(str(self.root / "cp"))
        nobody: Any = None  # is asked nothing, since the files' names have slots
        node: Any = SimpleNamespace(holds={})
        routes = Routes(SPEC, QueryReads("windows"), ["report"], "q")
        emission = ByWatermark("emitted", FrontLabels(granted), SPEC, 0)
        output = sink_output(SinkLog(str(self.root / "out")), routes.creates)
        ticks = QueryTicks(node, nobody, routes, log, lambda: [output], emits=emission)
        ticks.resume(last_durable)
        return ticks, emission


def test_a_batch_is_labelled_with_the_watermark_before_it(tmp_path: Path) -> None:
    """Not by the slot of what it consumed, which may be above that of a window that it emits."""
    checkpoint = Checkpoint(tmp_path)
    for batch, (own, after) in enumerate([(0, 120), (120, 150), (150, 150)]):
        checkpoint.batch(batch, own, after)
    ticks, emission = checkpoint.ticks(granted=20, last_durable=-1)
    promised, labels = [], []
    for batch in range(3):
        (unit,) = ticks.tick(ticks.read(batch), Event()).units_created
        labels.append(unit.slot)
        ticks.durable(batch)
        promised.append(emission.promise())
    assert (labels, promised) == ([20, 20, 60], [20, 60, 75])
    # A driver that comes back before the last tick was durable begins behind the one before.
    again, emission = checkpoint.ticks(granted=20, last_durable=1)
    assert emission.promise() == 60
    (unit,) = again.tick(again.read(2), Event()).units_created
    assert unit.slot == 60 and emission.promise() == 60
    again.durable(2)
    assert emission.promise() == 75


# --- what is refused ------------------------------------------------------------------------------


def front(emits: Any = None, **changed: Any) -> Any:
    given: dict[str, Any] = {
        "emits": EventTime("emitted") if emits is None else emits, "creates": ["report"],
        "spec": SPEC, "by_rows": (), "mode": "Append",
        "operators": ("Aggregate", "EventTimeWatermark"),
    } | changed  # fmt: skip
    made = emitting_front(**given)
    return made.name, made.segment, made.span_ms


def test_windows_and_groups_need_no_word_more() -> None:
    assert front() == ("emitted", "report", 0)
    chain = ("Aggregate", "Deduplicate", "Aggregate", "EventTimeWatermark")
    assert front(operators=chain) == ("emitted", "report", 0)


def test_a_query_whose_results_nobody_reads_is_a_front_of_a_segment_that_is_named() -> None:
    assert front(EventTime("emitted", "report"), creates=[]) == ("emitted", "report", 0)
    assert front(EventTime("emitted", "report")) == ("emitted", "report", 0)
    with pytest.raises(TrackingError, match="of the one segment"):
        front(EventTime("emitted", "windows"))
    with pytest.raises(TrackingError, match="of the one segment"):
        front(creates=[])
    with pytest.raises(LowmarkError, match="nowhere"):
        front(EventTime("emitted", "nowhere"), creates=[])


@pytest.mark.parametrize(
    ("operators", "named"),
    [
        (("Join", "EventTimeWatermark", "EventTimeWatermark"), "Join"),
        (("Aggregate", "Join", "EventTimeWatermark"), "Join"),
        (("FlatMapGroupsInPandasWithState", "EventTimeWatermark"), "FlatMapGroupsInPandasWithState"),
        (("Union", "Aggregate", "EventTimeWatermark"), "Union"),
        (("DeduplicateWithinWatermark", "EventTimeWatermark"), "none of its operators"),
        (None, "Spark Connect"),
    ],
)  # fmt: skip
def test_other_operators_are_refused_by_name_unless_the_span_is_given(
    operators: tuple[str, ...] | None, named: str
) -> None:
    with pytest.raises(TrackingError, match=rf"{named}.*span_ms"):
        front(operators=operators)
    assert front(EventTime("emitted", span_ms=7), operators=operators)[2] == 7


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"mode": "Update"}, "output mode is Update.*append"),
        ({"mode": "Complete"}, "output mode is Complete.*append"),
        ({"operators": ("Aggregate",)}, "sets no watermark"),
        ({"by_rows": {"report": "at"}}, "by rows in 'report'"),
        ({"spec": PipelineSpec("p", ("report",))}, "arrival time: register it with time: event"),
        ({"emits": "emitted"}, r"labels by the clock.*EventTime\('emitted'\)"),
    ],
)
def test_what_makes_no_sense_is_refused(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(TrackingError, match=said):
        front(**changed)


@pytest.mark.parametrize("span", [-1, 1.5, True, LONGEST_MS + 1])
def test_a_span_is_whole_milliseconds(span: Any) -> None:
    with pytest.raises(ValueError, match="span_ms of front 'emitted'"):
        EventTime("emitted", span_ms=span)


def test_a_front_needs_no_edge_from_input_that_is_not_tracked() -> None:
    alone = PipelineSpec("p", ("windows", "report"), time=TimeKind.EVENT)
    assert Routes(alone, QueryReads({}, ["0"]), ["report"], "q", as_front=True).creates == (1,)
    with pytest.raises(TrackingError, match="no edge"):
        Routes(alone, QueryReads({}, ["0"]), ["report"], "q")
    with pytest.raises(TrackingError, match="no edge"):
        Routes(alone, QueryReads("windows"), ["report"], "q", as_front=True)
