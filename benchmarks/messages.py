"""Service messages of the workload on which the published design was evaluated, counted in simulation.

The evaluation of the published tracker (Information Systems 117, 2023) counts 366 thousand messages with a
central tracker, 701 thousand with a distributed one, and 11.8 million with punctuations. It does not say how
many items there were; its figures fit 20,000 of them, 10 ms apart, from one front, through 30 re-partitions on 13
machines, each of which makes a new item, with a flush every 5 ms and a punctuation every 10 items: that is
inferred, from its own code and by reckoning. The same is simulated here.

Counted like theirs is what is sent one way: ticks, what shards send each other, notifications. Answers that say
that ticks are durable, which the published design does not have, are counted beside it. Local trackers either
wait for the end of their window, as the published ones do, or flush at once what comes after a pause.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from benchmarks.bars import BARS, PUBLISHED_CENTRAL, PUBLISHED_DISTRIBUTED
from benchmarks.batches import Chain
from benchmarks.evaluation import Evaluation, Workload
from benchmarks.figures import Budget, Figure, percentile
from local_tracker.core.window import Flush

ITEMS, HOPS, MACHINES = 20_000, 30, 13
PUNCTUATIONS = 11_800_000
SHARDS = {
    1: ("central", PUBLISHED_CENTRAL, BARS["messages, central"]),
    2: ("2 shards", PUBLISHED_DISTRIBUTED, BARS["messages, two shards"]),
}
INFERRED = "20,000 items, 13 machines, 30 hops, 10 ms apart, windows of 5 ms: inferred"
BATCHES_EVERY_MS = (100, 1000)


def find(budget: Budget) -> Iterable[Figure]:
    items = budget.pick(500, 2_000, ITEMS)
    new_items = Workload(items, HOPS, MACHINES, passed_on=False)
    for shards in SHARDS:
        for flush in (Flush.AT_WINDOW_END, Flush.WHEN_IDLE):
            yield from _new_items(shards, replace(new_items, flush=flush))
    for shards in SHARDS:
        yield _passed_on(shards, replace(new_items, passed_on=True))
    yield from _as_queries(budget.pick(500, 1_000, 5_000))


def _new_items(shards: int, workload: Workload) -> Iterable[Figure]:
    kind, published, bar = SHARDS[shards]
    waits = workload.flush is Flush.AT_WINDOW_END
    how = "flushed at the window's end" if waits else "flushed at once after a pause"
    evaluation = Evaluation(shards, workload)
    counted, scale = evaluation.run(), ITEMS / workload.items
    case = f"a new item at every hop, {how}, {kind}"
    yield Figure(
        f"service messages of the published evaluation, {case}",
        (_one_way(counted) * scale,),
        "",
        f"published {published:,} with a local tracker, {PUNCTUATIONS:,} with punctuations; {INFERRED}; "
        f"{_kinds(counted, scale)}{_simulated(workload)}",
        bar if waits else None,
        exact=True,
    )
    yield Figure(
        "... with the answers to ticks",
        (sum(counted.values()) * scale,),
        "",
        "as above",
        exact=True,
    )
    heard_ms = evaluation.latencies_ms()
    for percent in (50, 99):
        yield Figure(
            f"... from the last step until it is heard of, p{percent}",
            (percentile(heard_ms, percent),),
            "ms",
            "simulated: 0.2 ms a message, 1 ms a group commit, no spool",
            exact=True,
        )


def _passed_on(shards: int, workload: Workload) -> Figure:
    counted, scale = Evaluation(shards, workload).run(), ITEMS / workload.items
    return Figure(
        f"items passed on unchanged, {SHARDS[shards][0]}: service messages",
        (_one_way(counted) * scale,),
        "",
        "another workload: items keep their ack values, and no hop has anything to tell; "
        f"{_kinds(counted, scale)}{_simulated(workload)}",
        exact=True,
    )


def _as_queries(items: int) -> Iterable[Figure]:
    for queries, what in ((1, "one tracked query"), (HOPS, f"{HOPS} tracked queries in a chain")):
        for every_ms in BATCHES_EVERY_MS:
            by_shards = {n: Chain(n, queries, every_ms * 10**6).run(items) for n in SHARDS}
            yield Figure(
                f"the same dataflow as {what}, a batch every {every_ms} ms: messages an item, 2 shards",
                (_one_way(by_shards[2]) / items,),
                "",
                f"{_one_way(by_shards[1]) / items:.2f} with one; published {PUBLISHED_CENTRAL / ITEMS:.1f} and "
                f"{PUBLISHED_DISTRIBUTED / ITEMS:.1f}; by the rule of composition, simulated, {items:,} items, "
                "a file each",
                exact=True,
            )


def _one_way(counted: Counter[str]) -> int:
    return sum(counted.values()) - counted["answers"]


def _kinds(counted: Counter[str], scale: float) -> str:
    return ", ".join(f"{round(n * scale):,} {kind}" for kind, n in counted.most_common())


def _simulated(workload: Workload) -> str:
    if workload.items == ITEMS:
        return ""
    return f"; {workload.items:,} items simulated, and multiplied"
