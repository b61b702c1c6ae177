"""One pipeline at one process: its shard, its home, its combiner, and what has been announced."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tracker.core.cut.combiner import Combiner
from tracker.core.cut.graph import SegmentGraph
from tracker.core.cut.history import COARSE_STEP_NS, HISTORIES, History
from tracker.core.cut.vectors import Vectors
from tracker.core.home.home import FrontClaim, HomeNode, HomePipeline
from tracker.core.log import Grant, Restart
from tracker.core.model import (
    Dropped,
    DroppedCells,
    FrontId,
    FrontPin,
    Limits,
    PipelineSpec,
    TimeKind,
)
from tracker.core.model import durable as d
from tracker.core.model.slots import FOREVER, LOWEST_SLOT
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
    limits: Limits | None = d.survives(default=None)
    """Those that it was given last; None where they were never changed."""
    limits_number: int = d.survives(default=0)
    """How often its limits were changed."""
    spec: PipelineSpec = d.follows("as registered, under its limits")
    graph: SegmentGraph = d.follows("as registered")
    _vectors: Vectors = d.forgotten(d.HEARD_AGAIN)
    _own: int = d.follows("which process it is")
    restarts: list[Dropped] = d.survives(d.SEQUENCE)
    """How this generation and those before it began, oldest first, at most MAX_LISTED_RESTARTS."""
    restart: Restart | None = d.follows("the last of `restarts`", default=None)
    """How this generation began; None in the first."""
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
        self.limits, self.limits_number = None, 0
        self.graph = SegmentGraph(spec)
        self._vectors, self._own = vectors, own
        self.restarts, self.restart = [], None
        self.published = [spec.start_slot] * len(spec.segments)
        width_ns = COARSE_STEP_NS if spec.time is TimeKind.NUMBER else spec.slack_ns
        self.history = [History(spec.start_slot, width_ns) for _ in spec.segments]
        self._begin(spec.start_slot)

    def _begin(self, floor: int) -> None:
        """A generation begins: everything is done below `floor`, and nothing is there yet."""
        spec = self.spec
        self.floor = floor
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

    def begin_generation(self, restart: Restart) -> None:
        """Drops what is open, keys, fronts and batches, and begins anew, never below what this process
        has published of the whole pipeline: so no front is granted less than anyone has heard of. Elsewhere it
        may begin below that: the slot is reported to the other shards. What was dropped is listed."""
        older, floor = self.shard, max(restart.from_slot, self.min_time)
        self.restarts.append(Dropped(restart, floor, _sums(older)))
        del self.restarts[:-MAX_LISTED_RESTARTS]
        self.restart = restart
        self._begin(floor)
        self.unreported.update(enumerate(self.durable))
        self.shard.carry_over(older)
        self.shard.mark_all_changed()

    def change_limits(self, number: int, limits: Limits) -> None:
        """Goes by other limits, by change `number`, unless it goes by a newer one already. What is over a
        lower limit stays: nothing more comes in until there is room."""
        if number > self.limits_number:
            self.limits, self.limits_number = limits, number
            self._go_by_limits(limits)

    def _go_by_limits(self, limits: Limits) -> None:
        self.spec = self.shard.spec = self.home.spec = self.registered.with_limits(limits)

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
        self._find_unpublished()
        for history, newest in zip(self.history, self.published, strict=True):
            history.newest = newest
        if self.limits is not None:
            self._go_by_limits(self.limits)

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
        pins = []
        for name in self.shard.unpinned:
            state = self.shard.fronts[name]
            slot = self.graph.pin(self.announced, state.segment)
            pins.append(FrontPin(*name, slot, state.incarnation, state.number))
        return tuple(pins)

    @property
    def stands_by_what_was_said(self) -> bool:
        """Whether what can be announced also depends on what was announced before: at a vacant place, or where
        an open pipeline waits for the next front."""
        if self.shard.vacancies:
            return True
        return self.spec.open and FOREVER in self.combiner.allowed_min_times({})

    def new_announcements(self) -> tuple[tuple[int, int], ...]:
        """(segment, min time) that the reports allow and that is beyond what was announced."""
        if not self.shard.begun:
            return ()
        allowed = self.combiner.allowed_min_times(self.vacant())
        if self.spec.open:
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
        that has announced most. (A pipeline that is declared open is never complete, and keeps none.)"""
        vacancies = self.shard.vacancies
        if not vacancies:
            return {}
        floors, left = self.floors(), vacancies.left
        return {
            segment: max(left.get(segment, LOWEST_SLOT), self.graph.pin(floors, segment))
            for segment in vacancies.segments()
        }

    def _held_open(self, allowed: Sequence[int | None]) -> list[int | None]:
        """An open pipeline is never complete: a segment in which nothing is, and that nothing can reach,
        waits for the next front. It waits where that one will be pinned at least: what is announced of the
        segments that it leads to already rules out everything below."""
        stands = [
            before if slot is None or slot == FOREVER else max(before, slot)
            for before, slot in zip(self.announced, allowed, strict=True)
        ]
        return [
            self.graph.pin(stands, segment) if slot == FOREVER else slot
            for segment, slot in enumerate(allowed)
        ]

    def new_sweeps(self) -> list[tuple[int, int]]:
        """(segment, slot) below which this shard has open cells though some process has announced
        that everything there is complete."""
        return [
            (segment, floor)
            for segment, floor in enumerate(self.floors())
            if floor > self.sweeping.get(segment, LOWEST_SLOT)
            and self.shard.cells.lowest(segment) < floor
        ]

    def new_grants(self) -> tuple[FrontPin, ...]:
        """Grants for the fronts of nodes at home here that wait for theirs, and that every shard has pinned
        by now."""
        grants = []
        for node_id, front in [*self.home.waiting]:
            node = self.home.nodes.get(node_id)
            claim = None if node is None else node.fronts.get(front)
            if claim is None:
                del self.home.waiting[node_id, front]
                continue
            joining = (node_id, front, claim.incarnation, claim.number)
            if joining in self.combiner.settled_fronts:
                del self.home.waiting[node_id, front]
                floor = self.graph.pin(self.departed_floors, claim.segment)
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
        return Grant(front, state.segment, slot, promised, given is not None)
