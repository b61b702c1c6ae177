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
from functools import partial

from local_tracker.spark.formats.interface import Taken
from local_tracker.spark.formats.outputs import BatchLabels, Output, Records
from local_tracker.spark.formats.ranges import Range, partitions, range_cells, ranges
from local_tracker.spark.query.compose import (
    BatchUnits,
    ComposeError,
    CreatedUnit,
    Evaluations,
    compose,
    count_contributions,
    fingerprint,
    label_slots,
)
from local_tracker.spark.query.emits import BatchTimes, Emission
from local_tracker.spark.query.evaluated import count_published
from local_tracker.spark.query.follow import AtRest, Stopping, passes
from local_tracker.spark.query.logs import BatchOffsets, CheckpointLog
from local_tracker.spark.query.plans import Routes, UnaccountedError
from local_tracker.spark.query.rows import row_cells
from local_tracker.spark.query.unit_slots import UnitSlots
from local_tracker.spark.state.entries import Told
from local_tracker.spark.state.holds import StateHolds
from tracker.client import Admin, NodeClient
from tracker.client.state_names import batch_name, batch_of
from tracker.core.model import (
    Cells,
    HoldMove,
    PipelineSpec,
    Refusal,
    RefusalCode,
    TickContent,
    TimeKind,
    Unit,
)
from tracker.core.model.slots import FOREVER
from tracker.core.model.waits import WaitCause, WaitKind
from tracker.errors import RefusedError, TrackingError, UnavailableError
from tracker.files import STORES

_GRANT_TIMEOUT_S = 5.0
"""How long all shards have to grant a slot to create in; then it is asked again."""
_ASK_AGAIN_S = 1.0
_LOOK_AGAIN_S = 0.02
_LOOKS_PER_WARNING = 500
_LOOKS_PER_REPORT = 50

_Names = dict[int, tuple[str, ...]]
"""Names of units by segment number."""

log = logging.getLogger("lowmark.spark")


@dataclass(frozen=True, slots=True)
class QueryRecord:
    """What the logs say of a batch, read when it is over. `consumed`: names by segment number; `held`:
    those that it has read in part, so that a later one consumes them. `unpublished`: the numbers of the
    segments in which it should have published, and has not. `published_by`: the runs that have published it,
    where that is recorded; `seen`: how far records that the batch creates have come, where they are numbered.
    `times`: of a query that is a front of what it emits. `told`: what is known of the query's state, if that is
    held; `creates`: the segments in which it is held then. `took`: units by source."""

    batch: int
    fingerprint: bytes
    consumed: Mapping[int, tuple[str, ...]]
    created: tuple[CreatedUnit, ...]
    published_by: tuple[str, ...]
    ranges: tuple[tuple[str, Range], ...] = ()
    times: BatchTimes | None = None
    unpublished: tuple[int, ...] = ()
    held: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    seen: Mapping[Records, object] = field(default_factory=dict)
    told: Told | None = None
    creates: tuple[int, ...] = ()
    took: Mapping[str, Taken] = field(default_factory=dict)

    @property
    def had_input(self) -> bool:
        return bool(self.consumed or self.held or self.ranges)


