"""Notification latency out of a history: from the last commit that an announcement needed being handed
over, to the moment in which a subscriber heard the announcement."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import accumulate
from typing import Any

from lowmark import FOREVER, PipelineSpec
from lowmark.nodes import SegmentGraph, add_delay

Line = Mapping[str, Any]


def notification_latencies_ms(
    spec: PipelineSpec, fronts: Mapping[str, str], history: Iterable[Line]
) -> list[float]:
    """One latency in milliseconds for each announcement of a segment beyond the start that was heard.

    fronts: segments by front. An announcement of t for v needs every tick that consumed something of
    a slot below t as seen from v, and every front's first promise of at least t as seen from v.
    """
    lines = list(history)
    needs = _Needs(spec, fronts, [line for line in lines if line["kind"] == "tick"])
    latencies = []
    for line in lines:
        if line["kind"] == "heard" and line["segment"] and line["min_time"] > spec.start_slot:
            complete_ns = needs.complete_ns(line["segment"], line["min_time"])
            latencies.append((line["at_ns"] - complete_ns) / 1e6)
    return latencies


def percentile(values: Iterable[float], percent: float) -> float:
    """The least value that at least so many percent are not above; nan if there are no values."""
    ordered = sorted(values)
    if not ordered:
        return float("nan")
    return ordered[min(len(ordered) - 1, max(0, -int(-len(ordered) * percent // 100) - 1))]


class _Needs:
    """When everything that an announcement needs had been handed over."""

    def __init__(self, spec: PipelineSpec, fronts: Mapping[str, str], ticks: list[Line]) -> None:
        self._fronts: dict[str, list[tuple[list[int], list[int]]]] = {}
        self._consumed: dict[str, tuple[list[int], list[int]]] = {}
        graph = SegmentGraph(spec)
        for v, name in enumerate(spec.segments):
            way = {source: graph.distance(u, v) for u, source in enumerate(spec.segments)}
            consumed = [
                (add_delay(slot, way[source]), tick["handed_ns"])
                for tick in ticks
                for source, slot, _ in tick["consumed"]
            ]
            consumed.sort()
            slots = [slot for slot, _ in consumed]
            self._consumed[name] = slots, list(accumulate((at for _, at in consumed), max))
            self._fronts[name] = [
                ([add_delay(slot, way[fronts[front]]) for slot, _ in said], [at for _, at in said])
                for front, said in _promises(ticks).items()
            ]

    def complete_ns(self, segment: str, slot: int) -> int:
        """The moment from which on min time `slot` of a segment could be known."""
        slots, latest = self._consumed[segment]
        below = bisect_left(slots, slot)
        moments = [latest[below - 1]] if below else [0]
        for promised, handed in self._fronts[segment]:
            first = bisect_left(promised, slot)
            if first < len(handed):
                moments.append(handed[first])
        return max(moments)


def _promises(ticks: Iterable[Line]) -> dict[str, list[tuple[int, int]]]:
    """By front: (slot promised, when), ascending in both; leaving promises everything."""
    said: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for tick in sorted(ticks, key=lambda tick: tick["handed_ns"]):
        promises = [*tick["promises"], *([front, FOREVER] for front in tick["leaves"])]
        for front, slot in promises:
            if not said[front] or slot > said[front][-1][0]:
                said[front].append((slot, tick["handed_ns"]))
    return said
