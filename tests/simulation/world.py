"""The truth of one simulated pipeline: items that exist, and labels that fronts may still give.

The world knows nothing of ticks. A step of a node changes it at the moment at which the step can no
longer be undone (its output is published), which may be long before its tick reaches the tracker.

Where a pipeline evicts silent fronts, the promise does not cover what a front has published and the
tracker has not accepted when it evicts the front: such items are *written off*. Some readers take a
front's batch only once it is known to the tracker, as those do who ask it for a unit's slot; others run
*ahead* of it, also when its front was evicted, and what they take has no children. A front that has come
back says what becomes of such a batch: what may still be labelled is committed again; what lies below
its grant is *late*, and is consumed all the same. What was consumed ahead and is never created holds min
time, unless it is late, until an operator gives it up.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tests.core.graphs import NumberedEdge, numbered_edges, spread
from tracker.core.model import PipelineSpec, SilentFront
from tracker.core.model.slots import FOREVER, LOWEST_SLOT
from tracker.core.pipeline.change import changes_graph

FrontId = tuple[str, str]
HoldId = tuple[str, str]
"""(node id, name of the hold)."""
BatchId = tuple[str, int]
"""(node id, batch number)."""


@dataclass(slots=True, eq=False)
class Item:
    """An item in flight. `hops`: how many generations of children it may still have; `unit`: its
    name, if it is known to the tracker by name; `known`: whether the tracker has accepted it."""

    segment: int
    slot: int
    value: int
    hops: int
    unit: str | None = None
    claimed: bool = False
    known: bool = True
    late: bool = False


@dataclass(slots=True, eq=False)
class WorldFront:
    """A front as it really is. `may_label_from`: the lowest label that it may still give; None
    while it may give none (not granted yet, or down: then the tracker has to tell it again)."""

    segment: int
    may_label_from: int | None = None
    last_label: int | None = None
    left: bool = False
    evicted: bool = False
    vacant: bool = False
    """Whether it was evicted, and neither has come back nor was retired: eviction is not leaving."""
    granted: bool = False
    """Whether the tracker has let it label anything."""
    shut_out: bool = False
    """Whether a process had called its segment complete before it heard of it: that process pins it at the end
    of time, and so whoever comes back in its place."""


@dataclass(slots=True)
class World:
    """One generation of one pipeline, as it truly is. `version` grows with each change."""

    spec: PipelineSpec
    generation: int = 0
    first_slot: int = field(init=False)
    """Where it is held until all declared fronts have joined."""
    since: int = 0
    """In which generation it was registered: those before it are of one that was deleted."""
    exact_late: bool = True
    """Whether the late ledger must hold all that was consumed late: not over a restart, which may come
    between a home's word and its being counted."""
    items: dict[Item, None] = field(default_factory=dict)
    late: dict[Item, None] = field(default_factory=dict)
    late_consumed: int = 0
    holds: dict[HoldId, tuple[int, int]] = field(default_factory=dict)
    """What nodes hold without an item in flight: (segment, slot)."""
    fronts: dict[FrontId, WorldFront] = field(default_factory=dict)
    joined: set[str] = field(default_factory=set)
    begun: bool = False
    """Whether every declared front has said that it joins."""
    former: PipelineSpec | None = None
    """What it was before it came to wait for other fronts, while homes may go by that: who joins may count for either."""
    complete: set[int] = field(default_factory=set)
    """The segments that a process has called complete: whoever joins them from then on is shut out."""
    opening: bool = False
    """Whether it is becoming open, and some process may not know."""
    ever_complete: set[int] = field(default_factory=set)
    """The segments that a process has called complete in any generation."""
    complete_before: frozenset[int] = frozenset()
    """Those before it became open."""
    edges: list[NumberedEdge] = field(init=False)
    ways_out: list[list[tuple[int, int, int]]] = field(init=False)
    """By segment (to which one, by which delay, no lower than which slot)."""
    floors: dict[NumberedEdge, int] = field(default_factory=dict)
    """Of edges that were added, the slot below which nobody creates along them."""
    too_low: tuple[tuple[int, int, int], ...] = ()
    """(from, to, slot): new ways, and where it was announced without them that nothing can come any more, as every home
    knows."""
    gone: tuple[tuple[int, int], ...] = ()
    """(from, to): segments between which no way leads any more since the pipeline was changed, as is known everywhere."""
    waiting: set[int] = field(default_factory=set)
    """Segments that were added, and wait for a front that is to feed them."""
    graph_before: tuple[int, PipelineSpec, set[int]] | None = None
    """The number of the last change of segments or edges, and what it was before that, with the segments that waited then: a
    front that joins at a home that has not activated it feeds by that."""
    evicts: bool = field(init=False)
    """Whether fronts may be evicted, now or when it is changed."""
    runs_ahead: bool = False
    """Where fronts are evicted: whether readers take a front's batch before the tracker has accepted it."""
    ahead: dict[Item, None] = field(default_factory=dict)
    """What readers have consumed, and the tracker has not accepted."""
    version: int = 0
    consumed_at: set[tuple[int, int]] = field(default_factory=set)
    """The places, by segment and slot, at which something was consumed, be it a hold."""
    _unknown: dict[BatchId, list[Item]] = field(default_factory=dict)
    """Where fronts are evicted: published batches that the tracker has not accepted."""
    _written_off: dict[BatchId, list[Item]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.first_slot = self.spec.start_slot
        self.evicts = self.spec.silent_front is SilentFront.EVICT
        self.go_by(numbered_edges(self.spec))
        self._look_whether_begun()

    # --- changes ----------------------------------------------------------------------------------

    def go_by(self, edges: list[NumberedEdge]) -> None:
        """Items go along these from now on."""
        self.edges = edges
        self.ways_out = [[] for _ in self.spec.segments]
        for source, target, delay in edges:
            floor = self.floors.get((source, target, delay), LOWEST_SLOT)
            self.ways_out[source].append((target, delay, floor))
        self.version += 1

    def stop(self, edges: frozenset[NumberedEdge]) -> None:
        """Nobody creates along these from now on."""
        self.go_by([edge for edge in self.edges if edge not in edges])

    def use_again(self) -> None:
        """They are left as they were."""
        self.go_by(numbered_edges(self.spec))

    def change(self, spec: PipelineSpec, number: int) -> None:
        """It is durable that the pipeline is another one. Nobody creates along what is new yet."""
        if changes_graph(self.spec, spec):
            self.graph_before = number, self.spec, {*self.waiting}
        new = range(len(self.spec.segments), len(spec.segments))
        self.opening = spec.open and (self.opening or not self.spec.open)
        if (spec.fronts, spec.front_count) != (self.spec.fronts, self.spec.front_count):
            self.former = self.spec
        self.spec = spec
        self._look_whether_begun()
        self.go_by(self.edges)
        there = {s for s in {*self.waiting, *new} if spec.segments[s] not in spec.removed}
        self.waiting = self._unfed(self.spec, there)

    def joins_by(self, change: int, segments: Iterable[int]) -> None:
        """It is durable that fronts join, at a home that has activated this change last."""
        left = self.waiting.difference(segments)
        if self.graph_before is not None and change < self.graph_before[0]:
            number, spec, before = self.graph_before
            before = self._unfed(spec, before.difference(segments))
            self.graph_before = number, spec, before
            left = {s for s in self.waiting if s in before or s >= len(spec.segments)}
        self.waiting = self._unfed(self.spec, left)
        self.version += 1

    def _unfed(self, spec: PipelineSpec, waiting: set[int]) -> set[int]:
        """Of segments that wait for a first front, those that nothing leads to but what waits itself."""
        edges, size = numbered_edges(spec), len(spec.segments)
        nothing = {*waiting, *map(spec.segments.index, spec.removed)}
        lows = [FOREVER if segment in nothing else LOWEST_SLOT for segment in range(size)]
        return {s for s in waiting if spread(lows, edges)[s] == FOREVER}

    def changed_everywhere(self) -> None:
        """Every process knows what it has become."""
        if self.opening:
            self.opening, self.complete_before = False, frozenset(self.ever_complete)

    def may_be_called_complete(self, segments: Iterable[int]) -> bool:
        """Whether a process may say so of these: of an open pipeline's, if it said so before it became open, or if they lead
        to such a one, so that no front could label anything there, as none can in one that was removed."""
        if not self.spec.open or self.opening:
            return True
        before = self.complete_before
        return all(
            s in before
            or self.spec.segments[s] in self.spec.removed
            or any(self.leads(s, each) for each in before)
            for s in segments
        )

    def use_what_is_new(
        self, before: list[NumberedEdge], decided: Sequence[int], announced: Sequence[int]
    ) -> None:
        """Every home judges by the change. Along an edge that is new nobody creates below what anyone has announced by
        now. before: the edges that there were before it; decided: what was announced when it was decided."""
        edges = numbered_edges(self.spec)
        new = [
            (source, target)
            for source, target, delay in edges
            if (source, target, delay) not in before
        ]
        self.too_low = tuple(
            (source, target, decided[target] - 1)
            for source, target in new
            if target < len(decided) and self.spec.start_slot < decided[target] < FOREVER
        )
        self.floors |= {edge: announced[edge[1]] for edge in edges if edge not in before}
        self.go_by(edges)
        pairs = {(source, target) for source, target, _ in before}
        self.gone = tuple(sorted(pair for pair in pairs if not self.leads(*pair)))

    def leads(self, source: int, target: int) -> bool:
        """Whether items of one segment can get to another."""
        lows = [FOREVER] * len(self.spec.segments)
        lows[source] = 0
        return spread(lows, self.edges)[target] < FOREVER

    def next_generation(self, generation: int, first_slot: int) -> World:
        """What there is after a restart: nothing."""
        assert generation > self.generation
        world = self.successor(self.spec, generation)
        world.first_slot = first_slot
        world.opening, world.complete_before = self.opening, self.complete_before
        world.ever_complete = self.ever_complete
        world.gone, world.floors, world.since = self.gone, self.floors, self.since
        world.go_by(self.edges)
        return world

    def successor(self, spec: PipelineSpec, generation: int) -> World:
        """What there is of a pipeline that is registered anew after it was deleted: nothing."""
        world = World(spec, generation, exact_late=False, runs_ahead=self.runs_ahead)
        world.evicts = self.evicts  # whatever it has become
        return world

    def all_await_the_same(self) -> None:
        """Every home goes by what is declared."""
        self.former = None

    def _look_whether_begun(self) -> None:
        for spec in filter(None, (self.spec, self.former)):
            enough = len(self.joined) >= spec.front_count
            self.begun |= self.joined.issuperset(spec.fronts) if spec.fronts else enough

    # --- items ------------------------------------------------------------------------------------

    def step(self, consumed: list[Item], created: list[Item]) -> None:
        """One whole step of a node: it can no longer be undone."""
        for item in consumed:
            self.consumed_at.add((item.segment, item.slot))
            if item.late:
                del self.late[item]
                self.late_consumed += 1
                continue
            self.items.pop(item, None)
            if not item.known:
                self.ahead[item] = None
        for item in created:
            self.items[item] = None
        self.version += 1

    def hold(self, hold: HoldId, at: tuple[int, int] | None) -> None:
        """A node has written down that it holds time there, or (None) nowhere any more. What it stood by before is consumed
        by the same step (rule 11)."""
        before = self.holds.pop(hold, at)
        if before is not None and before != at:
            self.consumed_at.add(before)
        if at is not None:
            self.holds[hold] = at
        self.version += 1

    def takeable(self, reads: set[int], *, late: bool = True) -> list[Item]:
        """What a reader of these segments may take."""
        there = [*self.items, *self._published_only()]
        ready = [
            i
            for i in there
            if i.segment in reads and (i.known or self.runs_ahead) and not i.claimed
        ]
        if late and self.late:
            ready += [i for i in self.late if i.segment in reads and not i.claimed]
        return ready

    def front_publishes(self, front: FrontId, number: int, items: list[Item]) -> None:
        """A front's batch can be seen from now on."""
        if not self.evicts:
            self.step([], items)
            return
        for item in items:
            item.known = False
        if self.fronts[front].evicted:
            self._written_off[front[0], number] = items  # it goes on though it was evicted
        else:
            self.step([], items)
            self._unknown[front[0], number] = items

    def batch_known(self, node_id: str, number: int) -> bool:
        """The tracker has accepted a batch; returns whether that matters to readers."""
        items = self._unknown.pop((node_id, number), [])
        for item in items:
            item.known = True
            self.ahead.pop(item, None)
        return bool(items)

    def has(self, place: tuple[int, int]) -> bool:
        """Whether anything is in flight in a segment at a slot."""
        return any((item.segment, item.slot) == place for item in self.items)

    def give_up(self, place: tuple[int, int]) -> None:
        """What is in flight in a segment at a slot is lost, and an operator says so: nothing waits for it
        any more."""
        for item in [item for item in self.items if (item.segment, item.slot) == place]:
            del self.items[item]
        self.version += 1

    # --- fronts -----------------------------------------------------------------------------------

    def labelling(self) -> set[FrontId]:
        """The fronts that every process knows, and that have neither left nor were evicted."""
        known = self.fronts.items()
        return {front for front, f in known if f.granted and not (f.left or f.evicted)}

    def front_joins(self, front: FrontId, segment: int) -> None:
        """A front sends word that it will feed a segment."""
        known = self.fronts.get(front)
        if known is None or known.left or known.evicted:
            last_label = known.last_label if known else None
            shut_out = segment in self.complete
            self.fronts[front] = WorldFront(segment, last_label=last_label, shut_out=shut_out)
        self.joins(front[1])
        self.version += 1

    def joins(self, name: str) -> None:
        """A front of this name counts for those that are declared."""
        self.joined.add(name)
        self._look_whether_begun()

    def front_granted(self, front: FrontId, slot: int) -> None:
        """The tracker has let a front label from a slot on. What it does later, it does knowingly."""
        known = self.fronts[front]
        if known.may_label_from is None and not known.left and not known.evicted:
            known.may_label_from = max(slot, slot if known.last_label is None else known.last_label)
            known.granted = known.granted or slot < FOREVER
            self.version += 1

    def front_binds_itself(self, front: FrontId, slot: int, *, label: bool) -> None:
        """A front labels with a slot, or resolves to label nothing below it."""
        known = self.fronts[front]
        if label:
            known.last_label = slot
        if known.evicted:
            return  # it does not know yet, and nobody goes by what it does
        assert known.may_label_from is not None
        assert slot >= known.may_label_from, "a front broke its own promise: fix the simulator"
        known.may_label_from = slot
        self.version += 1

    def front_forgets(self, front: FrontId) -> None:
        """A front's process dies: what it resolved and did not write down is gone."""
        if front in self.fronts:
            self.fronts[front].may_label_from = None
            self.version += 1

    def front_leaves(self, front: FrontId) -> None:
        """A front has written down that it will label nothing any more."""
        known = self.fronts[front]
        known.left, known.may_label_from = True, None
        self.version += 1

    def front_evicted(self, node_id: str, *, keeps_places: bool) -> None:
        """It is durable that a node's fronts were evicted, or that an operator retired it. keeps_places: they may come back,
        in a pipeline that its home does not know to be open."""
        for front, known in self.fronts.items():
            if front[0] == node_id:
                known.evicted, known.may_label_from = True, None
                known.vacant = keeps_places
        for batch in [b for b in self._unknown if b[0] == node_id]:
            items = self._written_off[batch] = self._unknown.pop(batch)
            for item in items:
                self.items.pop(item, None)
        self.version += 1

    def node_retired(self, node_id: str) -> None:
        """It is durable that a node is gone for good, which may have been evicted before."""
        for front, known in self.fronts.items():
            if front[0] == node_id:
                known.vacant = False
        self.version += 1

    def called_complete(self, segments: set[int], known: set[FrontId]) -> None:
        """It is durable that a process calls segments complete, which knew of the fronts `known` and of their
        places. Nobody is shut out who was granted anything: every process had to know of that one."""
        for front, state in self.fronts.items():
            if state.segment in segments and front not in known and not state.granted:
                state.shut_out = True
        self.complete |= segments
        self.ever_complete |= segments
        self.version += 1

    def vacant_segments(self) -> set[int]:
        """The segments that are not done, since a front of theirs was evicted that could label there."""
        fronts = self.fronts.values()
        vacant = {front.segment for front in fronts if front.vacant and not front.shut_out}
        return vacant | (self.waiting - self.complete)

    def batch_comes_back(self, front: FrontId, number: int) -> int:
        """A front that was evicted has joined again and will commit what is left of a batch of before.
        Returns how much of that was consumed, and has held min time meanwhile."""
        if self.fronts[front].evicted:  # once more, and it does not know yet
            return 0
        items = self._written_off.pop((front[0], number), [])
        self._unknown[front[0], number] = items
        there = [item for item in items if item not in self.ahead]
        self.step([], there)
        return len(items) - len(there)

    def batch_let_go(self, node_id: str, number: int, below: int, *, whole: bool) -> int:
        """A front gives up a batch of before its eviction, the `whole` or what lies below a slot, which is
        late. Returns how many items that are."""
        batch = (node_id, number)
        items = self._written_off.pop(batch, [])
        late = [item for item in items if item.slot < below]
        if not whole:
            self._written_off[batch] = [item for item in items if item.slot >= below]
        for item in late:
            if item in self.ahead:
                del self.ahead[item]
                self.late_consumed += 1
                continue
            item.late, item.hops = True, 0
            self.late[item] = None
        return len(late)

    @property
    def at_rest(self) -> bool:
        """Whether nothing is left to take, and the tracker has accepted what it will accept."""
        ahead = any(item in self.ahead for items in self._unknown.values() for item in items)
        return not (self.items or self.holds or ahead or self._published_only())

    def _published_only(self) -> list[Item]:
        """What readers that run ahead may take of batches of evicted fronts. (Units they ask for.)"""
        if not self.runs_ahead:
            return []
        written_off = [item for items in self._written_off.values() for item in items]
        return [item for item in written_off if item.unit is None and item not in self.ahead]

    def never_created(self, gone: set[str]) -> set[tuple[int, int]]:
        """The places, by segment and slot, of what was consumed, and nobody will create any more, since the
        nodes that had published it are gone."""
        coming = {
            item
            for batches in (self._unknown, self._written_off)
            for (node_id, _), items in batches.items()
            for item in items
            if batches is self._unknown or node_id not in gone
        }
        return {(item.segment, item.slot) for item in self.ahead if item not in coming}
