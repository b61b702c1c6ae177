"""One pipeline at one process: its shard, its home, its combiner, and what has been announced."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass

from tracker.core.cut.combiner import Combiner
from tracker.core.cut.graph import SegmentGraph
from tracker.core.cut.history import COARSE_STEP_NS, HISTORIES, History
from tracker.core.cut.vectors import Vectors
from tracker.core.home.home import FrontClaim, HomeNode, HomePipeline
from tracker.core.log import Grant, KeyTick, Restart
from tracker.core.model import (
    Dropped,
    DroppedCells,
    FrontId,
    FrontPin,
    Held,
    PipelineSpec,
    TimeKind,
)
from tracker.core.model import durable as d
from tracker.core.model.slots import FOREVER, LOWEST_SLOT
from tracker.core.pipeline.change import GraphChange, is_activated, united, with_graph_of
from tracker.core.shard.cells import shown_items
from tracker.core.shard.shard import ShardPipeline

MAX_LISTED_RESTARTS = 100
"""Restarts of a pipeline that are remembered, the last ones."""


def _sums(shard: ShardPipeline) -> tuple[DroppedCells, ...]:
    sums = []
    for segment in range(len(shard.spec.segments)):
        cells = shard.cells.segment_cells(segment)
        if len(cells):
            items = shown_items(shard.cells.open_items[segment])
            lowest, highest = int(cells.slots.min()), int(cells.slots.max())
            sums.append(DroppedCells(segment, len(cells), items, lowest, highest))
    return tuple(sums)


@dataclass(init=False, eq=False)
class Pipeline:
    """The state machines of one pipeline, side by side, in its present generation."""

    registered: PipelineSpec = d.survives({"spec": d.AS_IT_IS})
    """As it was registered."""
    changed: PipelineSpec | None = d.survives(default=None)
    """What it has become last; None where it was never changed."""
    changes: int = d.survives(default=0)
    """How often it was changed."""
    spec: PipelineSpec = d.follows("as registered, or changed last")
    graph_change: GraphChange = d.part()
    activates: bool = d.follows("`graph_change`", ahead=True, default=True)
    """Whether this home judges by the last change, which it has logged, durably or not."""
    change_unreported: bool = d.forgotten(d.REPORTED_AGAIN, default=False)
    """Whether a change was applied, and what was announced by then is not reported."""
    begun_by: int = d.forgotten("it may be one that came later", default=0)
    """The last change when it began here: it may have begun by that, of which others need not have heard. From a snapshot: the
    last one that is known, since it may have been any."""
    declared: SegmentGraph = d.follows("`activates`", ahead=True)
    """The graph by which ticks are judged here."""
    graph: SegmentGraph = d.follows("`spec`, and the change that is under way", ahead=True)
    """The one on which min times rest: with edges along which items may still go though they are gone."""
    remaining: SegmentGraph = d.follows("`spec`")
    """The one that there will be when the change that is under way is over."""
    _vectors: Vectors = d.forgotten(d.HEARD_AGAIN)
    _own: int = d.follows("which process it is")
    restarts: list[Dropped] = d.survives(d.SEQUENCE)
    """How this generation and those before it began, oldest first, at most MAX_LISTED_RESTARTS."""
    restart: Restart | None = d.follows("the last of `restarts`", default=None)
    """How this generation began; None in the first."""
    base: int = d.survives(default=0)
    """How many steps of generations lie below those in which it goes on when shards of this group are lost: they are of other
    groups, and of other pipelines of its name there. It stays as it is while the pipeline is in this group."""
    placed: int = d.survives(default=0)
    """The version of its placement, by which it is in this group; 0 where it needs none."""
    arrived_home: int = d.survives(default=0)
    arrived_number: int = d.survives(default=0)
    """By which entry of which home's log it has come to this group; 0 where it began here."""
    rests: bool = d.follows("the membership", default=False)
    """Whether every home has logged its last of it, since it moves: nothing more of it is decided here."""
    held: Held | None = d.survives(default=None)
    """Since when it stands because shards are lost; then nothing of it is taken or announced in this generation."""
    published: list[int] = d.survives(d.SEQUENCE)
    """Min times that are durable, and may be reported to anyone. They grow through all generations."""
    told: dict[int, int] = d.follows("what is appended", ahead=True)
    """By segment the min time that was told before its record is durable: recovery finds it again without that.
    Invariant: nothing that changes the pipeline is appended before such a record and not durable."""
    history: list[History] = d.survives(HISTORIES)
    """When they were announced, by segment number."""
    floor: int = d.follows("how the generation began")
    """Everything is done below."""
    shard: ShardPipeline = d.part()
    home: HomePipeline = d.part()
    combiner: Combiner = d.forgotten(d.HEARD_AGAIN)
    """What the shard has reported itself is saved, as `runs`."""
    announced: list[int] = d.follows("`durable`", ahead=True)
    """Min times of this generation that are appended to the log. Pins and refusals go by them, since they
    will be published. Invariant: floor <= durable <= announced."""
    durable: list[int] = d.survives(d.SEQUENCE)
    """The part of `announced` that is durable."""
    departed_floors: list[int] = d.survives(d.SEQUENCE)
    """Min times that departed shards had announced: no front is granted less."""
    unpublished: set[int] = d.follows("`durable` and `published`", ahead=True)
    """Segments in which the slot that was announced last is still to be published."""
    unreported: dict[int, int] = d.forgotten(d.REPORTED_AGAIN)
    """Min times published since the last report to the other shards."""
    reported: bool = d.forgotten(d.REPORTED_AGAIN)
    """Whether this shard's part has ever been reported to the other shards."""
    announced_due: bool = d.forgotten(d.REPORTED_AGAIN)
    """Whether `unreported` must be reported now, though nothing else has changed."""
    sweeping: dict[int, int] = d.follows("what is appended", ahead=True)
    """By segment the slot below which the shard moves cells to the late ledger."""
    front_heard_ns: dict[FrontId, int] = d.forgotten(d.A_MOMENT)
    moved_ns: list[int] = d.forgotten(d.A_MOMENT)
    """When this process last moved a segment's min time, or started; for people."""

    def __init__(self, spec: PipelineSpec, vectors: Vectors, own: int) -> None:
        self.spec = self.registered = spec
        self.changed, self.changes, self.graph_change = None, 0, GraphChange()
        self.graph = self.declared = self.remaining = SegmentGraph(spec)
        self.activates, self.change_unreported = True, False
        self.begun_by = 0
        self._vectors, self._own = vectors, own
        self.restarts, self.restart = [], None
        self.placed, self.base, self.rests = 0, 0, False
        self.arrived_home = self.arrived_number = 0
        self.published = [spec.start_slot] * len(spec.segments)
        self.history = [History(spec.start_slot, self._history_width_ns) for _ in spec.segments]
        self._begin(spec.start_slot)

    @property
    def _history_width_ns(self) -> int:
        return COARSE_STEP_NS if self.spec.time is TimeKind.NUMBER else self.spec.slack_ns

    def _begin(self, floor: int) -> None:
        """A generation begins: everything is done below `floor`, and nothing is there yet."""
        spec = self.spec
        self.floor, self.held = floor, None
        self.shard = ShardPipeline(spec)
        self.home = HomePipeline(spec)
        self.combiner = Combiner(self.graph, self._vectors, self._own)
        self.announced, self.told = [floor] * len(spec.segments), {}
        self.durable = list(self.announced)
        self.departed_floors = [LOWEST_SLOT] * len(spec.segments)
        self._find_unpublished()
        self.unreported, self.sweeping = {}, {}
        self.reported = self.announced_due = False
        self.front_heard_ns = {}
        self.moved_ns = [0] * len(spec.segments)

    @property
    def generation(self) -> int:
        return 0 if self.restart is None else self.restart.generation

    def has_arrived(self, applied: Iterable[tuple[int, int]]) -> bool:
        """Whether it was in this group where so much of each home's log was applied. A home that does not count any more has
        logged nothing that some shard has not."""
        if not self.arrived_number or self.arrived_home not in self._vectors.shards:
            return True
        return dict(applied).get(self.arrived_home, 0) >= self.arrived_number

    @property
    def min_times(self) -> tuple[int, ...]:
        """By segment number the min times that anyone may hear: published, or told ahead of that."""
        return tuple(self._with_told(self.published))

    @property
    def min_time(self) -> int:
        """The min time of the pipeline as a whole that anyone may hear. It rests on this generation in every
        segment: one that had come further in the generation before counts with how far it is in this one."""
        return min(*self._with_told(self.published), *self._with_told(self.durable))

    def _with_told(self, min_times: list[int]) -> list[int]:
        told = self.told
        if not told:
            return min_times
        return [max(slot, told.get(segment, slot)) for segment, slot in enumerate(min_times)]

    @property
    def has_changed(self) -> bool:
        """Whether there is something to report of this shard's part."""
        return not self.reported or bool(self.shard.changes) or self.announced_due

    def begin_generation(self, restart: Restart, lost: tuple[DroppedCells, ...] = ()) -> None:
        """Drops what is open, keys, fronts and batches, and begins anew, never below what this process
        has published of the whole pipeline: so no front is granted less than anyone has heard of. Elsewhere it
        may begin below that: the slot is reported to the other shards. What was dropped is listed; lost: at other shards."""
        older, floor = self.shard, max(restart.from_slot, self.min_time)
        given_up = lost or (self.held.open if self.held is not None else ())
        self.restarts.append(Dropped(restart, floor, _sums(older) + given_up))
        del self.restarts[:-MAX_LISTED_RESTARTS]
        self.restart = restart
        self._begin(floor)
        self._find_graphs()
        self.unreported.update(enumerate(self.durable))
        self.shard.carry_over(older)
        self.shard.mark_all_changed()

    def hear_restarts(self, before: Iterable[Restart]) -> None:
        """Generations that others know, and that began before this one: those that are not known here are noted, too."""
        known = {each.restart.generation for each in self.restarts}
        more = [r for r in before if r.generation < self.generation and r.generation not in known]
        self.restarts += [Dropped(restart, restart.from_slot, ()) for restart in more]
        self.restarts.sort(key=lambda each: each.restart.generation)
        del self.restarts[:-MAX_LISTED_RESTARTS]

    def change(self, number: int, spec: PipelineSpec) -> bool:
        """Becomes what change `number` says, unless it was changed later already; returns whether it was not. What is
        over a lower limit stays: nothing more comes in until there is room. In a new segment everything is done below
        the slot below which it is everywhere else: nothing comes in there but from others, or by a front that every
        process pins."""
        if number <= self.changes:
            return False
        before, self.changed, self.changes, self.spec = self.spec, spec, number, spec
        activated = is_activated(before, spec)
        had_begun = self.shard.begun
        self.shard.change(spec, is_activated=activated)
        self._look_whether_it_begins(had_begun)
        if activated:
            self.graph_change.begin(number, before, spec)
            self._add_segments()
            self.activates = False
        self._find_graphs()
        self.change_unreported = self.announced_due = True
        self.unreported.update(enumerate(self.announced))
        return True

    def _add_segments(self) -> None:
        more = len(self.spec.segments) - len(self.published)
        durable, published = min(self.durable), min(self.published)
        self.durable += [durable] * more
        self.announced += [durable] * more
        self.published += [published] * more
        self.departed_floors += [min(self.departed_floors)] * more
        self.moved_ns += [max(self.moved_ns)] * more
        self.history += [History(published, self._history_width_ns) for _ in range(more)]
        self._find_unpublished()

    def _find_graphs(self) -> None:
        before = self.graph_change.before
        judged = self.spec
        if before is not None and not self.activates:
            judged = with_graph_of(self.spec, before)
        self.home.change(judged, self.spec)
        self.declared, self.graph = SegmentGraph(judged), united(self.spec, self.graph_change.gone)
        self.remaining = SegmentGraph(self.spec) if before is not None else self.graph
        removed = self.home.removed if before is None else frozenset[int]()
        self.combiner.go_by(self.graph, removed)

    @property
    def may_activate(self) -> bool:
        """Whether every shard is known to reckon with the last change, and what each had announced before that."""
        number = self.graph_change.number
        return all(view.changes >= number for view in self.combiner.views.values())

    @property
    def change_awaits(self) -> tuple[int, ...]:
        """The shards that the change under way waits for, by number: those that are not known to reckon with it, without
        which none can judge by it; then those that are not known to judge by it."""
        change, views = self.graph_change, self.combiner.views
        if not change.is_under_way:
            return ()
        away = sorted(views.keys() - change.activated)
        unheard = [shard for shard in away if views[shard].changes < change.number]
        return tuple(unheard or away)

    def activate(self) -> None:
        """This home judges by the last change from here on."""
        self.activates = True
        self._find_graphs()

    def hold(self, held: Held) -> None:
        """Shards are lost for good: it stands until it is restarted."""
        self.held = held

    def change_everywhere(self, members: Set[int]) -> None:
        """What it is becomes what it is at every home: nothing that was in flight before counts any more."""
        if self.graph_change.number:
            self.graph_change.activated = {*members}
        self._end_change()
        self.activates = True
        self._find_graphs()

    def settle_change(self, members: Set[int], applied: Mapping[int, int]) -> None:
        """Lets go of what a change has taken away, once every home is known to judge by it. applied: by home how much of
        its log is applied here."""
        if self.graph_change.is_over(members, applied, self._vectors.cut):
            self._end_change()
            self.graph_change.over_at = dict(applied)
            self._find_graphs()

    def _end_change(self) -> None:
        self.graph_change.end()
        self.shard.former = None

    def apply_tick(self, entry: KeyTick, home: int) -> set[int]:
        """Applies the next tick of a key, from its home's log; returns the segments in which names of units have arrived."""
        if not entry.tick.content.joins:
            return self.shard.apply_tick(entry, home)
        had_begun = self.shard.begun
        arrived = self.shard.apply_tick(entry, home, by_former=self._goes_by_former(home))
        self._look_whether_it_begins(had_begun)
        return arrived

    def _look_whether_it_begins(self, had_begun: bool) -> None:
        if self.shard.begun and not had_begun:
            self.begun_by = self.changes

    def _goes_by_former(self, home: int) -> bool:
        """Whether the log of a home, as far as it is applied here, goes by what was before the change that is under way."""
        return self.graph_change.is_under_way and home not in self.graph_change.activated

    def _find_unpublished(self) -> None:
        """A generation that begins above what was published has that to publish, too."""
        self.unpublished = {s for s, slot in enumerate(self.durable) if self.published[s] < slot}

    def derive(self) -> None:
        """Works out what follows from what is durable, in the generation that a snapshot is of."""
        if self.restarts:
            self.restart, self.floor = self.restarts[-1].restart, self.restarts[-1].floor
        else:
            self.durable = list(self.published)
        self.announced = list(self.durable)
        self.begun_by = self.changes if self.shard.begun else 0
        self._find_unpublished()
        for history, newest in zip(self.history, self.published, strict=True):
            history.newest = newest
        change = self.graph_change
        self.activates = change.before is None or self._own in change.activated
        self._find_graphs()
        for segment, names in self.shard.units.items():
            names.forget_below(self.durable[segment])

    def floors(self) -> list[int]:
        """By segment the largest min time that any process has announced, as far as this one has heard, also
        one that has left: nothing below is in flight anywhere, or can be."""
        heard = self.combiner.announced_anywhere
        return [*map(max, self.announced, self.departed_floors, heard)]

    def claims(self) -> dict[str, dict[str, FrontClaim]]:
        """By node its fronts, as this shard has applied them."""
        claims: dict[str, dict[str, FrontClaim]] = {}
        for (node_id, front), state in self.shard.fronts.items():
            promise = LOWEST_SLOT if state.promised is None else state.promised
            claim = FrontClaim(state.segment, state.incarnation, state.number, promise)
            claims.setdefault(node_id, {})[front] = claim
        return claims

    def new_pins(self) -> tuple[FrontPin, ...]:
        """Pins for the fronts that have joined and are not pinned, by what has been announced."""
        pins: list[FrontPin] = []
        if self.rests:
            return ()
        for name in self.shard.unpinned:
            state = self.shard.fronts[name]
            slot = self.announced[state.segment]
            pins.append(FrontPin(*name, slot, state.incarnation, state.number))
        return tuple(pins)

    @property
    def stands_by_what_was_said(self) -> bool:
        """Whether what can be announced also depends on what was announced before: at a vacant place, or where
        an open pipeline waits for the next front."""
        if self.shard.vacancies:
            return True
        allowed = enumerate(self.combiner.allowed_min_times({}))
        return self.spec.open and any(self._awaits_next_front(*each) for each in allowed)

    def new_announcements(self, is_open: bool) -> tuple[tuple[int, int], ...]:
        """(segment, min time) that the reports allow and that is beyond what was announced. is_open: whether it is, or will
        be when what is announced is durable."""
        if not self.shard.begun or self.held is not None or self.rests:
            return ()
        if any(view.changes < self.begun_by for view in self.combiner.views.values()):
            return ()  # where this shard is lost, the others know that it may have begun
        allowed = self.combiner.allowed_min_times(self.vacant())
        if is_open:
            allowed = self._held_open(allowed)
        return tuple(
            (segment, slot)
            for segment, slot in enumerate(allowed)
            if slot is not None
            and slot >= self.announced[segment] + (segment not in self.unpublished)
        )

    def would_complete(self, news: Sequence[tuple[int, int]]) -> bool:
        """Whether announcing so much more would declare the whole pipeline complete."""
        announced = dict(news)
        return bool(news) and all(
            announced.get(segment, slot) == FOREVER for segment, slot in enumerate(self.announced)
        )

    def vacant(self) -> dict[int, int]:
        """By segment with a vacant place, the slot at which it stands when no front is left in it: where
        those that left in order had promised; or where a front that joins will be pinned, at the process
        that has announced most. (A pipeline that is declared open is never complete, and keeps none.) That one may
        reckon no more with edges that a change has taken away, and have announced more behind them."""
        vacancies = self.shard.vacancies
        if not vacancies:
            return {}
        floors, left = self.floors(), vacancies.left
        return {
            segment: max(left.get(segment, LOWEST_SLOT), self.remaining.pin(floors, segment))
            for segment in vacancies.segments()
        }

    def _held_open(self, allowed: Sequence[int | None]) -> list[int | None]:
        """An open pipeline is never complete: a segment in which nothing is, and that nothing can reach,
        waits for the next front. It waits where the fronts that left in order had promised, there or in front of it. And where the
        next one will be pinned at least, at the process that has announced most: what is announced of the segments that it leads to
        already rules out everything below."""
        waiting = [s for s, slot in enumerate(allowed) if self._awaits_next_front(s, slot)]
        if not waiting:
            return [*allowed]
        lows = [LOWEST_SLOT if slot is None else slot for slot in allowed]
        for segment in waiting:
            lows[segment] = self.shard.vacancies.left.get(segment, FOREVER)
        promised = self.graph.min_times(lows)
        for segment in waiting:
            lows[segment] = LOWEST_SLOT if promised[segment] == FOREVER else promised[segment]
        stands = [
            # Another process may have announced a segment complete before it heard that the pipeline is open.
            max(low, own if floor == FOREVER else floor)
            for low, own, floor in zip(lows, self.announced, self.floors(), strict=True)
        ]
        held = [*allowed]
        for segment in waiting:
            held[segment] = self.remaining.pin(stands, segment)
        return held

    def _awaits_next_front(self, segment: int, slot: int | None) -> bool:
        """Whether a segment of an open pipeline, of which the reports allow this slot, waits for a front: none does that
        was removed."""
        return slot == FOREVER and segment not in self.combiner.removed

    def counts(self, node: HomeNode) -> bool:
        """Whether a node that is gone still counts: a place of it is vacant, and it would count its last batches once more
        if it came back forgotten; or what it holds may be open. That is over, unless it was late, when min time is beyond it:
        a cell that an operator names may stay, or have become more than the node's."""
        return self.shard.vacancies.knows(node.key.node_id) or any(
            hold.slot >= self.durable[hold.segment] for hold in node.held.values()
        )

    def new_sweeps(self) -> list[tuple[int, int]]:
        """(segment, slot) below which this shard has open cells though some process has announced
        that everything there is complete."""
        if self.rests:
            return []
        return [
            (segment, floor)
            for segment, floor in enumerate(self.floors())
            if floor > self.sweeping.get(segment, LOWEST_SLOT)
            and self.shard.cells.lowest(segment) < floor
        ]

    def new_grants(self) -> tuple[FrontPin, ...]:
        """Grants for the fronts of nodes at home here that wait for theirs, and that every shard has pinned
        by now. Not while a change is under way: a shard that has left may have announced more behind edges that are
        gone."""
        grants: list[FrontPin] = []
        if self.graph_change.is_under_way or self.rests:
            return ()
        for node_id, front in [*self.home.waiting]:
            node = self.home.nodes.get(node_id)
            claim = None if node is None else node.fronts.get(front)
            if claim is None:
                del self.home.waiting[node_id, front]
                continue
            joining = (node_id, front, claim.incarnation, claim.number)
            if joining in self.combiner.settled_fronts:
                del self.home.waiting[node_id, front]
                floor = self.graph.pin(self.floors(), claim.segment)
                slot = max(floor, self.combiner.largest_pin(joining))
                grants.append(FrontPin(node_id, front, slot, *joining[2:]))
        return tuple(grants)

    def take_grant(self, grant: FrontPin) -> HomeNode | None:
        """A grant is durable; returns the node of its front, if both are still here."""
        node = self.home.nodes.get(grant.node_id)
        name = (grant.node_id, grant.front)
        if node is None or name not in self.shard.fronts or self.shard.front_id(name) != grant.id:
            return None
        node.grants[grant.front] = grant
        return node

    def grant(self, node: HomeNode, front: str) -> Grant:
        """What a durable front of a node at home here may do."""
        state, given = self.shard.fronts[node.key.node_id, front], node.grants.get(front)
        slot = LOWEST_SLOT if given is None else given.slot
        promised = LOWEST_SLOT if state.promised is None else state.promised
        joining = state.incarnation, state.number
        return Grant(front, state.segment, slot, promised, given is not None, *joining)
