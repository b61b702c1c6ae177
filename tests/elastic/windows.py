"""Notification latency, by windows of a second: p99 of each, beside the p99 of a run that stays as it is.

A sample is a slot of a segment at a subscriber: the time from the moment in which all that its
completion needed had been handed over, until the subscriber heard a min time beyond it. So a pause in
which nothing is announced counts with every slot that waits in it, not once.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from examples.latency import _Needs, percentile
from tracker.core.model import PipelineSpec

WINDOW_NS = 1_000_000_000


@dataclass(frozen=True)
class Sample:
    """A slot at a subscriber: when it could be known to be complete, and how long after that it was."""

    complete_ns: int
    latency_ms: float


@dataclass(frozen=True)
class Window:
    """A second of a run. at_s: from the run's beginning."""

    at_s: float
    p50_ms: float
    p99_ms: float
    samples: int


def samples(
    spec: PipelineSpec,
    fronts: Mapping[str, str],
    lines: Iterable[Mapping[str, Any]],
    from_ns: int,
    to_ns: int,
) -> list[Sample]:
    """Of the slots that could be known between two moments. All fronts must have been there from the
    beginning. Raises AssertionError for a slot that was never heard of."""
    lines = list(lines)
    needs = _Needs(spec, fronts, [line for line in lines if line["kind"] == "tick"])
    heard: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
    for line in lines:
        if line["kind"] == "heard" and line["segment"]:
            heard[line["subscriber"], line["segment"]].append((line["at_ns"], line["min_time"]))
    last = max(
        tick["created"][-1][1] for tick in lines if tick["kind"] == "tick" and tick["created"]
    )
    found = []
    for segment in spec.segments:
        complete = {s: needs.complete_ns(segment, s) for s in range(spec.start_slot + 1, last + 1)}
        for (subscriber, where), said in heard.items():
            if where != segment:
                continue
            said.sort()
            min_times = [min_time for _, min_time in said]
            for slot, complete_ns in complete.items():
                if not from_ns <= complete_ns < to_ns:
                    continue
                place = bisect_left(min_times, slot)
                assert place < len(said), f"{subscriber} never heard of slot {slot} of {segment}"
                found.append(Sample(complete_ns, (said[place][0] - complete_ns) / 1e6))
    return sorted(found, key=lambda sample: sample.complete_ns)


def windows(found: Sequence[Sample], from_ns: int) -> list[Window]:
    """By the second in which slots could be known."""
    by_second: dict[int, list[float]] = defaultdict(list)
    for sample in found:
        by_second[(sample.complete_ns - from_ns) // WINDOW_NS].append(sample.latency_ms)
    return [
        Window(float(second), percentile(values, 50), percentile(values, 99), len(values))
        for second, values in sorted(by_second.items())
    ]


def p99_ms(found: Sequence[Sample]) -> float:
    return percentile((sample.latency_ms for sample in found), 99)
