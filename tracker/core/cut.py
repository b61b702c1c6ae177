"""The cut rule: combining what the shards report into min times that are true (rules 5, 6 and 7).

M is the element-wise minimum of the shards' vectors of node times: of every node a prefix of its
whole steps that every shard has applied, hence a consistent cut. What a shard reports is of a later
moment than M, so its lowest open slot says nothing of slots that a tick outside M has touched; those
are held by remembering, for each run of ticks, the lowest slots that it touched, until the run is
inside M. Slots below both are zero at M, so nothing with such a slot is in flight there.

Heaps with lazy deletion keep the cost of a report by what it says, not by how many nodes there are.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from tracker.core.graph import SegmentGraph
from tracker.core.messages import FrontReport, PipelineReport, SegmentLow, TouchedRun
from tracker.core.model import NodeKey
from tracker.core.shard import FrontId
from tracker.core.slots import FOREVER

_SLACK_IN_HEAPS = 1024
"""Entries a heap may hold beyond what is needed before it is cleared of those let go of."""

_CLOSED = FOREVER
"""Stands for the node time of a closed key of which a shard has applied everything."""


@dataclass(slots=True)
class ShardView:
    """What is known of one shard: its reports put together."""

    heard: bool = False
    node_times: dict[NodeKey, int] = field(default_factory=dict)
    lows: dict[int, SegmentLow] = field(default_factory=dict)
    fronts: dict[FrontId, FrontReport] = field(default_factory=dict)
    announced: dict[int, int] = field(default_factory=dict)


class Combiner:
    """Combines the reports of all shards on one pipeline, at the process of shard `own`."""

    def __init__(self, graph: SegmentGraph, shards: Iterable[int], own: int) -> None:
        self.graph = graph
        self._own = own
        self.views = {shard: ShardView() for shard in shards}
        self.cut: dict[NodeKey, int] = {}
        """M: by key the last tick that every shard has applied (FOREVER for a closed key)."""
        self.settled_fronts: dict[FrontId, tuple[int, int]] = {}
        """Fronts that every shard has: the least promise, and the segment fed."""
        self.unsettled_fronts: dict[FrontId, None] = {}
        """Fronts that some shard has and another has not: they hold min time where it is."""
        self.newly_settled: list[FrontId] = []
        self._buried: dict[NodeKey, set[int]] = {}
        """Keys dropped by some shard, hence applied whole by all, and who has yet to drop them."""
        self._own_runs: dict[NodeKey, deque[TouchedRun]] = {}
        """The own shard's runs outside M, ascending: a whole report must tell them again."""
        self._touched: list[list[tuple[int, int, NodeKey]]] = [
            [] for _ in range(graph.size)
        ]
        self._compact_above = [_SLACK_IN_HEAPS] * graph.size
        self._promises: list[list[tuple[int, FrontId]]] = [
            [] for _ in range(graph.size)
        ]
        self._changed_keys: dict[NodeKey, None] = {}

    # --- taking reports ---------------------------------------------------------------------------

    def forget(self, shard: int) -> None:
        """Drops all that was known of a shard: a whole report of it follows, or holds all back."""
        view = self.views[shard]
        self.views[shard] = ShardView()
        self._changed_keys.update(dict.fromkeys(view.node_times))
        for front in view.fronts:
            self._settle_front(front)

    def take(self, shard: int, report: PipelineReport, whole: bool) -> None:
        """Takes a shard's report: `whole` ones say all there is, others what has changed."""
        view = self.views[shard]
        if whole:
            self.forget(shard)
            view = self.views[shard]
            named = {key for key, _, _ in report.node_times}
            for key in [k for k in self._buried if k not in named]:
                self._mourn(key, shard)
        view.heard = True
        for key, number, closed in report.node_times:
            if key not in self._buried:
                view.node_times[key] = _CLOSED if closed else number
                self._changed_keys[key] = None
        for key in report.dropped:
            self._bury(key, shard)
        for low in report.lows:
            view.lows[low.segment] = low
        for left in report.left:  # first: a front may have left and joined again since
            view.fronts.pop(left, None)
            self._settle_front(left)
        for front in report.fronts:
            view.fronts[(front.node_id, front.front)] = front
            self._settle_front((front.node_id, front.front))
        for run in report.runs:
            self._hold(shard, run)
        view.announced.update(report.announced)

    def _hold(self, shard: int, run: TouchedRun) -> None:
        if self._settled(run.key, run.last_number):
            return
        if shard == self._own:
            self._own_runs.setdefault(run.key, deque()).append(run)
            self._changed_keys[run.key] = None
        for segment, slot in run.touched:
            heapq.heappush(self._touched[segment], (slot, run.last_number, run.key))

    def _bury(self, key: NodeKey, shard: int) -> None:
        """A shard has dropped a key: every shard has applied all of it, whatever the others have
        said so far. What they still say of it is passed over until they have dropped it too."""
        if key not in self._buried:
            self._buried[key] = {
                s for s, view in self.views.items() if key in view.node_times
            }
            for view in self.views.values():
                view.node_times.pop(key, None)
            self._own_runs.pop(key, None)
            self._changed_keys.pop(key, None)
        self._mourn(key, shard)

    def _mourn(self, key: NodeKey, shard: int) -> None:
        waiting = self._buried[key]
        waiting.discard(shard)
        if not waiting:
            del self._buried[key]
            self.cut.pop(key, None)

    def _settle_front(self, front: FrontId) -> None:
        reports = [
            view.fronts[front] for view in self.views.values() if front in view.fronts
        ]
        was_settled = front in self.settled_fronts
        joinings = {(report.incarnation, report.number) for report in reports}
        if len(reports) == len(self.views) and len(joinings) == 1:
            promise, segment = (
                min(report.heartbeat for report in reports),
                reports[0].segment,
            )
            self.unsettled_fronts.pop(front, None)
            if self.settled_fronts.get(front) != (promise, segment):
                self.settled_fronts[front] = (promise, segment)
                self._push_promise(segment, promise, front)
            if not was_settled:
                self.newly_settled.append(front)
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
                (slot, name)
                for name, (slot, fed) in self.settled_fronts.items()
                if fed == segment
            )

    # --- the rule ---------------------------------------------------------------------------------

    def advance_cut(self) -> None:
        """Moves M to the element-wise minimum, and lets go of the runs that are inside it."""
        for key in self._changed_keys:
            number = min(view.node_times.get(key, 0) for view in self.views.values())
            if number == 0 and not any(
                key in view.node_times for view in self.views.values()
            ):
                self.cut.pop(key, None)
                continue
            self.cut[key] = number
            runs = self._own_runs.get(key)
            if runs is not None:
                while runs and runs[0].last_number <= number:
                    runs.popleft()
                if not runs:
                    del self._own_runs[key]
        self._changed_keys.clear()

    def _settled(self, key: NodeKey, last_number: int) -> bool:
        return key in self._buried or last_number <= self.cut.get(key, 0)

    def low(self, segment: int) -> int:
        """The smaller of the lowest open slot at any shard and the lowest slot touched outside M."""
        touched = self._touched[segment]
        while touched and self._settled(touched[0][2], touched[0][1]):
            heapq.heappop(touched)
        if len(touched) > self._compact_above[segment]:
            touched[:] = sorted(t for t in touched if not self._settled(t[2], t[1]))
            self._compact_above[segment] = 2 * len(touched) + _SLACK_IN_HEAPS
        low = touched[0][0] if touched else FOREVER
        for view in self.views.values():
            known = view.lows.get(segment)
            if known is not None and known.slot < low:
                low = known.slot
        return low

    def promise(self, segment: int) -> int:
        """The least promise of the fronts that feed a segment and that every shard has."""
        promises = self._promises[segment]
        while promises and self.settled_fronts.get(promises[0][1]) != (
            promises[0][0],
            segment,
        ):
            heapq.heappop(promises)
        return promises[0][0] if promises else FOREVER

    def candidates(self) -> list[int | None]:
        """By segment the min time that the reports allow; None where nothing may be said now."""
        self.advance_cut()
        if not all(view.heard for view in self.views.values()):
            return [None] * self.graph.size
        own = [min(self.low(u), self.promise(u)) for u in range(self.graph.size)]
        min_times: list[int | None] = [*self.graph.min_times(own)]
        for front in self.unsettled_fronts:
            for view in self.views.values():
                if front in view.fronts:
                    for held in self.graph.reached_from(view.fronts[front].segment):
                        min_times[held] = None
        return min_times

    # --- reads ------------------------------------------------------------------------------------

    def grant(self, front: FrontId) -> tuple[int, int]:
        """Of a front that every shard has: the segment it feeds, and its largest pin."""
        reports = [view.fronts[front] for view in self.views.values()]
        return reports[0].segment, max(report.pin for report in reports)

    def announced_anywhere(self, segment: int) -> int | None:
        """The largest min time of a segment that any process has announced, as far as is known."""
        known = [
            v.announced[segment] for v in self.views.values() if segment in v.announced
        ]
        return max(known, default=None)

    def open_slots(self, shard: int) -> int:
        """Cells that a shard has reported open, over all segments."""
        return sum(low.open_slots for low in self.views[shard].lows.values())

    def own_runs(self) -> tuple[TouchedRun, ...]:
        """The own shard's reported runs of which not every shard is known to have applied all."""
        return tuple(run for runs in self._own_runs.values() for run in runs)

    def whole_report(self, pipeline: str) -> PipelineReport:
        """The own shard's reports so far, put together into one that says everything."""
        view = self.views[self._own]
        return PipelineReport(
            pipeline=pipeline,
            node_times=tuple(
                (key, 0 if number == _CLOSED else number, number == _CLOSED)
                for key, number in view.node_times.items()
            ),
            lows=tuple(view.lows.values()),
            fronts=tuple(view.fronts.values()),
            runs=self.own_runs(),
            announced=tuple(view.announced.items()),
        )

    def validate(self) -> None:
        """Raises AssertionError where an invariant does not hold."""
        for key, number in self.cut.items():
            if key in self._changed_keys or key in self._buried:
                continue
            for view in self.views.values():
                assert number <= view.node_times.get(key, 0), (
                    f"the cut is ahead of a shard at {key}"
                )
        for key, runs in self._own_runs.items():
            numbers = [run.last_number for run in runs]
            assert numbers == sorted(numbers), f"runs of {key} are out of order"
            assert key not in self._buried, f"a run of the buried key {key} is kept"
        for front in self.settled_fronts:
            assert all(front in view.fronts for view in self.views.values())
        assert not self.settled_fronts.keys() & self.unsettled_fronts.keys()
