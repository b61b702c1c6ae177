"""Min time as gauges of OpenTelemetry, for whatever exports a program's metrics.

    observed = observe(metrics.get_meter("reports"), "127.0.0.1:7070", ["orders"])
    ...
    observed.close()

Each collection asks the tracker once, as any client may. While the tracker is away the gauges of pipelines have no
points, and `lowmark.tracker.up` is 0: nothing is reported that was true before. Needs `pip install 'lowmark[otel]'`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from opentelemetry.metrics import CallbackOptions, Meter, Observation

from tracker.client import Admin, LowmarkError, PipelineInfo
from tracker.client.closing import Closing
from tracker.core.model.slots import FOREVER
from tracker.view.model import lag_slots
from tracker.view.overview import Overview, Row
from tracker.view.pipelines import clock_time, span_ms
from tracker.view.progress import Progress

MAX_SEGMENTS = 1_000
"""Segments, pipelines as a whole counted too, that one `observe` ever reports, since the SDK remembers each set of
attributes for good. `lowmark.segments.omitted` counts those that are not reported."""
ANSWER_TIMEOUT_S = 10.0
"""How long one question to the tracker may take."""
EXPLAIN_S = 5.0
"""For so long, in each collection, it is asked why pipelines are where they are."""

PIPELINE, SEGMENT, CAUSE = "lowmark.pipeline.name", "lowmark.segment.name", "lowmark.cause"
"""The attributes. Without a segment: of the pipeline as a whole. The cause is a value of `CauseKind`."""
UP, OMITTED = "lowmark.tracker.up", "lowmark.segments.omitted"
HELD = "lowmark.held"
GAUGES = {
    "lowmark.min_time": (
        "s", "Min time as unix time; absent when it is complete, and where slots are numbers."
    ),
    "lowmark.min_time.slot": ("{slot}", "Min time as a slot; absent when it is complete."),
    "lowmark.lag": (
        "s",
        "How far min time is behind the newest promise of a front; absent when it is complete, while no front has "
        "promised anything, and where slots are numbers.",
    ),
    "lowmark.open_items": ("{item}", "Items that have been created and not consumed."),
    "lowmark.open_slots": ("{slot}", "Slots that have such items."),
    "lowmark.complete": ("1", "1 when everything is processed and nothing more can come, else 0."),
    "lowmark.stuck": ("1", "1 while min time stands until somebody acts, else 0."),
    HELD: ("1", "1, with lowmark.cause, while something is known to hold min time; else absent."),
    UP: ("1", "1 if the tracker has answered, else 0."),
    OMITTED: ("{segment}", "Segments that are not reported because there are more than the limit."),
}  # fmt: skip
"""By name: unit and description."""

log = logging.getLogger("lowmark.otel")

Points = dict[str, list[Observation]]
"""By gauge."""


def observe(meter: Meter, target: str | Sequence[str], pipelines: Sequence[str] = ()) -> Observed:
    """Makes the gauges of some pipelines, or of all, in a meter; they have points until what is returned is closed.
    target: host:port of the tracker. Raises RefusedError for an unknown pipeline, UnavailableError when no process of
    the tracker answers."""
    observed = Observed(target, pipelines)
    for name, (unit, description) in GAUGES.items():
        meter.create_observable_gauge(name, [partial(observed.points, name)], unit, description)
    return observed


class Observed(Closing):
    """What gauges tell of a tracker. Thread-safe."""

    def __init__(self, target: str | Sequence[str], pipelines: Sequence[str]) -> None:
        self._admin = Admin(target, ANSWER_TIMEOUT_S)
        self._overview = Overview(self._admin, names=pipelines)
        self._lock = threading.Lock()
        self._admitted: set[tuple[str, str | None]] = set()
        self._points: Points = {}
        self._read: set[str] = set()
        """The gauges that have had these points: the first that asks again begins the next collection."""
        self._away = self._closed = False
        try:
            self._overview.look(EXPLAIN_S)
        except BaseException:
            self._admin.close()
            raise

    def points(self, gauge: str, options: CallbackOptions) -> list[Observation]:
        """Of a gauge, for the collection that goes on."""
        with self._lock:
            if self._closed:
                return []
            if not self._read or gauge in self._read:
                self._read.clear()
                self._points = self._look()
            self._read.add(gauge)
            return self._points.get(gauge, [])

    def _look(self) -> Points:
        try:
            rows = self._overview.look(EXPLAIN_S)
        except LowmarkError as error:
            if not self._away:
                log.warning("nothing is reported until the tracker answers: %s", error)
            self._away = True
            return {UP: [Observation(0)]}
        if self._away:
            log.warning("the tracker answers again")
        self._away = False
        return self._measured(rows)

    def _measured(self, rows: Iterable[Row]) -> Points:
        points: Points = {UP: [Observation(1)]}
        omitted = self._overview.more
        for row in rows:
            for progress in (row.progress, *row.segments):
                if not self._is_admitted(row.name, progress.segment):
                    omitted += 1
                    continue
                attributes = {PIPELINE: row.name} | (
                    {} if progress.segment is None else {SEGMENT: progress.segment}
                )
                for gauge, value in values(progress, row.info):
                    points.setdefault(gauge, []).append(Observation(value, attributes))
                if progress.cause:
                    held = Observation(1, attributes | {CAUSE: progress.cause})
                    points.setdefault(HELD, []).append(held)
        return points | {OMITTED: [Observation(omitted)]}

    def _is_admitted(self, pipeline: str, segment: str | None) -> bool:
        key = (pipeline, segment)
        if key not in self._admitted and len(self._admitted) < MAX_SEGMENTS:
            self._admitted.add(key)
        return key in self._admitted

    def close(self) -> None:
        """The gauges have no points any more. May be repeated."""
        with self._lock:
            self._closed = True
            self._admin.close()


def values(progress: Progress, info: PipelineInfo) -> Iterator[tuple[str, float]]:
    """What gauges tell of a segment, or of a pipeline as a whole; nothing where there is nothing to tell."""
    slot = progress.min_time
    moment = clock_time(slot, info.spec)
    lag_ms = span_ms(lag_slots(slot, info), info.spec)
    if moment is not None:
        yield "lowmark.min_time", moment.timestamp()
    if slot != FOREVER:
        yield "lowmark.min_time.slot", slot
    if lag_ms is not None:
        yield "lowmark.lag", lag_ms / 1e3
    yield "lowmark.open_items", progress.open_items
    yield "lowmark.open_slots", progress.open_slots
    yield "lowmark.complete", int(slot == FOREVER)
    yield "lowmark.stuck", int(progress.state == "stuck")
