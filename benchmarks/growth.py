"""What a tick costs as a tracker grows, what its memory does over millions of ticks, trees of local trackers.

Costs are processor time of the core, all shards together, for a tick that creates a cell and consumes an
older one, with group commits of twenty ticks and min time moving along.
"""

from __future__ import annotations

import gc
import itertools
import os
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from benchmarks.bars import BARS
from benchmarks.core import HORIZON, Cluster, Node, cells, steady_ticks
from benchmarks.figures import Budget, Curve, Figure
from benchmarks.pairs import ratios, take_turns
from benchmarks.subscribers import cost_us
from benchmarks.tree import levels_per_second
from tracker.core.model import Edge, PipelineSpec, TickContent

AHEAD_SLOTS = 1 << 30

Run = Callable[[int], float]
"""Microseconds a tick, over so many ticks."""


def find(budget: Budget) -> Iterable[Figure | Curve]:
    yield from _nodes(budget)
    yield from _shards(budget)
    yield from _steady(budget)
    if budget is Budget.FULL:
        yield from _curves(budget)
        yield from _subscribers(budget)
        yield from _trees(budget)


def _spec(name: str = "p", segments: int = 1) -> PipelineSpec:
    names = tuple(f"s{n}" for n in range(segments))
    edges = tuple(Edge(one, other) for one, other in itertools.pairwise(names))
    return PipelineSpec(
        name, names, edges, front_count=1, horizon_slots=HORIZON, max_open_cells=100_000_000
    )


class Pipeline:
    """One pipeline of a cluster with its nodes, which goes on where it was."""

    def __init__(
        self, cluster: Cluster, name: str, nodes: int, segments: int = 1, group: int = 20
    ) -> None:
        """group: ticks that all shards together commit at a time."""
        self.cluster, self.group = cluster, group
        cluster.register(_spec(name, segments))
        self.front: Node = cluster.node(name, "front")
        self.front.join_front("front")
        self.nodes = [cluster.node(name, f"n{n}") for n in range(nodes)]
        self.ticks = 0

    def run(self, ticks: int) -> float:
        """Commits so many ticks; returns what one took, in microseconds of processors."""
        began = time.process_time()
        steady_ticks(self.cluster, self.nodes, self.front, ticks, self.ticks, self.group)
        self.ticks += ticks
        return (time.process_time() - began) / ticks * 1e6


def _compared(what: str, runs: dict[int, Run], ticks: int, rounds: int) -> Iterable[Figure | Curve]:
    """What a tick costs by size, against that of the smallest; by turns."""
    gc.collect()
    costs = take_turns(
        {str(size): (lambda run=run: run(ticks)) for size, run in runs.items()},  # type: ignore[misc]
        rounds,
    )
    low = min(runs)
    before = costs[str(low)]
    for size in runs:
        bar = BARS.get(f"tick with {size} {what}")
        if size == max(runs) or bar is not None:
            yield Figure(
                f"cost of a tick with {size:,} {what} / with {low:,}",
                ratios(costs[str(size)], before),
                "",
                f"{_middle(before):.1f} µs of processors with {low:,}",
                bar,
                least=min(costs[str(size)]) / min(before),
            )
    if len(runs) > 2:
        yield _curve(what, {size: costs[str(size)] for size in runs})


def _nodes(budget: Budget) -> Iterable[Figure | Curve]:
    sizes = (10, 1000) if budget is Budget.QUICK else (10, 30, 100, 300, 1000)
    runs: dict[int, Run] = {n: Pipeline(Cluster(), "p", n).run for n in sizes}
    yield from _compared("nodes", runs, budget.pick(4_000, 10_000), budget.pick(7, 9))


def _shards(budget: Budget) -> Iterable[Figure | Curve]:
    """All shards' cores together; what their processes and links take besides is in other benchmarks. Each shard
    is as busy as the one alone: ten nodes of its own, twenty ticks in a group commit, and as many events a second;
    and, without a bar, the most shards where they have as many events a second together as the one."""
    sizes = (1, 4) if budget is Budget.QUICK else (1, 2, 4, 8, 16)
    runs: dict[int, Run] = {
        n: Pipeline(Cluster(n, all_busy=True), "p", 10 * n, group=20 * n).run for n in sizes
    }
    ticks, most = budget.pick(1_000, 2_000), max(runs)
    yield from _compared("shards", runs, ticks, 7)
    shared = Pipeline(Cluster(most), "p", 10 * most, group=20 * most)
    yield from _compared("shards that share its events", {1: runs[1], most: shared.run}, ticks, 7)


