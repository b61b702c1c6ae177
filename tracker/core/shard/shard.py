"""What one shard keeps of one pipeline, and what it reports of it (rules 4 and 5).

A shard applies the entries of the homes' logs, each once and whole, and remembers what has changed
since its last report: lowest open slots, fronts, and for each home the lowest slots that the ticks of
its log touched. A report is therefore a consistent snapshot of the shard at a moment.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tracker.core.log import (
    FrontReport,
    KeyClosed,
    KeyDropped,
    KeyOpened,
    KeyProgress,
    KeyTick,
    PipelineReport,
    SegmentLow,
    TickColumns,
    TickRun,
    TouchedRun,
    WrittenOff,
)
from tracker.core.log.steps import CellsMoved, DepartureSummary, LateEntry
from tracker.core.model import (
    HOLD_FRONT,
    Cells,
    FrontId,
    FrontName,
    FrontPin,
    Heartbeat,
    NodeKey,
    PipelineSpec,
    TickContent,
    Unit,
    WrittenOffCell,
)
from tracker.core.model import durable as d
from tracker.core.model.slots import LOWEST_SLOT
from tracker.core.shard.awaited import Former, have_all_joined, still_unfed
from tracker.core.shard.cells import CELLS, CellTable, kept_items, shown_items
from tracker.core.shard.names import UnitNames
from tracker.core.shard.vacancies import Vacancies
from tracker.core.shard.written_off import WrittenOffLedger

MAX_JOINED = 10_000
"""Fronts that join a pipeline which waits for others by name: when so many have, only those that it waits for may join."""


@dataclass(slots=True)
class KeyState:
    """A key at a shard: its node time, and whether it is closed."""

    key: NodeKey
    kind: str
    number: int = 0
    closed: bool = False


@dataclass(slots=True)
class FrontState:
    """A front at a shard: where it is pinned (None until it is), and its last promise, if any."""

    node_id: str
    front: str
    segment: int
    incarnation: int
    number: int
    pin: int | None = d.survives(ahead=True, default=None)
    promised: int | None = None

    @property
    def heartbeat(self) -> int:
        """What the shard holds min time to: the promise, but never below the pin."""
        if self.pin is None:
            return LOWEST_SLOT if self.promised is None else self.promised
        if self.promised is None or self.promised < self.pin:
            return self.pin
        return self.promised


@dataclass(slots=True)
class _Changes:
    """What the next report has to tell."""

    segments: dict[int, None] = field(default_factory=dict)
    fronts: dict[FrontName, None] = field(default_factory=dict)
    left: list[FrontId] = field(default_factory=list)
    touched: dict[int, dict[int, int]] = field(default_factory=dict)
    """By home and segment."""

    def __bool__(self) -> bool:
        return bool(self.segments or self.fronts or self.left or self.touched)


_UNITS = {
    "units": d.each(
        Unit,
        lambda units: (unit for segment in sorted(units) for unit in units[segment].units(segment)),
        lambda units, saved: _names(units, saved.segment).add(saved.name, saved.slot),
    ),
    "early_units": d.each(
        tuple[int, str],
        lambda units: (
            (segment, name) for segment in sorted(units) for name in units[segment].early
        ),
        lambda units, saved: _names(units, saved[0]).early.setdefault(saved[1]),
    ),
}


def _names(units: dict[int, UnitNames], segment: int) -> UnitNames:
    return units.setdefault(segment, UnitNames())


@dataclass(eq=False)
class ShardPipeline:
    """One pipeline at one shard. Entries hold this shard's cells and units alone."""

    spec: PipelineSpec = d.follows("the pipeline's")
    cells: CellTable = d.survives(CELLS, own=True, init=False)
    keys: dict[NodeKey, KeyState] = d.survives(d.values("key"))
    fronts: dict[FrontName, FrontState] = d.survives(d.values("node_id", "front"))
    unpinned: dict[FrontName, None] = d.follows("the pins of `fronts`", ahead=True, init=False)
    begun: bool = d.survives(init=False)
    joined: dict[FrontName, None] = d.survives(d.KEYS)
    """Fronts that have ever joined; kept only until the pipeline has begun. Homes let no more join than MAX_JOINED, and those
    of which they have not heard."""
    former: Former | None = d.survives(
        default=None, may_lag="it ends with the change that is under way"
    )
    """What the pipeline waited for before the change that is under way; None where none is, or it was decided on before this
    generation: then all go by that."""
    vacancies: Vacancies = d.part(Vacancies)
    units: dict[int, UnitNames] = d.survives(_UNITS, dict, own=True)
    takes_names: bool = d.follows("the membership", default=False)
    late: dict[int, LateEntry] = d.survives(d.values("segment"), own=True)
    written_off: WrittenOffLedger = d.part(WrittenOffLedger)
    changes: _Changes = d.forgotten("the next report tells all", _Changes)

    def __post_init__(self) -> None:
        self.cells = CellTable(len(self.spec.segments))
        self.begun = not self.spec.fronts and not self.spec.front_count
        self.derive()

    def derive(self) -> None:
        """Works out what follows from what is durable."""
        self.unpinned = {name: None for name, state in self.fronts.items() if state.pin is None}

    def change(self, spec: PipelineSpec, *, is_activated: bool) -> None:
        """Goes by what the pipeline has become. A new segment that nothing feeds which was there waits for a front.
        is_activated: whether homes say in their logs from where on they go by it."""
        before, self.spec = self.spec, spec
        if is_activated:
            self.former = Former(before, (*self.joined,), tuple(sorted(self.vacancies.unfed())))
        self.cells.grow(len(spec.segments))
        for segment, name in enumerate(spec.segments):
            if name in spec.removed:
                self.vacancies.removed(segment)
            elif segment >= len(before.segments):
                self.vacancies.declared(segment, name)
        self._look_what_is_fed()
        self._look_whether_begun()

    def _look_what_is_fed(self) -> None:
        """A segment waits for its first front no more once one feeds it that does not wait, now or by what the pipeline was."""
        if not (waiting := self.vacancies.unfed()):
            return
        former = self.former
        left = waiting if former is None else {s for s in waiting if not former.feeds(s)}
        for segment in waiting - still_unfed(self.spec, left):
            self.vacancies.fed(segment)

    # --- applying entries -------------------------------------------------------------------------

    def open_key(self, entry: KeyOpened) -> None:
        """A key begins, at node time 0."""
        self.keys[entry.key] = KeyState(entry.key, entry.kind)

    def close_key(self, entry: KeyClosed, home: int) -> None:
        """A key ends, and where it was evicted, its fronts with it."""
        state = self.keys.get(entry.key)
        if state is None:
            return  # of a generation that is over: its fronts are not those that there are now
        state.closed = True
        if entry.evicted:
            for front in [f for f in self.fronts if f[0] == entry.key.node_id]:
                segment = self.fronts[front].segment
                if entry.keeps_places and self.spec.segments[segment] not in self.spec.removed:
                    self.vacancies.evicted(front, segment)
                self._remove_front(front, home, in_order=entry.retired)
        if entry.retired:
            self.vacancies.retired(entry.key.node_id)

    def drop_key(self, entry: KeyDropped) -> None:
        """A closed key is forgotten."""
        self.keys.pop(entry.key, None)

    def apply_tick(self, entry: KeyTick, home: int, *, by_former: bool = False) -> set[int]:
        """Applies the next tick of a key, from its home's log, whole. A tick applied before is dropped
        by its number (rule 2); one of a generation that is over, by its key, which is known no more.
        by_former: whether its home went by what the pipeline was before the change that is under way.
        Returns the segments in which names of units have arrived."""
        tick = entry.tick
        state = self.keys.get(tick.key)
        if state is None or tick.number <= state.number:
            return set()
        state.number = tick.number
        content = tick.content
        self._apply_cells(content.created, content.consumed, home)
        if self.written_off:
            self._look_for_written_off(content)
        if content.joins or content.heartbeats or content.leaves:
            self._apply_fronts(tick.key, tick.number, content, home, by_former)
        if entry.late.size:
            self._count_late(entry.late)
        return self._apply_units(content)

    def takes_at_once(self, run: TickRun, columns: TickColumns) -> bool:
        """Whether applying ticks of a run all at once does what applying one after the other does: where each of them
        is new, and nobody asks what was created first."""
        if self.written_off:
            return False
        for place, number in columns.first_numbers().items():
            state = self.keys.get(run.keys[place].key)
            if state is None or number <= state.number:
                return False
        return True

    def apply_at_once(self, columns: TickColumns, home: int) -> None:
        """Applies the cells of ticks that it takes at once. The ticks count when their keys have come as far
        (`advance`)."""
        self._apply_cells(columns.created, columns.consumed, home)

    def _apply_cells(self, created: Cells, consumed: Cells, home: int) -> None:
        for cells, sign in ((created, 1), (consumed, -1)):
            if cells.size:
                self.cells.apply(cells, sign)
                self._touch(home, cells)

    def advance(self, progress: KeyProgress) -> None:
        """What ticks of a key come to of which this shard has all that it owns. Where a later tick of the key
        was applied before, it is nothing: a front of that name may be another one by now."""
        state = self.keys.get(progress.key)
        if state is None or progress.number < state.number:
            return
        state.number = progress.number
        self._take_promises(progress.key.node_id, progress.heartbeats)

    def write_off(self, entry: WrittenOff, home: int) -> None:
        """Clears the cells of an operator's write-off that hold just what the operator was shown. They
        are touched as by a tick, so that each is held until the entry is inside M (rule 6). The node is
        gone by the operator's word, and so are fronts of it that were evicted before."""
        if entry.node_id:
            self.vacancies.retired(entry.node_id)
        if not len(entry.cells):
            return
        for segment, slot, checksum, _ in entry.cells.rows():
            known, items = self.cells.value(segment, slot)
            if not known or known != checksum:
                continue
            self.cells.apply(Cells.of([(segment, slot, known, items)]), -1)
            self.written_off.add(
                WrittenOffCell(segment, slot, known, items, entry.node_id, entry.at_ms)
            )
        self._touch(home, entry.cells)

    def give_cells(self, entry: CellsMoved, home: int) -> None:
        """Lets go of what another shard takes, by an entry of this shard's own log."""
        if len(entry.cells):
            self.cells.apply(entry.cells, -1)
            self._touch(home, entry.cells)
        for unit in entry.units:
            self.names(unit.segment).remove(unit.name, unit.slot)
            self.changes.segments[unit.segment] = None
        for unit in entry.consumed:
            self.names(unit.segment).early.pop(unit.name, None)
        self.list_given_up(entry, gives=True)

    def take_cells(self, entry: CellsMoved, home: int) -> None:
        """Takes over what another shard has let go of. Ticks that its owner was to get may have come
        before: XOR does not mind."""
        if len(entry.cells):
            self.cells.apply(entry.cells, 1)
            self._touch(home, entry.cells)
        for unit in entry.units:
            self.names(unit.segment).take(unit.name, unit.slot)
            self.changes.segments[unit.segment] = None
        for unit in entry.consumed:
            self.names(unit.segment).remove(unit.name, None, remember=self.takes_names)
        for cell in entry.written_off:
            known, items = self.cells.value(cell.segment, cell.slot)
            self.written_off.take(cell, watch=not known or known == cell.checksum)
            self.changes.segments[cell.segment] = None
            if known and cell.watched and known == cell.checksum:
                self._come_back(cell, known, items)

    def list_given_up(self, entry: CellsMoved, *, gives: bool) -> None:
        """What was given up is listed by another shard from here on; or by this one, where that was in a generation that is over."""
        for cell in entry.written_off:
            if gives:
                self.written_off.give(cell)
            else:
                self.written_off.take(cell, watch=False)
            self.changes.segments[cell.segment] = None

    def give_ledgers(self, words: DepartureSummary) -> None:
        """Another shard counts from here on what was consumed late and written off here."""
        for late in words.late:
            entry = self.late[late.segment]
            self.late[late.segment] = replace(
                entry, items=entry.items - late.items, cells=entry.cells - late.cells
            )
            self.changes.segments[late.segment] = None
        for segment, items in words.written_off_items:
            self.written_off.add_items(segment, -items)
            self.changes.segments[segment] = None

    def _look_for_written_off(self, content: TickContent) -> None:
        """Moves to the late ledger what was written off and has been consumed after all. Cells in which
        anything was created since are left alone: their items are told apart no more."""
        self.written_off.created(content.created)
        for cell in self.written_off.consumed(content.consumed):
            known, items = self.cells.value(cell.segment, cell.slot)
            if known == cell.checksum:
                self._come_back(cell, known, items)

    def _come_back(self, cell: WrittenOffCell, known: int, items: int) -> None:
        """What was written off in a cell was consumed after all."""
        self.cells.apply(Cells.of([(cell.segment, cell.slot, known, items)]), -1)
        self.written_off.came_back(cell)
        self._count_late(Cells.of([(cell.segment, cell.slot, known, cell.items)]))

    def _touch(self, home: int, cells: Cells) -> None:
        touched = self.changes.touched.setdefault(home, {})
        for segment, slot in cells.lowest_slots().items():
            if slot <= touched.get(segment, slot):
                touched[segment] = slot
            self.changes.segments[segment] = None

    def _apply_fronts(
        self, key: NodeKey, number: int, content: TickContent, home: int, by_former: bool
    ) -> None:
        node_id = key.node_id
        for join in content.joins:
            front = (node_id, join.front)
            if front not in self.fronts:
                self.fronts[front] = FrontState(*front, join.segment, key.incarnation, number)
                self.unpinned[front] = None
                if not join.front.startswith(HOLD_FRONT):
                    self._count_joined(front, join.segment, by_former)
        self._take_promises(node_id, content.heartbeats)
        for name in content.leaves:
            self._remove_front((node_id, name), home, in_order=True)

    def _take_promises(self, node_id: str, heartbeats: tuple[Heartbeat, ...]) -> None:
        for heartbeat in heartbeats:
            state = self.fronts.get((node_id, heartbeat.front))
            if state is None:
                continue  # whoever is not here promises nothing
            if state.promised is None or heartbeat.slot > state.promised:
                state.promised = heartbeat.slot
                self.changes.fronts[(node_id, heartbeat.front)] = None

    def _count_joined(self, front: FrontName, segment: int, by_former: bool) -> None:
        """A front has joined. One by which a hold is to begin is none that anybody waits for."""
        if by_former and self.former is not None:
            self.former = self.former.joins(front, segment, has_begun=self.begun)
        self.vacancies.joined(front, segment)
        self._look_what_is_fed()
        if not self.begun:
            self.joined[front] = None
            self._look_whether_begun()

    def _look_whether_begun(self) -> None:
        """It begins when all have joined that it waits for now, or that it waited for where homes go by that."""
        former = self.former
        if not self.begun:
            self.begun = have_all_joined(self.spec, self.joined) or (
                former is not None and have_all_joined(former.spec, former.joined)
            )
        if self.begun:
            self.joined.clear()

    def _remove_front(self, front: FrontName, home: int, *, in_order: bool) -> None:
        """Forgets a front that leaves, in order or evicted. Its leaving touches the slot of its pin:
        another shard may be known only from before the front joined, hold items of it, and say nothing
        of either. No item of the front lies below the pin of any shard, since the largest was granted."""
        state = self.fronts.pop(front, None)
        if state is None:
            return
        touched = self.changes.touched.setdefault(home, {})
        pin = LOWEST_SLOT if state.pin is None else state.pin
        touched[state.segment] = min(pin, touched.get(state.segment, pin))
        self.unpinned.pop(front, None)
        self.changes.fronts.pop(front, None)
        self.changes.left.append((*front, state.incarnation, state.number))
        if in_order:
            self.vacancies.left_in_order(state.segment, state.promised)

    def names(self, segment: int) -> UnitNames:
        """The names of a segment's open units, as far as this shard keeps them."""
        return _names(self.units, segment)

    def _apply_units(self, content: TickContent) -> set[int]:
        for unit in content.units_created:
            self.names(unit.segment).add(unit.name, unit.slot)
            self.changes.segments[unit.segment] = None
        for unit in content.units_consumed:
            self.names(unit.segment).remove(unit.name, unit.slot, remember=self.takes_names)
            self.changes.segments[unit.segment] = None
        return {unit.segment for unit in content.units_created} if content.units_created else set()

    def forget_names(self, segment: int, below: int) -> None:
        """Everything below a slot is complete: names of units there are let go of."""
        names = self.names(segment)
        known = len(names)
        names.forget_below(below)
        if len(names) < known:
            self.changes.segments[segment] = None

    def expect_names(self, expected: bool) -> None:
        """Whether other shards may hand names over."""
        self.takes_names = expected
        if not expected:
            for names in self.units.values():
                names.early.clear()

    def _count_late(self, cells: Cells) -> None:
        for segment, slot, _, count in cells.rows():
            known = self.late.get(segment, LateEntry(segment))
            items = shown_items(known.items + abs(count))
            last_slot = max(known.last_slot, slot)
            self.late[segment] = LateEntry(segment, items, known.cells + 1, last_slot)
            self.changes.segments[segment] = None

    def pin(self, pin: FrontPin) -> None:
        """Holds a front at a slot for good; a front that has left meanwhile is passed over, also if one of
        its name has joined since. A pin that names no joining, of an older store, is of the front as it is."""
        front = (pin.node_id, pin.front)
        state = self.fronts.get(front)
        if state is None or (pin.number and pin.id != self.front_id(front)):
            return
        if state.pin is None:
            state.pin = pin.slot
            self.unpinned.pop(front, None)
            self.changes.fronts[front] = None

    def sweep(self, segment: int, below: int) -> None:
        """Moves cells below what some process has announced to the late ledger: by the promise of
        that announcement nothing of theirs is in flight, they are consumption that came too late."""
        cells = self.cells.segment_cells(segment, below)
        if len(cells):
            self.cells.apply(cells, -1)
            self._count_late(cells)
        self.changes.segments[segment] = None

    def carry_over(self, older: ShardPipeline) -> None:
        """Takes over what outlives a generation: the ledgers."""
        self.late, self.written_off = older.late, older.written_off
        self.written_off.forget_all()

    # --- reporting --------------------------------------------------------------------------------

    def take_report(
        self, applied: Mapping[int, int], announced: tuple[tuple[int, int], ...]
    ) -> PipelineReport:
        """What has changed since the report before (rule 5); `applied`: by home how much of its log
        this shard has applied."""
        changes, self.changes = self.changes, _Changes()
        return PipelineReport(
            pipeline=self.spec.name,
            lows=tuple(self.low(segment) for segment in changes.segments),
            fronts=tuple(
                self.front_report(front) for front in changes.fronts if self._is_pinned(front)
            ),
            left=tuple(changes.left),
            runs=_runs(changes, applied),
            announced=announced,
        )

    def unreported_runs(self, applied: Mapping[int, int]) -> tuple[TouchedRun, ...]:
        """The runs that the next report would tell."""
        return _runs(self.changes, applied)

    def low(self, segment: int) -> SegmentLow:
        """A segment's lowest non-zero slot at this shard, with the advisory totals."""
        names = self.units.get(segment)
        return SegmentLow(
            segment,
            self.cells.lowest(segment),
            self.cells.open_slots[segment],
            kept_items(self.cells.open_items[segment]),
            self.late[segment].items if segment in self.late else 0,
            self.written_off.items.get(segment, 0),
            *((len(names), names.lowest_slot) if names else ()),
        )

    def front_id(self, front: FrontName) -> FrontId:
        """The joining of a front that is here."""
        state = self.fronts[front]
        return *front, state.incarnation, state.number

    def front_report(self, front: FrontName) -> FrontReport:
        state = self.fronts[front]
        assert state.pin is not None
        return FrontReport(
            *front,
            state.segment,
            state.pin,
            state.heartbeat,
            state.incarnation,
            state.number,
        )

    def _is_pinned(self, front: FrontName) -> bool:
        return self.fronts[front].pin is not None

    def mark_all_changed(self) -> None:
        """Makes the next report tell everything, after the shard was restored."""
        self.changes.segments.update(dict.fromkeys(range(len(self.spec.segments))))
        self.changes.fronts.update(dict.fromkeys(self.fronts))

    def validate(self) -> None:
        """Raises AssertionError where an invariant does not hold."""
        self.cells.validate()
        self.written_off.validate()
        for front, state in self.fronts.items():
            assert (state.pin is None) == (front in self.unpinned), f"{front} is half pinned"
            assert state.pin is None or state.heartbeat >= state.pin


def _runs(changes: _Changes, applied: Mapping[int, int]) -> tuple[TouchedRun, ...]:
    return tuple(
        TouchedRun(home, applied[home], tuple(touched.items()))
        for home, touched in changes.touched.items()
        if home in applied  # else it is lost, and its log is not waited for
    )