@dataclass(frozen=True, slots=True)
class _Input:
    """What a batch has consumed: units, and the cells of rows and ranges. labels: all that its least slots are
    told by, with what it has read in part."""

    units: tuple[Unit, ...]
    cells: Cells
    labels: tuple[Unit, ...]


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
        emits: Emission | None = None,
        publishes: tuple[int, ...] = (),
        scope: str | None = None,
        state: StateHolds | None = None,
        may_create: Iterable[int] = (),
    ) -> None:
        """evaluations: None where no user code acknowledges anything. emits: the labels of the front that the query
        is of what it emits from its state; None if it is none. publishes: the segments, by number, in which each batch that had
        input must have published. scope: numbers the batches where there is no checkpoint, and so nothing
        to `read`. state: what its state holds, if it does; may_create: in
        which segments, by number, beside those that the routes say."""
        self._node, self._admin = node, admin
        self._routes = routes
        self._log, self._outputs = checkpoint, outputs
        self._evaluations = evaluations
        self._listed: dict[str, set[str]] = {}
        """Where there is no plan, in which folders and tables each source has read so far."""
        self._emits, self._publishes, self._scope = emits, publishes, scope
        self._state, self._may_create = state, tuple(may_create)
        self._last: tuple[int, _Input, Cells] | None = None
        """Of the newest tick: its batch and input, and what it has created of numbered records."""
        self._stores = STORES if checkpoint is None else checkpoint.stores
        self._units = UnitSlots(
            node, routes, self._stores, self._are_complete, may_leave_out=checkpoint is not None
        )

    @property
    def checkpoint(self) -> CheckpointLog:
        """The query's logs. A job has none."""
        assert self._log is not None, "there is no checkpoint to read"
        return self._log

    @property
    def routes(self) -> Routes:
        return self._routes

    @property
    def _spec(self) -> PipelineSpec:
        """The pipeline, as far as the query has heard of it."""
        return self._routes.spec

    def hear(self) -> None:
        spec = self._node.spec
        if spec is not self._spec:
            # What a writer of the session is for, which may be another query's, is judged with the tick.
            self._routes.change(spec, () if self._state is None else self._may_create)

    @property
    def holds_state(self) -> bool:
        """Whether what is in the query's state holds min time."""
        return self._state is not None

    def let_go(self) -> tuple[HoldMove, ...]:
        """What lets go of all that the query holds, where no tick is on its way."""
        state = () if self._state is None else self._state.emptied()
        return (*state, *let_go_of_batches(self._node, lambda _: True))

    @property
    def _query_id(self) -> str:
        return self._scope or self.checkpoint.query_id

    def read(self, batch: int) -> QueryRecord:
        outputs = list(self._outputs())
        seen = {output.records: output.records.look() for output in outputs if output.records}
        taken = self._read_taken(offsets := self.checkpoint.offsets(batch))
        created = tuple(unit for output in outputs for unit in output.created(batch))
        runs = [run for output in outputs if (run := output.run(batch)) is not None]
        return replace(
            taken,
            fingerprint=fingerprint(offsets.text, taken.consumed, created),
            created=created,
            published_by=tuple(dict.fromkeys(runs)),
            unpublished=self._unpublished(batch) if taken.had_input else (),
            seen=seen,
            told=None if self._state is None else self._state.told(batch),
            creates=() if self._state is None else self._creates(batch, outputs),
        )

    def _creates(self, batch: int, outputs: Iterable[Output]) -> tuple[int, ...]:
        """The segments that the query creates in, also those that a writer of its own names."""
        more = {segment for output in outputs for segment in output.segments if output.has(batch)}
        return tuple(sorted({*self._routes.creates, *self._may_create, *more}))

    def _read_taken(self, offsets: BatchOffsets) -> QueryRecord:
        """What a batch has consumed, be it over or not."""
        took, consumed, held = self._taken(offsets)
        return QueryRecord(
            offsets.batch, b"", consumed, (), (), self._ranges(offsets.batch), self._times(offsets),
            held=held, took=took,
        )  # fmt: skip

    def _times(self, offsets: BatchOffsets) -> BatchTimes | None:
        if self._emits is None:
            return None
        before = self.checkpoint.previous_offsets(offsets.batch)
        return BatchTimes(
            offsets.batch, offsets.timestamp_ms, offsets.watermark_ms,
            0 if before is None else before.watermark_ms,
        )  # fmt: skip

    def resume(self, last_durable: int) -> None:
        """The query goes on behind a batch whose tick is durable; -1: from its beginning. Raises FilesError."""
        if self._emits is not None and last_durable in self.checkpoint.planned():
            self._emits.resume(self.checkpoint.offsets(last_durable).watermark_ms)

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
        if self._publishes and self._read_taken(self.checkpoint.offsets(batch)).had_input:
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

    def _taken(self, offsets: BatchOffsets) -> tuple[dict[str, Taken], _Names, _Names]:
        """The units that a batch took, by source, those that it consumed, by segment number, and those that it
        held. Raises ComposeError where it has read what nobody accounts for."""
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
        tracked = {n: names for n, names in files.items() if self._routes.is_tracked(n)}
        took = {number: Taken(names) for number, names in tracked.items()}
        took |= {number: taken for number, (_, taken) in tables.items()}
        if self._routes.lists is None:
            self._see(offsets, tracked)
        self._check_twins(batch, took)
        consumed = self._routes.by_segment(itertools.chain.from_iterable(tracked.values()))
        held: _Names = {}
        for segment, units in tables.values():
            for found, names in ((consumed, units.consumed), (held, units.held)):
                if names:
                    found[segment] = tuple(dict.fromkeys((*found.get(segment, ()), *names)))
        return took, consumed, held

    def _ranges(self, batch: int) -> tuple[tuple[str, Range], ...]:
        """What the batch consumed of sources with partitioned offsets, by the sources' numbers. Raises
        ComposeError where two read one partition: what both consume would be as if nobody had."""
        found: list[tuple[str, Range]] = []
        readers: dict[tuple[int, str], str] = {}
        for number, sources in self._routes.ranges.items():
            before, after = self.checkpoint.offset_pair(batch, number)
            is_first = self.checkpoint.is_first_of(batch, number)
            what = f"batch {batch}, source {number}"
            for source in sources:
                segment = self._spec.segments.index(source.segment)
                for partition in filter(source.has, partitions(after, what)):
                    if (other := readers.setdefault((segment, partition), number)) != number:
                        raise ComposeError(
                            f"batch {batch}: sources {other} and {number} both read partition {partition!r} of "
                            f"segment {source.segment!r}, so that its records would be consumed twice; read it "
                            f"once, and use the one frame twice, or leave one of them untracked, if min time may "
                            f"pass what it reads later"
                        )
                read = ranges(segment, source, before, after, what, is_first=is_first)
                found += [(number, one) for one in read]
        return tuple(found)

    def tick(self, record: QueryRecord, stopping: threading.Event) -> TickContent:
        self._check_unpublished(record.batch, record.unpublished)
        self._wait_seen(record, stopping)
        read = self._input(record, stopping)
        own = self._allowed(read.labels)
        slots = self._held(record, read.labels, own)
        if self._emits is not None and record.times is not None:
            label = self._emits.label(record.times, slots.values())
            slots = dict.fromkeys(_segments(record.created), label)
        elif not own:
            slots = self._with_moment(record.batch, slots, _segments(record.created))
        numbered = self._created_records(record, slots, stopping)
        self._last = record.batch, read, numbered
        return self._compose(record, read.units, slots, read.cells, numbered)

    def _allowed(self, units: Iterable[Unit]) -> dict[int, int]:
        """By segment number the lowest slot of what may come of these."""
        return label_slots(units, self._routes.delays, self._spec.times)

    def _held(
        self,
        record: QueryRecord,
        labels: Sequence[Unit],
        own: dict[int, int],
        now: Mapping[int, int] | None = None,
    ) -> dict[int, int]:
        """Makes what the tick does to holds; returns the slots of what the batch creates: `own`, those that its labels
        allow, and where the query has state, what comes of anything that was held before it. now: min times by segment
        number, below which nothing can be held."""
        if self._state is None:
            return own
        assert record.told is not None

        def allowed(units: Sequence[Unit]) -> dict[int, int]:
            slots = self._allowed(units)
            least = slots if now is None else now
            return {s: max(slots[s], least[s]) for s in record.creates if s in slots}

        self._state.tick(record.batch, labels, allowed, record.told)
        return self._state.labels(own)

    def _created_records(
        self, record: QueryRecord, slots: Mapping[int, int], stopping: threading.Event
    ) -> Cells:
        """What the batch has created where records are numbered, durable then. Raises as `Records.cells`."""
        if not (written := self._records()):
            return Cells.empty()
        labels = BatchLabels(
            record.batch, self._query_id, record.had_input, slots, self.checkpoint.planned,
            lambda batch: self._later_slots(batch, slots, stopping),
            partial(self._with_moment, record.batch),
        )  # fmt: skip
        return Cells.concatenate(
            [records.cells(labels, record.seen.get(records)) for records in written]
        )

    def _with_moment(
        self, batch: int, slots: Mapping[int, int], segments: Iterable[int]
    ) -> dict[int, int]:
        """The slots, and for those of the segments that have none, the lowest at which a batch may create what comes of nothing that
        is in flight: min time of the moment as every shard knows it, which is held until the batch's tick is durable."""
        lacking = sorted({*segments} - slots.keys())
        now = self._min_times() if lacking else {}
        begun = {s: now[s] if now[s] == FOREVER else self._begin(batch, s) for s in lacking}
        return {**slots, **begun}

    def _begin(self, batch: int, segment: int) -> int:
        """Where a batch may create in a segment, held from now on; FOREVER where that is complete."""
        name = self._spec.segments[segment]
        try:
            hold = self._node.hold(
                name, None, batch_name(batch, segment), timeout_s=_GRANT_TIMEOUT_S
            )
        except RefusedError as error:
            if error.refusal.code is not RefusalCode.COMPLETE:
                raise
            return FOREVER
        return hold.slot

    def slots_to_write(
        self, batch: int, segments: Iterable[int], stopping: threading.Event
    ) -> dict[int, int]:
        """The slots under which a batch that is going on may write, by segment; segments: which are to have one though
        it had no input. Waits, and raises, as `tick` does."""
        own = slots = self._least_slots(batch, stopping)
        if self._state is not None:
            before = [over for over in self.checkpoint.committed() if over < batch]
            self._state.wait_durable(max(before, default=-1), stopping)
            slots = self._state.labels(own)
        return slots if own else self._granted(batch, slots, segments, stopping)

    def _granted(
        self,
        batch: int,
        slots: Mapping[int, int],
        segments: Iterable[int],
        stopping: threading.Event,
    ) -> dict[int, int]:
        """As `_with_moment`, asked until the tracker has answered: whoever asks has begun to write. Raises Stopping."""
        while True:
            try:
                return self._with_moment(batch, slots, segments)
            except (RefusedError, UnavailableError) as error:
                if isinstance(error, RefusedError) and not passes(error):
                    raise
                log.warning("batch %d of query %s waits to write: %s", batch, self._query_id, error)
            if stopping.wait(_ASK_AGAIN_S):
                raise Stopping

    def _least_slots(self, batch: int, stopping: threading.Event) -> dict[int, int]:
        """As `least_slots`, of a batch that is planned."""
        return self.least_slots(self._read_taken(self.checkpoint.offsets(batch)), stopping)

    def _later_slots(
        self, batch: int, slots: Mapping[int, int], stopping: threading.Event
    ) -> dict[int, int]:
        """As much of one that is planned behind a batch which creates under `slots`, but for what it reads too late: by
        that, what comes in time would be refused, and so would the query for good."""
        record = self._read_taken(self.checkpoint.offsets(batch))
        labels: Iterable[Unit] = self._input(record, stopping).labels
        later = self._allowed(labels)
        if any(slot < slots.get(segment, FOREVER) for segment, slot in later.items()):
            now = self._min_times()
            labels = [unit for unit in labels if unit.slot >= now[unit.segment]]
            later = self._allowed(labels)
        return later

    def least_slots(self, record: QueryRecord, stopping: threading.Event) -> dict[int, int]:
        """The least slot that a batch may create in, by segment, from what it consumed; waits, and
        raises, as `tick` does."""
        return self._allowed(self._input(record, stopping).labels)

    def check_rows(self, record: QueryRecord, slots: Mapping[int, int]) -> None:
        """Raises ComposeError or RowsError where the rows of created files cannot be tracked: for
        those who can still take them back. slots: as `least_slots` gives them."""
        self._created_rows(record, slots)

    def _input(self, record: QueryRecord, stopping: threading.Event) -> _Input:
        consumed = self._units.of(self._query_id, record.batch, record.consumed, stopping)
        held = self._units.of(self._query_id, record.batch, record.held, stopping)
        cells = Cells.concatenate(
            [self._consumed_rows(record), self._consumed_ranges(record, stopping)]
        )
        oldest = [Unit(segment, "", slot) for segment, slot, _, _ in cells.rows()]
        return _Input(consumed, cells, (*consumed, *held, *oldest))

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
            except UnavailableError as error:
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

    def _in_time(self, record: QueryRecord, made: Cells, now: Mapping[int, int]) -> Cells:
        """What a batch has written without that which lies below min time: it is counted when it is consumed."""
        late = made.below([now[number] for number in range(len(self._spec.segments))])
        if late is None:
            return made
        log.warning(
            "batch %d of query %s: of %d cells that it has written, %d come too late, since what it read did",
            record.batch, self._query_id, len(made), int(late.sum()),
        )  # fmt: skip
        return made.select(~late)

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
        """Where min time has passed what the batch reads, holds or creates: what it reads of that is counted and told of, and
        neither holds nor says under which slots the batch creates; nor is anything created below min time, as it would be by an
        edge that has come, or become shorter, while the pipeline runs. None where nothing of that is late: then it is refused for
        what else it creates."""
        if refusal.code != RefusalCode.BELOW_MIN_TIME or self._emits is not None:
            return None
        if self._last is None or self._last[0] != record.batch or self._is_of_before():
            return None
        _, read, numbered = self._last
        now = self._min_times()
        for number, slot in enumerate(refusal.min_times):
            now[number] = max(slot, now[number])
        let_go = self._state is not None and self._state.let_go_late(now)
        in_time = [unit for unit in read.labels if unit.slot >= now[unit.segment]]
        own = self._allowed(in_time)
        slots = self._held(record, in_time, own, now)
        late = {s for s in _segments(record.created) if slots.get(s, -1) < now[s]}
        late |= {s for s in record.creates if own.get(s, FOREVER) < now[s]}
        passed = any(slot < now[s] for s, slot in numbered.lowest_slots().items())
        if not (let_go or late or passed) and len(in_time) == len(read.labels):
            return None
        if late:
            now |= {s: self._begin(record.batch, s) for s in sorted(late) if now[s] < FOREVER}
            log.info(
                "batch %d of query %s creates from slots %s on: what it read is older than what was announced there, or nothing",
                record.batch, self._query_id, {s: now[s] for s in late},
            )  # fmt: skip
            slots = self._held(record, in_time, own, now)
        slots = {s: max(slots.get(s, now[s]), now[s]) for s in slots.keys() | late}
        return self._compose(record, read.units, slots, read.cells, numbered, now)

    def _is_of_before(self) -> bool:
        """Whether the batch whose tick was refused has read what was told before the pipeline was restarted: made of
        that once more, nobody would consume it. By event time it may as well have come late."""
        assert self._last is not None
        joined = self._node.joined
        is_told = bool(joined.generation) and self._spec.time is not TimeKind.EVENT
        return is_told and any(unit.slot < joined.replay_from for unit in self._last[1].labels)

    def _records(self) -> list[Records]:
        return [output.records for output in self._outputs() if output.records is not None]

    def durable(self, batch: int) -> None:
        if self._state is not None:
            self._state.durable(batch)
        if self._emits is not None:
            self._emits.durable(batch)
        for output in self._outputs():
            output.durable(batch, self._min_times)

    def check_acks(self, batch: int, run: str) -> None:
        """Raises ComposeError if the acks of a batch's evaluations in a run contradict each other, or
        cover none of them whole: asked before the batch is published, since nothing can be told of it
        afterwards."""
        if self._evaluations is not None:
            known = self._known(bool(self.checkpoint.consumed(batch)))
            staged = self._node.list_contributions(self._query_id, batch)
            count_contributions(self._query_id, batch, staged, replace(known, published_by=run))

    def _acked(self, record: QueryRecord) -> tuple[Cells, Cells]:
        """What user code created and consumed in a batch. Raises ComposeError."""
        if self._evaluations is None:
            return Cells.empty(), Cells.empty()
        known = self._known(bool(record.consumed))
        staged = self._node.list_contributions(self._query_id, record.batch)
        if not record.published_by:
            return count_contributions(self._query_id, record.batch, staged, known)
        return count_published(self._query_id, record.batch, staged, known, record.published_by)

    def _known(self, had_input: bool) -> Evaluations:
        """What is known of how a batch was evaluated, whoever has published it."""
        assert self._evaluations is not None
        return self._evaluations if had_input else replace(self._evaluations, operators=())

    def _check_twins(self, batch: int, took: Mapping[str, Taken]) -> None:
        """A unit that several sources of the query read (a self-join) is consumed once, so all of them take it in one
        batch. Raises ComposeError where one has taken what another reads too, and has not taken."""
        planned = self._routes.lists
        units = {
            source: {
                *((name, False) for name in each.consumed),
                *((name, True) for name in each.held),
            }
            for source, each in took.items()
        }
        for by, source in itertools.product(units, self._listed if planned is None else planned):
            for name, _ in sorted(units[by] - units.get(source, set())):
                if self._reads_too(source, by, name):
                    raise ComposeError(
                        f"batch {batch}: sources {tuple(sorted((by, source)))} read the same directory and took "
                        f"different files of it, such as {self._routes.tables.shown(name) or name}, so that what is "
                        f"done cannot be told; read the directory once, or with one maxFilesPerTrigger and "
                        f"latestFirst for both"
                    )

    def _reads_too(self, source: str, by: str, unit: str) -> bool:
        """Whether a source may read what another one has taken, and is tracked: by the plan, or by where it has read
        before."""
        table = self._routes.tables.location(by)
        if table is None and self._routes.segment(unit) is None:
            return False
        if self._routes.lists is not None:
            return self._routes.reads_too(source, by, unit)
        return (table or self._routes.folder(unit)) in self._listed[source]

    def _see(self, offsets: BatchOffsets, files: Mapping[str, tuple[str, ...]]) -> None:
        """Notes where the sources of a query without a plan have read, up to a batch; where it has one alone there is
        nothing to compare."""
        sources = [
            number
            for number in offsets.sources
            if self._routes.is_tracked(number) and number not in self._routes.ranges
        ]
        for number in sources if len(sources) > 1 else ():
            names: Iterable[str] = files.get(number, ())
            if number not in self._listed:
                names = self.checkpoint.consumed_until(offsets.batch, number)
            table = self._routes.tables.location(number)
            folders = {*map(self._routes.folder, names)} if table is None else {table}
            self._listed[number] = self._listed.get(number, set()) | folders

    def _wait_seen(self, record: QueryRecord, stopping: threading.Event) -> None:
        """Without a plan, a source that has read nothing yet may read later what another has taken: waits until each has
        read something, but for as many as have a directory of their own in `reads`. Raises ComposeError as
        `_check_twins`, by all that was seen meanwhile."""
        if self._routes.lists is not None:
            return  # a plan says the same as when the batch was read
        looks = 0
        while (record.consumed or record.held) and (unseen := self._unseen()):
            if looks % _LOOKS_PER_REPORT == 0:
                text = (
                    f"the first file of source {unseen[0]}: it may be a directory that another source reads too; if it "
                    f"is not, name the directory of each source in reads"
                )
                self._waits(WaitKind.NOT_TOLD, text, -1, record.batch)
            looks += 1
            if stopping.wait(_LOOK_AGAIN_S):
                raise Stopping
        self._check_twins(record.batch, record.took)

    def _unseen(self) -> list[str]:
        """The sources of which it is not known where they read."""
        unseen = [number for number, folders in self._listed.items() if not folders]
        seen = set().union(*self._listed.values())
        return unseen if len(unseen) > self._routes.unread(seen) else []

    def _waits(self, kind: WaitKind, text: str, segment: int, batch: int) -> None:
        self._node.report_waits([WaitCause(kind, text, segment, batch)])

    def _without_complete(self, record: QueryRecord, slots: Mapping[int, int]) -> QueryRecord:
        """A batch without what it has written into segments that are complete, where nothing can be created any more.
        Raises AtRest where it has read nothing, and nothing else, nor will any more. slots: of what it has written, by segment number."""
        over = {s for s in _segments(record.created) if slots.get(s) == FOREVER}
        if not over:
            return record
        names = [self._spec.segments[segment] for segment in sorted(over)]
        left = (CreatedUnit(u.name, tuple({*u.segments} - over)) for u in record.created)
        created = tuple(unit for unit in left if unit.segments)
        what = (
            f"segments {names} of pipeline {self._spec.name!r} are complete, and batch {record.batch} has written "
            f"{len(record.created)} units there, such as {record.created[0].name}: they are not counted"
        )
        reads = map(self._routes.number, self._routes.read_segments())
        is_nothing = not created and not record.had_input and self._evaluations is None
        if is_nothing and self._are_complete(reads):
            raise AtRest(what)
        log.warning("query %s: %s", self._query_id, what)
        return replace(record, created=created)

    def _are_complete(self, segments: Iterable[int]) -> bool:
        now = self._min_times()
        return all(now[segment] == FOREVER for segment in segments)

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
        now: Mapping[int, int] | None = None,
    ) -> TickContent:
        """now: min times by segment number, where some of what the batch has written may come too late; None
        where that is an error. Raises AtRest."""
        record = self._without_complete(record, slots)
        by_rows = self._routes.rows
        created = tuple(
            CreatedUnit(unit.name, tuple(s for s in unit.segments if s not in by_rows))
            for unit in record.created
        )
        units = BatchUnits(
            self._query_id, record.batch, record.fingerprint, consumed, created, slots
        )
        acked = self._acked(record)
        least = slots if now is None else {}
        made = Cells.concatenate(
            [acked[0], self._created_rows(record, least), created_ranges or Cells.empty()]
        )
        if now is not None:
            made = self._in_time(record, made, now)
        more = made, Cells.concatenate([acked[1], consumed_rows])
        content = compose(units, more)
        moves = () if self._state is None else self._state.moves(record.batch)
        over = let_go_of_batches(self._node, lambda batch: batch <= record.batch)
        return replace(content, holds=(*moves, *over))


def let_go_of_batches(node: NodeClient, of: Callable[[int], bool]) -> tuple[HoldMove, ...]:
    """What lets go of what a node holds for batches that have read nothing. of: for which of them, by their numbers."""
    return tuple(
        hold.at(FOREVER)
        for name, hold in node.holds.items()
        if (batch := batch_of(name)) is not None and of(batch)
    )


def _segments(created: Iterable[CreatedUnit]) -> set[int]:
    return {segment for unit in created for segment in unit.segments}
