"""Which times bound which: the shortest delay from each segment to each other, in slots."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def distances(
    segments: Sequence[str], edges: Iterable[tuple[str, str, int]]
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
