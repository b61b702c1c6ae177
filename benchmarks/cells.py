"""Distinct cells applied a second by one process's core, and the memory of an open cell."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Iterable
from dataclasses import replace

from acker.v1 import types_pb2 as pb
from benchmarks.bars import BARS
from benchmarks.core import HORIZON, Cluster, Node, cells
from benchmarks.figures import Budget, Figure
from tracker.core.model import PipelineSpec, TickContent
from tracker.wire.ticks import content_from_pb, content_to_pb

CELLS_PER_TICK = 1000
GROUP = 10


def find(budget: Budget) -> Iterable[Figure]:
    rounds, ticks = budget.pick(7, 9), budget.pick(400, 1500)
    way = f"processor time; {CELLS_PER_TICK} distinct cells a tick, {GROUP} ticks a group commit"
    _applied_per_second(ticks, False)
    yield Figure(
        "distinct cells judged and applied by one process's core, a second",
        tuple(_applied_per_second(ticks, False) for _ in range(rounds)),
        "/s",
        way,
        BARS["cells applied"],
    )
    yield Figure(
        "... and read from the bytes of the request",
        tuple(_applied_per_second(ticks, True) for _ in range(rounds)),
        "/s",
        way,
        BARS["cells applied"],
    )
    for name, step in (("neighbouring slots", 1), ("every 8th slot", 8)):
        yield Figure(
            f"memory of an open cell, {name}",
            (_bytes_per_cell(1_000_000, step),),
            "bytes",
            "all that the process holds of a million cells, as allocated",
            BARS["memory of a cell"] if step == 1 else None,
            exact=True,
        )


def _one_node() -> tuple[Cluster, Node]:
    cluster = Cluster()
    spec = PipelineSpec(
        "p", ("in",), front_count=1, horizon_slots=HORIZON, max_open_cells=50_000_000
    )
    cluster.register(spec)
    return cluster, cluster.node("p", "node")


def _applied_per_second(ticks: int, from_bytes: bool) -> float:
    """Half of the ticks create cells, each next one consumes the same."""
    cluster, node = _one_node()
    contents = []
    for number in range(ticks):
        each = cells(number // 2 * 10, CELLS_PER_TICK, number // 2)
        contents.append(TickContent(consumed=each) if number % 2 else TickContent(created=each))
    requests = [content_to_pb(content).SerializeToString() for content in contents]
    began = time.process_time()
    for number in range(ticks):
        content = contents[number]
        if from_bytes:
            content = content_from_pb(pb.TickContent.FromString(requests[number]))
        node.tick(content)
        if number % GROUP == GROUP - 1:
            cluster.commit()
    cluster.settle()
    seconds = time.process_time() - began
    assert cluster.processes[0].describe("p", 0).segments[0].open_slots == 0
    return ticks * CELLS_PER_TICK / seconds


def _bytes_per_cell(count: int, step: int) -> float:
    """What a process has allocated more with `count` cells open than without."""
    cluster, node = _one_node()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for first in range(0, count, CELLS_PER_TICK):
        each = cells(0, CELLS_PER_TICK, first)
        each = replace(each, slots=(first + each.slots) * step)
        node.tick(TickContent(created=each))
        cluster.commit()
    cluster.settle()
    used = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert cluster.processes[0].describe("p", 0).segments[0].open_slots == count
    return used / count