def _middle(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


def _curve(what: str, costs: dict[int, list[float]], y: str = "µs of processors a tick") -> Curve:
    line = [(float(size), _middle(values)) for size, values in costs.items()]
    return Curve(f"cost of a tick by {what}", what, y, {y: line})


def _curves(budget: Budget) -> Iterable[Figure | Curve]:
    ticks, rounds = budget.pick(1_000, 4_000), budget.pick(3, 3, 7)
    by: dict[str, dict[int, Run]] = {
        "segments": {n: Pipeline(Cluster(), "p", 10, n).run for n in (1, 3, 10, 30, 100)},
        "pipelines": {n: _among(n) for n in (1, 10, 100, 1000)},
        "open slots": {n: _with_open(n) for n in (10**3, 10**4, 10**5, 10**6)},
    }
    for what, runs in by.items():
        yield from _compared(what, runs, ticks, rounds)


def _among(pipelines: int) -> Run:
    """Ticks of all pipelines by turns, a hundred each."""
    cluster = Cluster()
    all_of_them = [Pipeline(cluster, f"p{n}", 1) for n in range(pipelines)]
    place = 0

    def run(ticks: int) -> float:
        nonlocal place
        costs = []
        for _ in range(ticks // 100):
            costs.append(all_of_them[place % pipelines].run(100))
            place += 1
        return sum(costs) / len(costs)

    return run


def _with_open(slots: int) -> Run:
    """Ticks beside so many slots that stay open, so far ahead that they hold nothing back."""
    pipeline = Pipeline(Cluster(), "p", 10)
    for first in range(0, slots, 1000):
        each = cells(AHEAD_SLOTS + first, min(1000, slots), first)
        pipeline.nodes[0].tick(TickContent(created=each))
        pipeline.cluster.commit()
    pipeline.cluster.settle()
    return pipeline.run


def _subscribers(budget: Budget) -> Iterable[Figure | Curve]:
    sizes = (1, 10, 100) if budget is not Budget.FULL else (1, 10, 100, 1000)
    costs = cost_us(sizes, budget.pick(10, 30), budget.pick(1, 3))
    most = sizes[-1]
    each = [(high - low) / (most - 1) for high, low in zip(costs[most], costs[1], strict=True)]
    yield Figure(
        f"an announcement for one more of {most} subscribers",
        tuple(each),
        "µs",
        f"processor time of the process; {_middle(costs[1]):.0f} µs for a tick that one hears of",
    )
    yield _curve("subscribers", costs, "µs of the process an announcement")


# --- memory ---------------------------------------------------------------------------------------

IN_A_ROW = 4
"""So many counts in a row, of which the lowest counts: a table that has just grown by a block of slots, and shrinks
again with the next ones, leaves nothing behind."""


def _steady(budget: Budget) -> Iterable[Figure | Curve]:
    """Ten nodes at work: what is allocated after each twentieth of the ticks."""
    ticks = budget.pick(100_000, 1_000_000, 10_000_000)
    pipeline = Pipeline(Cluster(), "p", 10)
    parts = 20
    blocks, resident = [], []
    for _ in range(parts):
        pipeline.run(ticks // parts)
        gc.collect()
        blocks.append(sys.getallocatedblocks())
        resident.append(resident_bytes())
    after = parts // 10  # caches have filled by then
    begin, end = min(blocks[after : after + IN_A_ROW]), min(blocks[-IN_A_ROW:])
    between = ticks * (parts - after - IN_A_ROW) / parts
    yield Figure(
        f"allocated objects that {ticks:,} ticks in a steady state leave behind, a thousand ticks",
        ((end - begin) / between * 1000,),
        "",
        f"{end:,} after all, {begin:,} after a tenth",
        BARS["objects left behind"],
        exact=True,
    )
    yield Figure(
        f"growth of resident memory over {ticks:,} ticks in a steady state",
        ((resident[-1] - resident[after]) / 2**20,),
        "MiB",
        f"{resident[-1] / 2**20:.0f} MiB after all",
        BARS["memory growth"],
        exact=True,
    )
    xs = [ticks / parts * (place + 1) for place in range(parts)]
    line = [(x, size / 2**20) for x, size in zip(xs, resident, strict=True)]
    yield Curve("resident memory in a steady state", "ticks", "MiB", {"MiB": line}, False)


def resident_bytes() -> int:
    """Memory of this process that is not swapped out or given back."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


# --- trees ----------------------------------------------------------------------------------------


def _trees(budget: Budget) -> Iterable[Figure | Curve]:
    sizes = [100, 1_000, 10_000, 100_000]
    lines: dict[str, list[tuple[float, float]]] = {}
    for executors in sizes:
        for level, rate in levels_per_second(executors).items():
            lines.setdefault(level, []).append((float(executors), rate))
    to_tracker = lines["into the tracker"]
    yield Figure(
        "messages a second into the tracker from a tree of local trackers on 100,000 executors",
        (to_tracker[-1][1],),
        "/s",
        f"simulated; {to_tracker[0][1]:,.0f}/s from 100 executors",
    )
    yield Curve("messages of a tree of local trackers", "executors", "messages a second", lines)
