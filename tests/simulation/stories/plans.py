"""What the plans of all stories have in common: one pipeline, few nodes, and little that happens by chance."""

from __future__ import annotations

import random
from dataclasses import replace

from tests.simulation.plan import MS, FrontPlan, PipelinePlan, Plan
from tracker.core.model import Edge, PipelineSpec
from tracker.core.model.routing import RoutingTable


def name_of(
    rng: random.Random, what: str, shards: int, other: str = "", *, together: bool = False
) -> str:
    """The name of a node, by chance at home at another shard than some other node is, or at its own."""
    home = RoutingTable.uniform(shards).home
    while True:
        name = f"p0-{what}-{rng.randrange(1000)}"
        if not other or shards == 1 or (home("p0", name) == home("p0", other)) is together:
            return name


def draw_workers(
    rng: random.Random, segments: int, number: int
) -> tuple[tuple[str, frozenset[int]], ...]:
    reads = [set[int]() for _ in range(number)]
    for segment in range(segments):
        rng.choice(reads).add(segment)
        rng.choice(reads).add(segment)
    return tuple((name_of(rng, f"worker{n}", 1), frozenset(r)) for n, r in enumerate(reads))


def one_pipeline(
    rng: random.Random,
    segments: tuple[str, ...],
    edges: tuple[Edge, ...],
    fronts: tuple[FrontPlan, ...],
    workers: tuple[tuple[str, frozenset[int]], ...],
    *,
    hops: int,
    child_share: float,
    is_open: bool,
) -> PipelinePlan:
    spec = PipelineSpec(
        "p0",
        segments,
        edges,
        front_count=1,
        open=is_open,
        start_slot=rng.choice([0, 1000]),
        slack_ns=MS,
        horizon_slots=1_000_000,
        max_staged=1_000,
    )
    return PipelinePlan(spec, fronts, workers, "plain", 0, 0.0, hops, child_share)


def calm(rng: random.Random, plan: Plan, pipeline: PipelinePlan) -> Plan:
    """Little happens by chance: the story sees to what does."""
    shards = range(4)
    return replace(
        plan,
        block_slots=rng.choice([1, 1, 2, 4]),
        pipelines=(pipeline,),
        faults_from_start=False,
        latency_ns=0.2 * MS,
        slow_links={(a, b): 1.0 for a in shards for b in shards if a != b},
        reorders=rng.random() < 0.2,
        loss=0.0,
        duplication=0.0,
        tick_duplication=0.0,
        commit_ns=0.3 * MS,
        store_faults=rng.choice([0.0, 0.02]),
        effect_crashes=0.0,
        process_crashes=0,
        takeovers=0,
        downtime_ms=2,
        node_crashes=rng.choice([0, 0, 1]),
        session_breaks=rng.choice([0, 0, 1]),
        link_resets=0,
        link_cuts=0,
        slow_peers=0,
        snapshots=0,
        retirements=0,
        front_pause_ns=1.0 * MS,
    )
