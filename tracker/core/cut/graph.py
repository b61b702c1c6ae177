"""The segment graph: how far min time of one segment bounds that of another (rule 7).

An edge u -> v with delay d says: an item that enters v because of one at slot t in u has a slot of
at least t+d. So nothing below own(u) + dist(u, v) can still come from u into v, with dist the
shortest delay. Distances are computed once, when the pipeline is registered; cycles need no care,
since delays are not negative.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np

from tracker.core.model import PipelineSpec
from tracker.core.model.slots import FOREVER, add_delay, subtract_delay

_SMALL_GRAPH = 12
"""Up to here plain loops beat NumPy's fixed cost a call."""


class SegmentGraph:
    """Shortest delays between the segments of one pipeline, numbered by their places."""

    def __init__(self, spec: PipelineSpec) -> None:
        number = {name: index for index, name in enumerate(spec.segments)}
        self.size = len(spec.segments)
        ways: list[list[tuple[int, int]]] = [[] for _ in spec.segments]
        for edge in spec.edges:
            ways[number[edge.source]].append((number[edge.target], edge.delay))
        # One number of 8 bytes for each pair, and nothing else: as Python's objects a chain of a thousand
        # segments took eight times as much.
        self._matrix = np.empty((self.size, self.size), np.int64)
        for source in range(self.size):
            self._matrix[source] = _shortest(ways, source)
        self._into: list[list[tuple[int, int]]] = []
        """By segment, whence it is reached, and how far that is; of small graphs alone."""
        if self.size <= _SMALL_GRAPH:
            self._into = [
                [(u, d) for u, d in enumerate(column) if d != FOREVER]
                for column in self._matrix.T.tolist()
            ]

    def distance(self, source: int, target: int) -> int:
        """The shortest delay in slots from one segment to another; FOREVER if there is no way."""
        return self._matrix.item(source, target)

    def reached_from(self, source: int) -> list[int]:
        """The segments that items of `source` can get to, itself among them."""
        return np.flatnonzero(self._matrix[source] != FOREVER).tolist()

    def min_times(self, own: Sequence[int]) -> list[int]:
        """For each segment v the least own(u) + dist(u, v) over all segments u; sums saturate."""
        if self.size <= _SMALL_GRAPH:
            return [min(add_delay(own[u], d) for u, d in into) for into in self._into]
        column = np.array(own, np.int64)[:, None]
        with np.errstate(over="ignore"):
            sums = np.where(column > FOREVER - self._matrix, FOREVER, column + self._matrix)
        sums[self._matrix == FOREVER] = FOREVER
        least: list[int] = sums.min(axis=0).tolist()
        return least

    def pin(self, announced: Sequence[int], segment: int) -> int:
        """Where a front that begins to feed `segment` is held: the largest announced(w) - dist over
        every segment w that its items can reach, so that none can appear below what was announced."""
        return max(
            subtract_delay(announced[w], d)
            for w, d in enumerate(self._matrix[segment].tolist())
            if d != FOREVER
        )


def _shortest(ways: list[list[tuple[int, int]]], source: int) -> list[int]:
    """Dijkstra's algorithm over non-negative delays; FOREVER where there is no way."""
    distances = [FOREVER] * len(ways)
    distances[source] = 0
    queue = [(0, source)]
    while queue:
        distance, u = heapq.heappop(queue)
        if distance > distances[u]:
            continue
        for v, delay in ways[u]:
            reached = add_delay(distance, delay)
            if reached < distances[v]:
                distances[v] = reached
                heapq.heappush(queue, (reached, v))
    return distances
