"""The segment graph: how far min time of one segment bounds that of another (rule 7).

An edge u -> v with delay d says: an item that enters v because of one at slot t in u has a slot of
at least t+d. So nothing below own(u) + dist(u, v) can still come from u into v, with dist the
shortest delay. Cycles need no care, since delays are not negative.

A graph is kept as its edges: a pipeline of a thousand segments is registered in the time of one of ten. What is asked
again and again, distances from the segments that fronts feed, is found once for each.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence, Set

import numpy as np
from numpy.typing import NDArray

from tracker.core.model import PipelineSpec
from tracker.core.model.slots import FOREVER, add_delay, subtract_delay

_SMALL_GRAPH = 12
"""Up to here looking at each pair of segments is faster than a search."""

_Ways = list[list[tuple[int, int]]]
"""By segment (next one, delay)."""


class SegmentGraph:
    """Shortest delays between the segments of one pipeline, numbered by their places."""

    def __init__(self, spec: PipelineSpec) -> None:
        number = {name: index for index, name in enumerate(spec.segments)}
        self.size = len(spec.segments)
        self._ways: _Ways = [[] for _ in spec.segments]
        self._back: _Ways = [[] for _ in spec.segments]
        """The same edges by their ends."""
        for edge in spec.edges:
            self._ways[number[edge.source]].append((number[edge.target], edge.delay))
            self._back[number[edge.target]].append((number[edge.source], edge.delay))
        self._from: dict[int, NDArray[np.int64]] = {}
        """By segment the distances to all others, of those that were asked for: 8 bytes for each."""
        self._into: list[list[tuple[int, int]]] = []
        """By segment, whence it is reached, and how far that is; of small graphs alone."""
        if self.size <= _SMALL_GRAPH:
            self._into = [self.ways_into(segment) for segment in range(self.size)]

    def distance(self, source: int, target: int) -> int:
        """The shortest delay in slots from one segment to another; FOREVER if there is no way."""
        return self._distances(source).item(target)

    def connects(self, source: int, target: int) -> bool:
        """Whether items of one segment can get to another."""
        return self.distance(source, target) != FOREVER

    def reached_from(self, source: int) -> list[int]:
        """The segments that items of `source` can get to, itself among them."""
        return np.flatnonzero(self._distances(source) != FOREVER).tolist()

    def ways_into(self, target: int) -> list[tuple[int, int]]:
        """(segment, distance) of all whose items can get to `target`, itself among them."""
        distances = enumerate(_from_one(self._back, target))
        return [(u, distance) for u, distance in distances if distance != FOREVER]

    def all_reached_from(self, sources: Set[int]) -> set[int]:
        """The segments that items of any of these can get to, themselves among them."""
        lows = [0 if segment in sources else FOREVER for segment in range(self.size)]
        return {v for v, low in enumerate(_spread(self._ways, lows)) if low != FOREVER}

    def min_times(self, own: Sequence[int]) -> list[int]:
        """For each segment v the least own(u) + dist(u, v) over all segments u; sums saturate."""
        if self.size <= _SMALL_GRAPH:
            return [min(add_delay(own[u], d) for u, d in into) for into in self._into]
        return _spread(self._ways, [*own])

    def pin(self, announced: Sequence[int], segment: int) -> int:
        """Where a front that begins to feed `segment` is held: the largest announced(w) - dist over
        every segment w that its items can reach, so that none can appear below what was announced. In another
        one that is complete none can appear at all, wherever the front is held: an edge leads there that came too
        late."""
        return max(
            subtract_delay(announced[w], d)
            for w, d in enumerate(self._distances(segment).tolist())
            if d != FOREVER and (announced[w] != FOREVER or w == segment)
        )

    def _distances(self, source: int) -> NDArray[np.int64]:
        known = self._from.get(source)
        if known is None:
            known = self._from[source] = np.array(_from_one(self._ways, source), np.int64)
        return known


def _from_one(ways: _Ways, source: int) -> list[int]:
    """The shortest delays from one segment to all; FOREVER where there is no way."""
    lows = [FOREVER] * len(ways)
    lows[source] = 0
    return _spread(ways, lows)


def _spread(ways: _Ways, lows: list[int]) -> list[int]:
    """By segment v the least lows(u) + delay over all ways from a u to it, in place: Dijkstra's algorithm over
    non-negative delays, begun from every segment at once."""
    queue = [(low, u) for u, low in enumerate(lows) if low != FOREVER]
    heapq.heapify(queue)
    while queue:
        low, u = heapq.heappop(queue)
        if low > lows[u]:
            continue
        for v, delay in ways[u]:
            reached = add_delay(low, delay)
            if reached < lows[v]:
                lows[v] = reached
                heapq.heappush(queue, (reached, v))
    return lows
