"""What a query labels and promises that is a front of what it emits from its state (rule 8).

By the clock (`ByClock`), or by the event times of its results (`ByWatermark`). A batch in append mode
emits the windows that end after the watermark of the batch before, up to its own. Late rows are dropped by
that same watermark, so that nothing later ends there any more: a result is labelled by its last instant, and
once the tick of a batch is durable, its watermark is what may be promised. Both are in `offsets/N` before the
batch begins, so a driver that comes back finds them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from local_tracker.spark.query.labels import FrontLabels
from local_tracker.spark.state.rules import check_ms
from tracker.client import NodeClient
from tracker.client.node import segment_number
from tracker.client.updates import slot_time
from tracker.core.model import PipelineSpec, TimeKind
from tracker.core.model.slots import LOWEST_SLOT, slot_of
from tracker.errors import TrackingError

_NS_PER_MS = 1_000_000
_BY_WATERMARK = frozenset(("Aggregate", "Deduplicate", "DeduplicateWithinWatermark"))

log = logging.getLogger("lowmark.spark")


@dataclass(frozen=True, slots=True)
class EventTime:
    """The `emits` of a query in a pipeline of event time: a front that labels by the times of its results.

    front: its name. segment: where it promises, if the query creates nothing, since nobody whose reading is
    tracked reads what it writes. span_ms: results may be emitted whose times are up to so many
    milliseconds behind the watermark that the batch before them had, from 0 to `LONGEST_MS`; for plans
    that do not tell. None: as the plan tells. Raises ValueError.
    """

    front: str
    segment: str | None = None
    span_ms: int | None = None

    def __post_init__(self) -> None:
        if self.span_ms is not None:
            check_ms(f"span_ms of front {self.front!r}", self.span_ms)


@dataclass(frozen=True, slots=True)
class BatchTimes:
    """What a batch's entry in the offset log says of time, in milliseconds since 1970: its timestamp, and
    the watermarks that it and the batch before it evict by."""

    batch: int
    timestamp_ms: int
    watermark_ms: int
    watermark_before_ms: int


class Emission(Protocol):
    """The labels and promises of what a query emits, as the front of that name."""

    front: str

    def label(self, times: BatchTimes, allowed: Iterable[int]) -> int:
        """The slot of what a batch emits: the same when asked again. Promises wait for it until the batch
        is `durable`. allowed: the slots that what it consumed allows."""

    def durable(self, batch: int) -> None:
        """The tick of a batch is durable."""

    def resume(self, watermark_ms: int) -> None:
        """The last batch whose tick is durable, of an earlier run of the query, had this watermark."""

    def promise(self) -> int:
        """The largest slot below which nothing will be labelled any more."""


class ByClock:
    """Batches are labelled by their timestamps, and the clock is promised."""

    def __init__(
        self, front: str, labels: FrontLabels, slack_ns: int, clock: Callable[[], int]
    ) -> None:
        """clock: nanoseconds since 1970."""
        self.front = front
        self._labels, self._slack_ns, self._clock = labels, slack_ns, clock

    def label(self, times: BatchTimes, allowed: Iterable[int]) -> int:
        timestamp = slot_of(times.timestamp_ms * _NS_PER_MS, self._slack_ns)
        return self._labels.label(times.batch, timestamp, allowed)

    def durable(self, batch: int) -> None:
        self._labels.close(batch)

    def resume(self, watermark_ms: int) -> None:
        """The clock has gone on."""

    def promise(self) -> int:
        return self._labels.promise(slot_of(self._clock(), self._slack_ns))


class ByWatermark:
    """Batches are labelled with what was promised before them, which no result in them lies below, and their
    watermarks are promised."""

    def __init__(self, front: str, labels: FrontLabels, spec: PipelineSpec, span_ms: int) -> None:
        self.front = front
        self._labels, self._spec, self._span_ms = labels, spec, span_ms
        self._reached: dict[int, int] = {}
        """What may be promised behind each batch whose tick is not durable yet."""
        self._durable = LOWEST_SLOT
        self._has_warned = False

    def _slot(self, watermark_ms: int) -> int:
        return slot_of((watermark_ms - self._span_ms) * _NS_PER_MS, self._spec.slack_ns)

    def label(self, times: BatchTimes, allowed: Iterable[int]) -> int:
        lowest = self._slot(times.watermark_before_ms)
        self._reached[times.batch] = self._slot(times.watermark_ms)
        granted = self._labels.lowest_slot
        if lowest < granted and granted > self._spec.start_slot and not self._has_warned:
            self._has_warned = True
            log.warning(
                "batch %d: min time had passed %s before front %r of the query joined, so what is emitted of "
                "times before that is labelled with slot %d, the first that it may use",
                times.batch, slot_time(granted, self._spec.slack_ns), self.front, granted,
            )  # fmt: skip
        return self._labels.label(times.batch, lowest)

    def durable(self, batch: int) -> None:
        self._labels.close(batch)
        self._durable = max(self._durable, self._reached.pop(batch, LOWEST_SLOT))

    def resume(self, watermark_ms: int) -> None:
        self._durable = max(self._durable, self._slot(watermark_ms))

    def promise(self) -> int:
        return self._labels.promise(self._durable)


@dataclass(frozen=True, slots=True)
class EmittingFront:
    """A front that a query is: its name, and the segment that it feeds. span_ms: by event time, how far behind
    the watermark of the batch before them results may lie; None: by the clock."""

    name: str
    segment: str
    span_ms: int | None = None

    def join(self, node: NodeClient, spec: PipelineSpec) -> Emission:
        """What the query labels and promises by, once the front has joined. Raises LowmarkError."""
        labels = FrontLabels.joined(node, self.name, self.segment)
        if self.span_ms is None:
            return ByClock(self.name, labels, spec.slack_ns, time.time_ns)
        return ByWatermark(self.name, labels, spec, self.span_ms)


def emitting_front(
    emits: str | EventTime,
    creates: Sequence[str],
    spec: PipelineSpec,
    by_rows: Collection[str],
    mode: str,
    operators: Sequence[str] | None,
) -> EmittingFront:
    """The front that a query is of what it emits. by_rows: the segments whose items are rows; mode,
    operators: as `_span_ms` takes them. Raises TrackingError where it cannot be one."""
    name, named = (emits.front, emits.segment) if isinstance(emits, EventTime) else (emits, None)
    if rows := [segment for segment in creates if segment in by_rows]:
        raise TrackingError(
            f"the query is to create by rows in {rows[0]!r}, in slots of their own, and emits "
            f"there as front {name!r}, in slots of its batches: leave out one of the two"
        )
    segments = [*creates, *([] if named is None or named in creates else [named])]
    if len(segments) != 1:
        raise TrackingError(
            f"emits={emits!r} makes the query a front of the one segment that it creates in, or that "
            f"EventTime(..., segment=...) names; it creates in {list(creates)}"
        )
    segment_number(spec, segments[0])
    _check_time(emits, spec)
    if not isinstance(emits, EventTime):
        return EmittingFront(name, segments[0])
    return EmittingFront(name, segments[0], _span_ms(emits, mode, operators))


def _check_time(emits: str | EventTime, spec: PipelineSpec) -> None:
    """Raises TrackingError where the front's labels are not what the pipeline's slots count."""
    by_event_time = isinstance(emits, EventTime)
    if by_event_time and spec.time is not TimeKind.EVENT:
        raise TrackingError(
            f"{emits!r} labels by the event times of results, and pipeline {spec.name!r} counts "
            f"{spec.time.value} time: register it with time: event, or give the front's name alone, which "
            f"labels by the clock"
        )
    if not by_event_time and spec.time is not TimeKind.ARRIVAL:
        raise TrackingError(
            f"emits={emits!r} labels by the clock, and pipeline {spec.name!r} counts {spec.time.value} time: "
            f"with time: event, give emits=EventTime({emits!r})"
        )


def _span_ms(emits: EventTime, mode: str, operators: Sequence[str] | None) -> int:
    """How far behind the watermark of the batch before them results may lie. mode: the query's output mode;
    operators: those of its plan, as `jvm.timed_operators` names them; None where the plan is not at hand. Raises TrackingError where that is not known."""
    about = f"the query emits by event time as front {emits.front!r}"
    if mode != "Append":
        raise TrackingError(
            f"{about}, and its output mode is {mode}: what a window has come to is final in append mode; use "
            f"outputMode('append')"
        )
    if operators is not None and "EventTimeWatermark" not in operators:
        raise TrackingError(
            f"{about}, and sets no watermark, so there is nothing that it could promise: use withWatermark(...)"
        )
    if emits.span_ms is not None:
        return emits.span_ms
    advice = (
        "say how far behind the watermark the times of its results may lie, "
        "EventTime(..., span_ms=...), or emit by the clock in a pipeline of arrival time"
    )
    if operators is None:
        raise TrackingError(
            f"{about}, and what its plan emits is not known in a Spark Connect session: {advice}"
        )
    stateful = [name for name in operators if name != "EventTimeWatermark"]
    if others := [name for name in stateful if name not in _BY_WATERMARK]:
        raise TrackingError(
            f"{about}, and its operator {others[0]} emits by other rules than windows and groups do: {advice}"
        )
    if "Aggregate" not in stateful:
        raise TrackingError(
            f"{about}, and none of its operators emits when the watermark passes, as windows and groups do: "
            f"{advice}"
        )
    return 0
