"""The ticks of a query: what each of its batches read, wrote and acked.

By units, which need no look into files; for segments that are tracked by rows, by what stands in the
files that were committed; for sources with partitioned offsets, by their ranges.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from local_tracker.spark.compose import (
    BatchUnits,
    ComposeError,
    CreatedUnit,
    Evaluations,
    compose,
    count_contributions,
    fingerprint,
    label_slots,
)
from local_tracker.spark.emits import BatchTimes, Emission
from local_tracker.spark.follow import Stopping, TrackingError
from local_tracker.spark.kafka_sink import Seen, TopicSink
from local_tracker.spark.logs import BatchOffsets, CheckpointLog
from local_tracker.spark.outputs import Output
from local_tracker.spark.plans import Routes, UnaccountedError
from local_tracker.spark.ranges import NotYetPublished, Range, range_cells, ranges
from local_tracker.spark.rows import row_cells
from local_tracker.spark.table_units import Taken
from tracker.client import Admin, NodeClient
from tracker.client.topics import BrokerAwayError, TopicError
from tracker.core.model import Cells, Refusal, RefusalCode, TickContent, Unit
from tracker.core.model.slots import HIGHEST_SLOT
from tracker.core.model.units import slot_in_name
from tracker.core.model.waits import WaitCause, WaitKind
from tracker.files import STORES, FilesError, Stores, child, parents

_AHEAD_NS = 10_000_000_000
_RESOLVE_WAIT_MS = 1_000
_NAMES_SHOWN = 3
_LOOK_AGAIN_S = 0.02
_LOOKS_PER_WARNING = 500
_LOOKS_PER_REPORT = 50
_MAX_PARTITION_FOLDERS = 8
_WRITERS_LOGS = ("_spark_metadata", "_lowmark")

_Names = dict[int, tuple[str, ...]]
"""Names of units by segment number."""

log = logging.getLogger("lowmark.spark")


@dataclass(frozen=True, slots=True)
class QueryRecord:
    """What the logs say of a batch, read when it is over. `consumed`: names by segment number; `held`:
    those that it has read in part, so that a later one consumes them. `unpublished`: the numbers of the
    segments in which it should have published, and has not. `seen`: the ends of the topic that the query
    writes, if the brokers answered. `times`: of a query that is a front of what it emits."""

    batch: int
    fingerprint: bytes
    consumed: Mapping[int, tuple[str, ...]]
    created: tuple[CreatedUnit, ...]
    published_by: str | None
    ranges: tuple[tuple[str, Range], ...] = ()
    times: BatchTimes | None = None
    unpublished: tuple[int, ...] = ()
    held: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    seen: Seen | None = None


class QueryTicks:
    """`BatchTicks` of a query by units, with the acks of its user code."""

    def __init__(
        self,
        node: NodeClient,
        admin: Admin,
        routes: Routes,
        checkpoint: CheckpointLog | None,
        outputs: Callable[[], Iterable[Output]] = tuple,
        *,
        evaluations: Evaluations | None = None,
        twins: Callable[[], Iterable[tuple[str, ...]]] = tuple,
        emits: Emission | None = None,
        publishes: tuple[int, ...] = (),
        scope: str | None = None,
        sink: TopicSink | None = None,
    ) -> None:
        """evaluations: None where no user code acknowledges anything. twins: which sources list the same
        directory. emits: the labels of the front that the query is of what it emits from its state; None
        if it is none. publishes: the segments, by number, in which each batch that had
        input must have published. scope: numbers the batches where there is no checkpoint, and so nothing
        to `read`. sink: the Kafka topic that the query writes."""
        self._node, self._admin = node, admin
        self._routes, self._spec, self._delays = routes, routes.spec, routes.delays()
        self._log, self._outputs = checkpoint, outputs
        self._evaluations, self._twins = evaluations, twins
        self._emits, self._publishes, self._scope = emits, publishes, scope
        self._sink = sink
        self._stores = STORES if checkpoint is None else checkpoint.stores

    @property
    def checkpoint(self) -> CheckpointLog:
        """The query's logs. A job has none."""
        assert self._log is not None, "there is no checkpoint to read"
        return self._log

    @property
    def routes(self) -> Routes:
        return self._routes

    @property
    def _query_id(self) -> str:
        return self._scope or self.checkpoint.query_id

    def read(self, batch: int) -> QueryRecord:
        seen = self._look()
        offsets = self.checkpoint.offsets(batch)
        taken = self._read_taken(offsets)
        outputs = list(self._outputs())
        created = tuple(unit for output in outputs for unit in output.created(batch))
        runs = (output.run(batch) for output in outputs)
        had_input = bool(taken.consumed or taken.held or taken.ranges)
        return replace(
            taken,
            fingerprint=fingerprint(offsets.text, taken.consumed, created),
            created=created,
            published_by=next((run for run in runs if run is not None), None),
            unpublished=self._unpublished(batch) if had_input else (),
            seen=seen,
        )

    def _read_taken(self, offsets: BatchOffsets) -> QueryRecord:
        """What a batch has consumed, be it over or not."""
        consumed, held, consumed_ranges = self._taken(offsets)
        return QueryRecord(
            offsets.batch, b"", consumed, (), None, consumed_ranges, self._times(offsets), held=held
        )

    def _times(self, offsets: BatchOffsets) -> BatchTimes | None:
        if self._emits is None:
            return None
        before = self.checkpoint.previous_offsets(offsets.batch)
        return BatchTimes(
            offsets.batch, offsets.timestamp_ms, offsets.watermark_ms,
            0 if before is None else before.watermark_ms,
        )  # fmt: skip

    def resume(self, last_durable: int) -> None:
        """The query goes on behind a batch whose tick is durable; -1: from its beginning. Raises LogError."""
        if self._emits is not None and last_durable in self.checkpoint.planned():
            self._emits.resume(self.checkpoint.offsets(last_durable).watermark_ms)

    def _look(self) -> Seen | None:
        """How far the topic has come that the query writes; None if it writes none, or if no broker answers:
        then they are asked again."""
        if self._sink is None:
            return None
        try:
            return self._sink.look()
        except BrokerAwayError as error:
            log.warning("query %s: %s", self._query_id, error)
            return None

    def check_sources(self, name: str) -> None:
        """Raises TrackingError, with the query's `name`, where a batch that is logged has read what nobody
        accounts for: asked before a query is followed, of the newest one."""
        planned, readable = self.checkpoint.planned(), self.checkpoint.readable()
        try:
            if planned:
                self._routes.check_offsets(self.checkpoint.offsets(planned[-1]))
            if readable:
                for source, names in self.checkpoint.consumed(readable[-1]).items():
                    if self._routes.is_tracked(source):
                        self._routes.by_segment(names)
        except UnaccountedError as error:
            raise TrackingError(f"query {name!r} ({self._query_id}): {error}") from None

    def check_published(self, batch: int) -> None:
        """Raises ComposeError where a batch had input and did not publish what it is declared to create:
        asked before Spark commits it."""
        if self._publishes and any(self._taken(self.checkpoint.offsets(batch))):
            self._check_unpublished(batch, self._unpublished(batch))

    def _unpublished(self, batch: int) -> tuple[int, ...]:
        """The segments in which a batch should have published, and has not."""
        if not self._publishes:
            return ()
        there = {s for output in self._outputs() if output.has(batch) for s in output.segments}
        return tuple(segment for segment in self._publishes if segment not in there)

    def _check_unpublished(self, batch: int, unpublished: Sequence[int]) -> None:
        if unpublished:
            names = [self._spec.segments[segment] for segment in unpublished]
            raise ComposeError(
                f"batch {batch} had input and published nothing for {names}, where the query is said to "
                f"create: call tracked.writer(...) (or note_commit) in every batch, with an empty "
                f"DataFrame too, or start the query with may_publish_nothing=True, if what its readers "
                f"wait for is complete without; of a query that is followed from outside, give the "
                f"directory of its file sink, whose log lacks the batch"
            )

    def _taken(self, offsets: BatchOffsets) -> tuple[_Names, _Names, tuple[tuple[str, Range], ...]]:
        """The units that a batch consumed, by segment number, those that it held, and the ranges. Raises
        ComposeError where it has read what nobody accounts for."""
        batch = offsets.batch
        self._routes.check_offsets(offsets)
        tables: dict[str, tuple[int, Taken]] = {}
        for number, text in offsets.sources.items():
            if text is None or not self._routes.is_tracked(number):
                continue
            if not self._routes.tables.reads(number, text):
                continue
            before, _ = self.checkpoint.offset_pair(batch, number)
            if (taken := self._routes.tables.taken(number, before, text)) is not None:
                tables[number] = taken
        files = self.checkpoint.consumed(batch)
        self._check_twins(batch, {n: Taken(names) for n, names in files.items()} | {
            number: taken for number, (_, taken) in tables.items()
        })  # fmt: skip
        tracked = (names for source, names in files.items() if self._routes.is_tracked(source))
        consumed = self._routes.by_segment(itertools.chain.from_iterable(tracked))
        held: _Names = {}
        for segment, units in tables.values():
            for found, names in ((consumed, units.consumed), (held, units.held)):
                if names:
                    found[segment] = tuple(dict.fromkeys((*found.get(segment, ()), *names)))
        return consumed, held, self._ranges(batch)

    def _ranges(self, batch: int) -> tuple[tuple[str, Range], ...]:
        """What the batch consumed of sources with partitioned offsets, by the sources' numbers."""
        found: list[tuple[str, Range]] = []
        for number, sources in self._routes.ranges.items():
            before, after = self.checkpoint.offset_pair(batch, number)
            is_first = self.checkpoint.is_first_of(batch, number)
            what = f"batch {batch}, source {number}"
            for source in sources:
                segment = self._spec.segments.index(source.segment)
                read = ranges(segment, source, before, after, what, is_first=is_first)
                found += [(number, one) for one in read]
        return tuple(found)

    def tick(self, record: QueryRecord, stopping: threading.Event) -> TickContent:
        self._check_unpublished(record.batch, record.unpublished)
        consumed, rows, slots = self._input(record, stopping)
        if self._emits is not None and record.times is not None:
            label = self._emits.label(record.times, slots.values())
            slots = {segment: label for unit in record.created for segment in unit.segments}
        elif record.created and not slots:
            slots = self._min_times()
        return self._compose(
            record, consumed, slots, rows, self._created_in_topic(record, slots, stopping)
        )

    def _created_in_topic(
        self, record: QueryRecord, slots: Mapping[int, int], stopping: threading.Event
    ) -> Cells:
        """What the batch has created in topics, by their manifests, which are durable then. Raises
        BrokerAwayError, AwayError, ComposeError."""
        written = [
            manifest.cells(sink.segments)
            for sink in self._topics()
            if (manifest := sink.covered(record.batch)) is not None
        ]
        if self._sink is not None:
            written.append(self._covered_now(record, slots, stopping, self._sink))
        return Cells.concatenate(written) if written else Cells.empty()

    def _covered_now(
        self,
        record: QueryRecord,
        slots: Mapping[int, int],
        stopping: threading.Event,
        sink: TopicSink,
    ) -> Cells:
        """What Kafka's own sink has written for a batch that is over."""
        manifest = sink.covered(record.batch)
        try:
            if manifest is None:
                seen = record.seen or sink.look()
                oldest = self._oldest_slots(record, seen, slots, stopping)
                labels = oldest or self._slots_of_the_moment()
                named = {name: labels[s] for name, s in sink.segments.items() if s in labels}
                self._check_labelled(record.batch, sink, named)
                manifest = sink.cover(record.batch, seen, named, by_moment=not oldest)
        except TopicError as error:
            raise ComposeError(f"batch {record.batch}: {error}") from None
        return manifest.cells(sink.segments)

    def _oldest_slots(
        self,
        record: QueryRecord,
        seen: Seen,
        slots: Mapping[int, int],
        stopping: threading.Event,
    ) -> dict[int, int]:
        """The least slots of a batch and of those that may have written beside it; by segment."""
        oldest = dict(slots)
        for batch in self.checkpoint.planned():
            if record.batch < batch <= seen.newest:
                later = self._input(self._read_taken(self.checkpoint.offsets(batch)), stopping)[2]
                oldest |= {s: min(slot, oldest.get(s, slot)) for s, slot in later.items()}
        return oldest

    def _slots_of_the_moment(self) -> dict[int, int]:
        """Slots for what came from no input. A manifest is not written anew, so they lie somewhat ahead of
        min time, which goes on meanwhile."""
        ahead = min(_AHEAD_NS // self._spec.slack_ns + 1, self._spec.horizon_slots // 2)
        now = self._min_times()
        return {segment: min(slot + ahead, HIGHEST_SLOT) for segment, slot in now.items()}

    def _check_labelled(self, batch: int, sink: TopicSink, named: Mapping[str, int]) -> None:
        if lacking := sorted(set(sink.segments) - set(named)):
            raise ComposeError(
                f"batch {batch} of query {self._query_id} wrote to topic {sink.topic.name!r} for segment "
                f"{lacking[0]!r}, but no edge leads there from the segments that it read; register one"
            )

    def slots_to_write(self, batch: int, stopping: threading.Event) -> tuple[dict[int, int], bool]:
        """The slots under which a batch that is going on may write, by segment, and whether they are by the
        moment, since it had no input. Waits, and raises, as `tick` does."""
        slots = self._input(self._read_taken(self.checkpoint.offsets(batch)), stopping)[2]
        return (slots, False) if slots else (self._slots_of_the_moment(), True)

    def least_slots(self, record: QueryRecord, stopping: threading.Event) -> dict[int, int]:
        """The least slot that a batch may create in, by segment, from what it consumed; waits, and
        raises, as `tick` does."""
        return self._input(record, stopping)[2]

    def check_rows(self, record: QueryRecord, slots: Mapping[int, int]) -> None:
        """Raises ComposeError or RowsError where the rows of created files cannot be tracked: for
        those who can still take them back. slots: as `least_slots` gives them."""
        self._created_rows(record, slots)

    def _input(
        self, record: QueryRecord, stopping: threading.Event
    ) -> tuple[tuple[Unit, ...], Cells, dict[int, int]]:
        """The units that a batch consumed, the cells of rows and ranges, and the least slots."""
        consumed = self._with_slots(record.batch, record.consumed, stopping)
        held = self._with_slots(record.batch, record.held, stopping)
        rows = Cells.concatenate(
            [self._consumed_rows(record), self._consumed_ranges(record, stopping)]
        )
        oldest = [Unit(segment, "", slot) for segment, slot, _, _ in rows.rows()]
        return consumed, rows, label_slots([*consumed, *held, *oldest], self._delays)

    def _consumed_rows(self, record: QueryRecord) -> Cells:
        return Cells.concatenate(
            row_cells(segment, names, self._routes.rows[segment], self._stores)
            for segment, names in record.consumed.items()
            if segment in self._routes.rows
        )

    def _consumed_ranges(self, record: QueryRecord, stopping: threading.Event) -> Cells:
        """Waits until whoever publishes the ranges has published their slots."""
        looks = 0
        while True:
            try:
                return Cells.concatenate(
                    range_cells(
                        source,
                        [r for at, r in record.ranges if at == number and source.has(r.partition)],
                    )
                    for number, sources in self._routes.ranges.items()
                    for source in sources
                )
            except NotYetPublished as error:
                looks += 1
                if looks % _LOOKS_PER_WARNING == 0:
                    log.warning(
                        "batch %d of query %s waits for %s: does their front run?",
                        record.batch, self._query_id, error,
                    )  # fmt: skip
                if looks % _LOOKS_PER_REPORT == 0:
                    by_number = self._routes.ranges.values()
                    reported_by = {source.segment for sources in by_number for source in sources}
                    segment = (
                        self._spec.segments.index(min(reported_by)) if len(reported_by) == 1 else -1
                    )
                    self._waits(WaitKind.NOT_TOLD, str(error), segment, record.batch)
            if stopping.wait(_LOOK_AGAIN_S):
                raise Stopping

    def _created_rows(self, record: QueryRecord, slots: Mapping[int, int]) -> Cells:
        parts = []
        for segment, column in self._routes.rows.items():
            names = dict.fromkeys(u.name for u in record.created if segment in u.segments)
            cells = row_cells(segment, names, column, self._stores)
            least = slots.get(segment)
            if least is not None and len(cells) and int(cells.slots.min()) < least:
                raise ComposeError(
                    f"batch {record.batch}: a row in column {column!r} for segment "
                    f"{self._spec.segments[segment]!r} has slot {int(cells.slots.min())}, but the "
                    f"oldest that the batch consumed allows {least} and later; keep the slots of the "
                    f"rows that a row comes from, and the delay of the edge"
                )
            parts.append(cells)
        return Cells.concatenate(parts)

    def relabelled(self, record: QueryRecord, refusal: Refusal) -> TickContent | None:
        """A batch that read nothing creates at the min time of the moment, which may move on."""
        if self._by_moment(record.batch):
            return self._without_created(record, refusal)
        if refusal.code != RefusalCode.BELOW_MIN_TIME or not record.created:
            return None
        if record.consumed or record.held or record.ranges or self._emits is not None:
            return None
        return self._compose(record, (), self._min_times(), Cells.empty())

    def _by_moment(self, batch: int) -> bool:
        """Whether what a batch has written to topics came from no input."""
        sinks = [*self._topics(), *([] if self._sink is None else [self._sink])]
        found = (sink.covered(batch) for sink in sinks)
        return any(manifest is not None and manifest.by_moment for manifest in found)

    def _topics(self) -> list[TopicSink]:
        """Those that the query writes in `foreachBatch`."""
        return [output.topic for output in self._outputs() if output.topic is not None]

    def _without_created(self, record: QueryRecord, refusal: Refusal) -> TickContent | None:
        """Where min time has passed the slots that a manifest got by the moment: what it covers is late, and
        is counted so when it is consumed."""
        if refusal.code != RefusalCode.BELOW_MIN_TIME:
            return None
        log.warning(
            "batch %d of query %s: what it wrote to topics came from no input, and is late: %s",
            record.batch, self._query_id, refusal.message,
        )  # fmt: skip
        return self._compose(replace(record, created=()), (), {}, Cells.empty())

    def durable(self, batch: int) -> None:
        if self._sink is not None:
            self._sink.durable(batch, self._min_times)
        if self._emits is not None:
            self._emits.durable(batch)
        for output in self._outputs():
            output.durable(batch)
            if output.topic is not None:
                output.topic.durable(batch, self._min_times)

    def check_acks(self, batch: int, run: str) -> None:
        """Raises ComposeError if the acks of a batch's evaluations in a run contradict each other, or
        cover none of them whole: asked before the batch is published, since nothing can be told of it
        afterwards."""
        self._acked(batch, run, lambda: bool(self.checkpoint.consumed(batch)))

    def _acked(
        self, batch: int, run: str | None, had_input: Callable[[], bool]
    ) -> tuple[Cells, Cells]:
        """What user code created and consumed in a batch, of which a run was published, if that is
        known. Raises ComposeError."""
        if self._evaluations is None:
            return Cells.empty(), Cells.empty()
        known = self._evaluations
        staged = self._node.list_contributions(self._query_id, batch)
        expected = known.operators if had_input() else ()
        evaluations = Evaluations(known.runs, run, known.stage_tasks, expected)
        return count_contributions(self._query_id, batch, staged, evaluations)

    def _check_twins(self, batch: int, by_source: Mapping[str, Taken]) -> None:
        """A unit that two sources of the query read (a self-join) is consumed once. Raises ComposeError if
        they don't read it in one batch."""
        by_source = {s: taken for s, taken in by_source.items() if self._routes.is_tracked(s)}
        # From outside it cannot be seen which sources list one directory, but what they took can.
        units = {source: {*taken.consumed, *taken.held} for source, taken in by_source.items()}
        overlapping = [
            pair
            for pair in itertools.combinations(sorted(units), 2)
            if not units[pair[0]].isdisjoint(units[pair[1]])
        ]
        for sources in (*self._twins(), *self._routes.tables.twins(), *overlapping):
            tracked = [source for source in sources if self._routes.is_tracked(source)]
            took = [by_source.get(source, Taken()) for source in tracked]
            read = [(set(taken.consumed), set(taken.held)) for taken in took]
            if any(names != read[0] for names in read):
                raise ComposeError(
                    f"batch {batch}: sources {sources} read the same directory and took different "
                    f"files of it, so that what is done cannot be told; read the directory once, or "
                    f"with one maxFilesPerTrigger and latestFirst for both"
                )

    def _with_slots(
        self, batch: int, by_segment: Mapping[int, tuple[str, ...]], stopping: threading.Event
    ) -> tuple[Unit, ...]:
        units: list[Unit] = []
        for segment, names in by_segment.items():
            if segment in self._routes.rows:
                continue
            slots = {name: slot for name in names if (slot := slot_in_name(name)) is not None}
            unknown = [name for name in names if name not in slots]
            slots |= self._resolve(batch, segment, unknown, stopping)
            units += [Unit(segment, name, slots[name]) for name in names]
        return tuple(units)

    def _resolve(
        self, batch: int, segment: int, names: Sequence[str], stopping: threading.Event
    ) -> dict[str, int]:
        """The slots of units that another query created; waits until its ticks have arrived."""
        found: dict[str, int] = {}
        waits = 0
        while missing := [name for name in names if name not in found]:
            if stopping.is_set():
                raise Stopping
            found |= self._node.resolve_units(
                self._spec.segments[segment], missing, _RESOLVE_WAIT_MS
            )
            waits += 1
            if len(found) < len(names):
                self._wait_for_units(batch, segment, [n for n in names if n not in found])
            if waits % 10 == 0 and len(found) < len(names):
                log.warning(
                    "batch %d of query %s waits for %d units that no tick has created in segment "
                    "%r, such as %s: has the query that wrote them been tracked?",
                    batch, self._query_id, len(names) - len(found),
                    self._spec.segments[segment], missing[:_NAMES_SHOWN],
                )  # fmt: skip
        return found

    def _wait_for_units(self, batch: int, segment: int, missing: Sequence[str]) -> None:
        """Reports that the query waits for the slots of files. Where one lies beside a log of what a writer
        has published, the writer is behind; else nobody may ever create it."""
        stray = [name for name in missing if not _has_writer(name, self._stores)]
        named = (stray or missing)[:_NAMES_SHOWN]
        shown = ", ".join(self._routes.tables.shown(name) or name for name in named)
        if stray:
            text = f"{len(stray)} files that no tick has created, such as {shown}"
            self._waits(WaitKind.UNKNOWN_ITEMS, text, segment, batch)
        else:
            text = f"the writer of {len(missing)} files whose tick has not been committed, such as {shown}"
            self._waits(WaitKind.WRITER_BEHIND, text, segment, batch)

    def _waits(self, kind: WaitKind, text: str, segment: int, batch: int) -> None:
        self._node.report_waits([WaitCause(kind, text, segment, batch)])

    def _min_times(self) -> dict[int, int]:
        state = self._admin.pipeline(self._spec.name).state
        return {number: segment.min_time for number, segment in enumerate(state.segments)}

    def _compose(
        self,
        record: QueryRecord,
        consumed: tuple[Unit, ...],
        slots: Mapping[int, int],
        consumed_rows: Cells,
        created_ranges: Cells | None = None,
    ) -> TickContent:
        by_rows = self._routes.rows
        created = tuple(
            CreatedUnit(unit.name, tuple(s for s in unit.segments if s not in by_rows))
            for unit in record.created
        )
        units = BatchUnits(
            self._query_id, record.batch, record.fingerprint, consumed, created, slots
        )
        acked = self._acked(record.batch, record.published_by, lambda: bool(record.consumed))
        more = (
            Cells.concatenate(
                [acked[0], self._created_rows(record, slots), created_ranges or Cells.empty()]
            ),
            Cells.concatenate([acked[1], consumed_rows]),
        )
        return compose(units, more)


def _has_writer(unit: str, stores: Stores) -> bool:
    """Whether a file lies in a directory, or below one, whose writer keeps a log of what it publishes."""
    try:
        where = stores.location(unit)
        files = stores.files(where)
        folders = parents(where)[:_MAX_PARTITION_FOLDERS]
        return any(
            files.is_directory(child(folder, log)) for folder in folders for log in _WRITERS_LOGS
        )
    except FilesError:
        return False
