"""Acks merged a second by the core of a local tracker, against NumPy's own XOR; labels of a front.

NumPy's `bitwise_xor.at` into a table, and `bitwise_xor.reduce` of everything into one value, are the
limits: a merge of acks by slot cannot be faster than the one, nor any reading of them than the other.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.bars import BARS
from benchmarks.figures import Budget, Figure
from benchmarks.pairs import ratios, take_turns
from fronts.batches import items_batch
from fronts.core import FrontCore
from local_tracker.core.merge import merge_acks
from local_tracker.worker.collector import Collector
from tracker.core.model.ack_values import root_values


def find(budget: Budget) -> Iterable[Figure]:
    acks, rounds = budget.pick(2_000_000, 10_000_000), budget.pick(7, 9)
    random = np.random.default_rng(7)
    values = random.integers(1, 2**63, acks).astype(np.uint64)
    for name, slots in {
        "in the order of their slots (100 slots)": np.sort(random.integers(0, 100, acks)),
        "mixed (1000 slots)": random.integers(0, 1000, acks),
    }.items():
        yield from _merge(name, slots, values, rounds)
    yield _collected(values, rounds)
    yield from _labels(budget, rounds)


def _merge(
    name: str, slots: NDArray[np.int64], values: NDArray[np.uint64], rounds: int
) -> Iterable[Figure]:
    """By turns: our merge, NumPy's XOR into a table, NumPy's XOR of everything."""
    width = int(slots.max()) + 1
    ways: dict[str, Callable[[], float]] = {
        "merged": lambda: _cost(lambda: merge_acks(0, slots, values)),
        "table": lambda: _cost(
            lambda: np.bitwise_xor.at(np.zeros(width, np.uint64), slots, values)
        ),
        "reduced": lambda: _cost(lambda: np.bitwise_xor.reduce(values)),
    }
    merged, table, reduced = take_turns(ways, rounds).values()
    yield Figure(
        f"acks merged a second by a local tracker's core, {name}",
        tuple(len(values) / cost for cost in merged),
        "/s",
        f"processor time; arrays of {len(values):,} acks",
        BARS["acks merged"],
    )
    yield Figure(f"... / NumPy's bitwise_xor.at, {name}", ratios(table, merged), "", "rate to rate")
    yield Figure(
        f"... / NumPy's bitwise_xor.reduce, {name}", ratios(reduced, merged), "", "rate to rate"
    )


def _collected(values: NDArray[np.uint64], rounds: int) -> Figure:
    """As user code hands them over: a batch of ten thousand rows at a time, in a few slots each."""
    rows = 10_000
    slots = np.repeat(np.arange(10, dtype=np.int64), rows // 10)

    def collect() -> None:
        collector = Collector("bench", lambda _: 0)
        for first in range(0, len(values) - rows + 1, rows):
            collector.consume("in", slots, values[first : first + rows])
        collector.take()

    collect()
    costs = [_cost(collect) for _ in range(rounds)]
    return Figure(
        "acks taken and merged a second, through acks.consume",
        tuple(len(values) / cost for cost in costs),
        "/s",
        f"processor time; arrays of {rows:,} acks a call",
    )


def _labels(budget: Budget, rounds: int) -> Iterable[Figure]:
    """A front's whole way: slots from a clock, ack values, the cells of the published batch."""
    items, batches = 10_000, budget.pick(50, 200)
    for name, one_reading in (("one clock reading a batch", True), ("a reading an item", False)):
        rates = []
        for turn in range(rounds + 1):
            cost = _cost(lambda way=one_reading: _label(items, batches, way))  # type: ignore[misc]
            if turn:
                rates.append(items * batches / cost)
        yield Figure(
            f"items labelled a second by a front's core, {name}",
            tuple(rates),
            "/s",
            f"processor time; labels, ack values and cells; batches of {items:,}",
        )


def _label(items: int, batches: int, one_reading: bool) -> None:
    front = FrontCore("front", 0, 10_000_000)
    front.grant(0, 0, 0)
    ordinals = np.arange(items)
    clock_ns = 1_000_000_000
    for number in range(batches):
        if one_reading:
            front.label_many(clock_ns, items)
        else:
            front.label_at(clock_ns + ordinals * 10_000)
        clock_ns += items * 10_000
        sealed = front.seal()
        assert sealed is not None
        values = root_values("front", number, ordinals)
        front.published(items_batch(0, sealed.number, sealed.slots, values))
        assert front.next_tick(clock_ns) is not None
        front.durable()


def _cost(work: Callable[[], Any]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began
