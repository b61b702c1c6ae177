"""The cut rule: combining what the shards report into min times that are true (rules 5, 6 and 7).

A shard's vector says, by home, how much of that home's log it has applied: of every node a prefix of
its ticks, since a node's ticks stand in one home's log, in order. M, the element-wise minimum of the
shards' vectors, is therefore a consistent cut. What a shard reports is of a later moment than M, so
its lowest open slot says nothing of slots that a tick outside M has touched; those are held by
remembering, for each run of ticks, the lowest slots that it touched, until the run is inside M. Slots
below both are zero at M, so nothing with such a slot is in flight there.

A report that says everything leaves out the runs that its sender has let go of, by what the sender
had heard from others. Whoever takes it must have heard as much (its own M must have come as far)
before going by it, or a tick could be inside one shard's state, outside another's, and held by nobody.

Heaps with lazy deletion keep the cost of a report by what it says, not by how many nodes there are.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Mapping, Set
from dataclasses import dataclass, field

from tracker.core.cut.graph import SegmentGraph
from tracker.core.cut.vectors import Vectors
from tracker.core.log import FrontReport, PipelineReport, SegmentLow, TouchedRun
from tracker.core.model import FrontId
from tracker.core.model.slots import FOREVER, LOWEST_SLOT

_SLACK_IN_HEAPS = 1024
"""Entries a heap may hold beyond what is needed before it is cleared of those let go of."""


@dataclass(slots=True)
class ShardView:
    """What is known of one pipeline at one shard: its reports put together."""

    heard: bool = False
    lows: dict[int, SegmentLow] = field(default_factory=dict)
    fronts: dict[FrontId, FrontReport] = field(default_factory=dict)
    announced: dict[int, int] = field(default_factory=dict)
    changes: int = 0
    """How often the pipeline was changed, as far as the shard has applied that."""

    def says_complete(self, segments: int) -> bool:
        """Whether the shard is known to have announced that all so many segments are complete."""
        return all(self.announced.get(segment) == FOREVER for segment in range(segments))


class Combiner:
    """Combines the reports of all shards on one pipeline, at the process of shard `own`."""

    def __init__(self, graph: SegmentGraph, vectors: Vectors, own: int) -> None:
        self.graph = graph
        self._vectors = vectors
        self._own = own
        self.views = {shard: ShardView() for shard in vectors.shards}
        self.announced_anywhere = [LOWEST_SLOT] * graph.size
        """By segment the largest min time that any process has reported as announced. It never falls."""
        self.settled_fronts: dict[FrontId, tuple[int, int]] = {}
        """Fronts that every shard has: the least promise, and the segment fed."""
        self.unsettled_fronts: dict[FrontId, None] = {}
        """Fronts that some shard has and another has not: they hold min time where it is."""
        self.removed: Set[int] = frozenset()
        """Segments in which no front can label any more, as every home judges: a front that has joined one just as it was
        removed holds nothing."""
        self._own_runs: deque[TouchedRun] = deque()
        """The own shard's runs outside the stable cut: a whole report repeats them."""
        self._touched: list[list[tuple[int, int, int]]] = [[] for _ in range(graph.size)]
        """By segment a heap of (slot, home, last entry of the run)."""
        self._compact_above = [_SLACK_IN_HEAPS] * graph.size
        self._promises: list[list[tuple[int, FrontId]]] = [[] for _ in range(graph.size)]

    def go_by(self, graph: SegmentGraph, removed: Set[int]) -> None:
        """Min times follow from another graph from here on, which may have more segments, and no front feeds `removed`."""
        self.graph, self.removed = graph, removed
        for _ in range(graph.size - len(self._touched)):
            self.announced_anywhere.append(LOWEST_SLOT)
            self._touched.append([])
            self._compact_above.append(_SLACK_IN_HEAPS)
            self._promises.append([])

    # --- taking reports ---------------------------------------------------------------------------

    def add_shard(self, shard: int) -> None:
        """A shard counts from here on: nothing is announced until it is heard."""
        if shard not in self.views:
            self.views[shard] = ShardView()
            for front in [*self.settled_fronts]:
                self._settle_front(front)

    def remove_shard(self, shard: int) -> None:
        """A shard has left with nothing open."""
        view = self.views.pop(shard, None)
        if view is not None:
            for front in [*view.fronts, *self.unsettled_fronts]:
                self._settle_front(front)

    def forget(self, shard: int) -> None:
        """Drops all that was known of a shard; nothing is announced until it is heard again."""
        view = self.views[shard]
        self.views[shard] = ShardView()
        for front in view.fronts:
            self._settle_front(front)

    def take(self, shard: int, report: PipelineReport, whole: bool) -> None:
        """Takes a shard's report: `whole` ones say all there is, others what has changed."""
        if whole:
            self.forget(shard)
        view = self.views[shard]
        view.heard, view.changes = True, report.changes
        for low in report.lows:
            view.lows[low.segment] = low
        for left in report.left:  # first: an older process does not say which joining has left
            for gone in [left] if left[3] else [f for f in view.fronts if f[:2] == left[:2]]:
                view.fronts.pop(gone, None)
                self._settle_front(gone)
        for front in report.fronts:
            view.fronts[front.id] = front
            self._settle_front(front.id)
        for run in report.runs:
            self._hold(shard, run)
        for segment, slot in report.announced:
            # Along with a change more is reported than is durable yet, and then what is.
            view.announced[segment] = max(slot, view.announced.get(segment, LOWEST_SLOT))
            self.announced_anywhere[segment] = max(slot, self.announced_anywhere[segment])

    def _hold(self, shard: int, run: TouchedRun) -> None:
        if self._settled(run.home, run.last):
            return
        if shard == self._own:
            self._own_runs.append(run)
        for segment, slot in run.touched:
            heapq.heappush(self._touched[segment], (slot, run.home, run.last))

    def _settled(self, home: int, last: int) -> bool:
        return last <= self._vectors.cut[home]

    def _settle_front(self, front: FrontId) -> None:
        reports = [view.fronts[front] for view in self.views.values() if front in view.fronts]
        if len(reports) == len(self.views):
            promise, segment = min(report.heartbeat for report in reports), reports[0].segment
            self.unsettled_fronts.pop(front, None)
            if self.settled_fronts.get(front) != (promise, segment):
                self.settled_fronts[front] = (promise, segment)
                self._push_promise(segment, promise, front)
            return
        self.settled_fronts.pop(front, None)
        if reports:
            self.unsettled_fronts[front] = None
        else:
            self.unsettled_fronts.pop(front, None)

    def _push_promise(self, segment: int, promise: int, front: FrontId) -> None:
        promises = self._promises[segment]
        heapq.heappush(promises, (promise, front))
        if len(promises) > 4 * len(self.settled_fronts) + _SLACK_IN_HEAPS:
            promises[:] = sorted(
                (slot, name) for name, (slot, fed) in self.settled_fronts.items() if fed == segment
            )

    # --- the rule ---------------------------------------------------------------------------------

    def lowest_touched(self, segment: int) -> tuple[int, int, int] | None:
        """(slot, home, last entry) of the run outside the stable cut that touched the lowest slot."""
        touched = self._touched[segment]
        while touched and self._settled(touched[0][1], touched[0][2]):
            heapq.heappop(touched)
        if len(touched) > self._compact_above[segment]:
            touched[:] = sorted(t for t in touched if not self._settled(t[1], t[2]))
            self._compact_above[segment] = 2 * len(touched) + _SLACK_IN_HEAPS
        return touched[0] if touched else None

    def low(self, segment: int) -> int:
        """The smaller of the lowest open slot at any shard and the lowest slot touched outside the cut."""
        touched = self.lowest_touched(segment)
        low = touched[0] if touched is not None else FOREVER
        for view in self.views.values():
            known = view.lows.get(segment)
            if known is not None and known.slot < low:
                low = known.slot
        return low

    def promise(self, segment: int) -> int:
        """The least promise of the fronts that feed a segment and that every shard has."""
        if segment in self.removed:
            return FOREVER
        promises = self._promises[segment]
        while promises and self.settled_fronts.get(promises[0][1]) != (promises[0][0], segment):
            heapq.heappop(promises)
        return promises[0][0] if promises else FOREVER

    def own(self, segment: int, vacant: Mapping[int, int]) -> int:
        """What holds a segment by itself: what is open there, and what its fronts promise. Without any,
        the places that evicted fronts have left `vacant` hold it, by segment at a slot."""
        promise = self.promise(segment)
        if promise == FOREVER:
            promise = vacant.get(segment, FOREVER)
        return min(self.low(segment), promise)

    def allowed_min_times(self, vacant: Mapping[int, int]) -> list[int | None]:
        """By segment the min time that the reports allow; None where nothing may be announced now."""
        if not all(view.heard for view in self.views.values()):
            return [None] * self.graph.size
        own = [self.own(u, vacant) for u in range(self.graph.size)]
        min_times: list[int | None] = [*self.graph.min_times(own)]
        for front in self.unsettled_fronts:
            for segment in self.fed_by(front):
                for held in self.graph.reached_from(segment):
                    min_times[held] = None
        return min_times

    def fed_by(self, front: FrontId) -> Set[int]:
        """The segment in which a front that any shard has may label; none where that was removed."""
        fed = {view.fronts[front].segment for view in self.views.values() if front in view.fronts}
        return fed - self.removed

    # --- reads ------------------------------------------------------------------------------------

    def largest_pin(self, front: FrontId) -> int:
        """Of a front that every shard has."""
        return max(view.fronts[front].pin for view in self.views.values())

    def known_fronts(self) -> list[FrontId]:
        """The fronts that any shard has; of those of one name, the one that joined last."""
        known = sorted({front for view in self.views.values() for front in view.fronts})
        return [*{front[:2]: front for front in known}.values()]

    def least_promise(self, front: FrontId) -> int:
        """The least promise of a front that any shard has."""
        views = self.views.values()
        return min(view.fronts[front].heartbeat for view in views if front in view.fronts)

    def open_slots(self, shard: int) -> int:
        """Cells that a shard has reported open, over all segments."""
        return sum(low.open_slots for low in self.views[shard].lows.values())

    def own_runs(self) -> tuple[TouchedRun, ...]:
        """The own shard's reported runs of which not every shard is known to have applied all."""
        self._own_runs = deque(r for r in self._own_runs if not self._settled(r.home, r.last))
        return tuple(self._own_runs)

    def trim(self) -> bool:
        """Lets go of the own shard's runs inside the stable cut; returns whether any shard's run may be
        left outside."""
        runs = self._own_runs
        if len(runs) > _SLACK_IN_HEAPS:
            self.own_runs()
        while runs and self._settled(runs[0].home, runs[0].last):
            runs.popleft()
        return bool(runs) or any(self._touched)

    def whole_report(self, pipeline: str) -> PipelineReport:
        """The own shard's reports so far, put together into one that says everything."""
        view = self.views[self._own]
        return PipelineReport(
            pipeline=pipeline,
            lows=tuple(view.lows.values()),
            fronts=tuple(view.fronts.values()),
            runs=self.own_runs(),
            announced=tuple(view.announced.items()),
            changes=view.changes,
        )

    def validate(self) -> None:
        """Raises AssertionError where an invariant does not hold."""
        for front in self.settled_fronts:
            assert all(front in view.fronts for view in self.views.values())
        assert not self.settled_fronts.keys() & self.unsettled_fronts.keys()
        for run in self._own_runs:
            if not self._settled(run.home, run.last):
                for segment, slot in run.touched:
                    assert (slot, run.home, run.last) in self._touched[segment], "a run is not held"
