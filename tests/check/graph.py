"""Which times bound which: the shortest delay from each segment to each other, in slots."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable
from itertools import accumulate

from tests.check.history import Edges, Heard, History


def distances(
    segments: Collection[str], edges: Iterable[tuple[str, str, int]]
) -> dict[tuple[str, str], int]:
    """The least sum of delays on a path from u to v, by (u, v); 0 from u to itself; absent where
    there is no path. Delays are not negative."""
    shortest = {(segment, segment): 0 for segment in segments}
    for source, target, delay in edges:
        pair = source, target
        shortest[pair] = min(delay, shortest.get(pair, delay))
    for middle in segments:
        for source in segments:
            for target in segments:
                if (source, middle) in shortest and (middle, target) in shortest:
                    way = shortest[source, middle] + shortest[middle, target]
                    if way < shortest.get((source, target), way + 1):
                        shortest[source, target] = way
    return shortest


class Graphs:
    """Which edges an announcement had to reckon with, where the pipeline was changed meanwhile."""

    def __init__(self, history: History) -> None:
        self._first, self._changes = history.edges, history.changes
        self._moments: dict[str | None, tuple[list[int], list[int]]] = {}
        for segment in {heard.segment for heard in history.heard}:
            said = [heard for heard in history.heard if heard.segment == segment]
            highest = list(accumulate((heard.min_time for heard in said), max))
            self._moments[segment] = highest, [heard.at_ns for heard in said]

    def edges(self, heard: Heard, segment: str) -> Edges:
        """The edges for what was heard of a segment, alone or with the whole pipeline. A change counts for what anyone
        heard first when it had been answered, and was not announced by then; while it is under way, edges count
        that are there before and behind it: one that is new does not yet, and one that is gone may not any more."""
        highest, moments = self._moments[heard.segment]
        first_ns = moments[bisect_left(highest, heard.min_time)]
        edges = self._first
        for change in self._changes:
            if first_ns < change.asked_ns:
                break
            stays = heard.min_time <= change.floors.get(segment, heard.min_time - 1)
            if first_ns < change.answered_ns or stays:
                edges = tuple(edge for edge in edges if edge in change.edges)
            else:
                edges = change.edges
        return edges
