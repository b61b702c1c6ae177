"""What one run is like: everything that is drawn from the seed before the run begins."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass, replace

from tracker.core.model import Edge, PipelineSpec, SilentFront
from tracker.core.process import ProcessConfig

MS = 1_000_000
WINDOW_LIMIT = 4
"""Ticks of one node under way; the others wait."""

ROOMY = ProcessConfig(
    report_interval_ms=4, retransmit_ms=40, announced_report_ms=40, max_entries_per_frame=8,
    evict_check_ms=5, reconnect_ms=5, max_backlog_records=32,
)  # fmt: skip
"""Limits are seldom reached: so much waits for the store only where a process has stood still."""
TIGHT = ProcessConfig(
    report_interval_ms=4, retransmit_ms=40, announced_report_ms=40, max_entries_per_frame=3,
    evict_check_ms=5, reconnect_ms=5, max_bytes_per_frame=700, max_bytes_per_move=60,
    max_entries_in_flight=4, max_unconfirmed_entries=4, max_backlog_records=6,
)  # fmt: skip
"""Limits are small, so that they are reached."""
QUICK = ProcessConfig(
    report_interval_ms=1,
    retransmit_ms=20,
    announced_report_ms=20,
    evict_check_ms=5,
    reconnect_ms=5,
    max_backlog_records=32,
)
"""Where reports matter most: many of them."""


@dataclass(frozen=True)
class FrontPlan:
    """`joins_ns`: when it starts; `again`: whether its id comes back after it has left; `dies`: it
    ends for good instead of leaving (where silent fronts are evicted); `role`: in a story, `one item`
    labels no more at once, a `leader` promises far ahead and labels nothing, a `visitor` comes again
    whenever it has left, a `wanderer` does and may join another segment than it joined at first."""

    name: str
    segment: int
    batches: int
    leaves: bool
    joins_ns: int
    late: bool = False
    again: bool = False
    dies: bool = False
    role: str = ""


@dataclass(frozen=True)
class PipelinePlan:
    """One pipeline and who works on it."""

    spec: PipelineSpec
    fronts: tuple[FrontPlan, ...]
    workers: tuple[tuple[str, frozenset[int]], ...]
    kind: str
    """Of its workers: plain nodes, queries, or eager ones under a tree of local trackers."""
    visitors: int
    unit_share: float
    hops: int
    child_share: float
    """How often an item has a child, on each way that it can go."""
    restarts: int = 0
    """How often an operator has it begin anew."""
    limit_changes: int = 0
    """How often an operator lets it go by other limits."""
    readers_run_ahead: bool = False
    """Where silent fronts are evicted: whether readers take what the tracker has not accepted."""
    write_offs: int = 0
    """How often an operator gives up what is open in some cell."""


@dataclass(frozen=True)
class Plan:
    """One run. Shares are of 1: how often a thing happens where it could."""

    seed: int
    shards: int
    block_slots: int
    pipelines: tuple[PipelinePlan, ...]
    config: ProcessConfig
    faults_from_start: bool
    faults_for_ns: int
    latency_ns: float
    slow_links: dict[tuple[int, int], float]
    reorders: bool
    loss: float
    duplication: float
    tick_duplication: float
    commit_ns: float
    store_faults: float
    effect_crashes: float
    process_crashes: int
    takeovers: int
    downtime_ms: int
    node_crashes: int
    session_breaks: int
    link_resets: int
    link_cuts: int
    slow_peers: int
    snapshots: int
    pause_ns: float
    front_pause_ns: float
    storm: bool = False
    """Whether operators do one thing upon the other (tests/simulation/storms.py)."""
    groups: int = 1
    """How many trackers there are, between which pipelines move."""
    story: str = ""
    """Which of the stories it is (tests/simulation/stories), if any."""
    late_share: float = 0.06
    bad_share: float = 0.1
    part_commits: float = 0.3
    """How often not all that waits becomes durable at once."""
    retirements: int = 0
    scopes: int = 1
    """In how many scopes the batches of a worker take turns."""
    pauses: int = 0
    """How often a process is paused for a while, and what comes is queued."""
    forgeries: float = 0.0
    """How often a frame is followed by one that cannot be."""
    zombies: float = 0.15
    """How often an older process of a node goes on when it should be gone."""


def draw_plain(seed: int) -> Plan:
    """The plan of a seed that is not one of a story."""
    rng = random.Random(seed)
    calm = rng.random() < 0.1
    # Links of which some lag far behind the others, on quick shards, and items that go round and round
    # between them: what shards know of each other is then of moments far apart, and every item has
    # left one of them for another meanwhile. That is what the cut rule is for.
    uneven = not calm and rng.random() < 0.07
    shards = 3 if uneven else rng.choices([1, 2, 3, 4], [13, 20, 3, 1])[0]
    faults_for_ns = (rng.randint(40, 60) if uneven else rng.randint(10, 20)) * MS
    tight = rng.random() < 0.3
    pipeline_count = 1 if uneven else rng.choice([1] * 11 + [2])
    drawn = (_draw_pipeline(rng, f"p{n}", uneven) for n in range(pipeline_count))
    pipelines = tuple(p if calm or uneven else _draw_limits(seed, p) for p in drawn)
    evicts = any(pipeline.spec.evicts for pipeline in pipelines)
    links = [(a, b) for a in range(shards) for b in range(shards) if a != b]
    return Plan(
        seed=seed,
        shards=shards,
        block_slots=rng.choice([1, 1, 2, 4]),
        pipelines=pipelines,
        config=QUICK if uneven else TIGHT if tight else ROOMY,
        faults_from_start=not uneven and rng.random() < 0.3,
        faults_for_ns=faults_for_ns,
        latency_ns=0.2 * MS if uneven else rng.choice([0.2, 0.5, 2.0]) * MS,
        slow_links={
            link: rng.choice([1.0, 1.0, 1.0, 50.0] if uneven else [1.0, 1.0, 8.0]) for link in links
        },
        reorders=not calm and rng.random() < 0.5,
        loss=0.0 if calm else rng.choice([0.0, 0.02, 0.1]) + 0.05 * uneven,
        duplication=0.0 if calm else rng.choice([0.0, 0.05, 0.15]),
        tick_duplication=0.0 if calm else rng.choice([0.0, 0.05, 0.15]),
        commit_ns=0.3 * MS if uneven else rng.choice([0.3, 1.5, 4.0]) * MS,
        store_faults=0.0 if calm else rng.choice([0.0, 0.02, 0.06]),
        effect_crashes=0.0 if calm else rng.choice([0.0, 0.0, 0.004]),
        takeovers=0 if calm else rng.choice([0, 0, 0, 1, 2]),
        process_crashes=0 if calm else rng.choice([0, 1, 2, 4] if uneven else [0, 1, 1, 2, 3]),
        downtime_ms=3 if uneven else 15,
        node_crashes=0 if calm else rng.choice([0, 1, 2]),
        session_breaks=0 if calm else rng.choice([0, 1, 2]),
        link_resets=0 if calm else rng.choice([12, 20] if uneven else [0, 0, 1, 2]),
        link_cuts=0 if calm else rng.choice([0, 0, 1, 2]),
        slow_peers=0 if calm else rng.choice([0, 0, 0, 1]),
        snapshots=rng.choice([0, 1, 1, 2]),
        retirements=0 if calm or uneven else rng.choice([0, 0, 0, 0, 0, 0, 0, 0, 1, 2]),
        pauses=0 if calm else rng.choice([1, 2, 3] if evicts else [0, 0, 0, 1]),
        pause_ns=rng.choice([1.0, 3.0] if uneven else [1.0, 2.0, 4.0]) * MS,
        # So that there is something to break for as long as there are faults.
        front_pause_ns=rng.choice([1.0, 2.0]) * MS
        if uneven
        else faults_for_ns / rng.choice([4, 5, 7]),
        forgeries=0.0 if calm else random.Random(f"forgeries {seed}").choice([0.0] * 9 + [0.2]),
    )


def _draw_pipeline(rng: random.Random, name: str, uneven: bool) -> PipelinePlan:
    size = rng.choice([2, 3] if uneven else [1, 1, 2, 2, 2, 3, 4])
    segments = tuple(f"s{n}" for n in range(size))
    edges = _draw_ring(rng, segments) if uneven else _draw_edges(rng, segments)
    start_slot = rng.choice([0, 0, -5, 1000])
    evicts = rng.random() < 0.2
    declared = 1 if uneven else rng.choice([1, 2, 3] if evicts else [1, 1, 1, 1, 1, 2, 2, 3])
    late = rng.choice([0, 0, 0, 1])
    stays = not evicts and rng.random() < 0.3
    kind = rng.choice(["plain", "plain", "queries", "eager"])
    fronts = tuple(
        FrontPlan(
            name=f"{name}-front{n}",
            segment=0 if n == 0 or (evicts and rng.random() < 0.5) else rng.randrange(size),
            batches=1 if uneven else rng.choice([1, 1, 1, 2]),
            leaves=uneven or not stays or rng.random() < 0.5,
            joins_ns=rng.randint(0, 4) * MS if n < declared else rng.randint(5, 40) * MS,
            late=n >= declared,
            again=rng.random() < (0.5 if uneven else 0.15),
            dies=evicts and rng.random() < 0.3,
        )
        for n in range(declared + late)
    )
    by_name = rng.random() < 0.6
    workers = [set[int]() for _ in range(rng.choice([1, 1, 1, 2, 2, 3]))]
    for number in range(size):
        rng.choice(workers).add(number)
        rng.choice(workers).add(number)
    visitors = rng.choice([0, 0, 0, 0, 0, 0, 3])
    spec = PipelineSpec(
        name,
        segments,
        edges,
        fronts=tuple(front.name for front in fronts[:declared]) if by_name else (),
        front_count=0 if by_name else declared,
        open=rng.random() < 0.3,
        start_slot=start_slot,
        slack_ns=MS if uneven else rng.choice([1, 2, 5]) * MS,
        horizon_slots=1_000_000,
        silent_front=SilentFront.EVICT if evicts else SilentFront.HOLD,
        evict_after_ms=rng.choice([12, 20]) if evicts else 0,
        # Where nothing follows from an item, a table that is full empties itself.
        max_open_cells=rng.choice([3, 5]) if not edges else 1_000,
        max_open_units=3 if not edges else 1_000,
        max_nodes=len(fronts) + len(workers) if visitors else 1_000,
        max_staged=1_000,
    )
    return PipelinePlan(
        spec=spec,
        fronts=fronts,
        workers=tuple((f"{name}-worker{n}", frozenset(w)) for n, w in enumerate(workers)),
        kind=kind,
        visitors=visitors,
        unit_share=0.0 if kind == "eager" else rng.choice([0.0, 0.0, 0.6]),
        hops=rng.choice([10, 15, 20] if uneven else [1, 1, 1, 2]),
        child_share=1.0 if uneven else 0.7,
        restarts=0
        if visitors
        else rng.choice([0, 0, 0, 1, 2] if evicts or kind == "eager" else [0] * 8 + [1, 2]),
    )


def _draw_limits(seed: int, pipeline: PipelinePlan) -> PipelinePlan:
    """Tables that are full where items have children, limits that change, and what is given up."""
    spec = pipeline.spec
    rng = random.Random(f"limits {seed} {spec.name}")
    if rng.random() < 0.3:
        spec = replace(
            spec, max_open_cells=rng.choice([1, 1, 2]), max_open_units=rng.choice([1, 2])
        )
    holds = spec.silent_front is SilentFront.HOLD
    lost = rng.choice([0, 0, 0, 0, 1, 2])
    ahead = not holds and rng.random() < 0.7
    fronts = pipeline.fronts
    if ahead and not pipeline.visitors and rng.random() < 0.8:
        # Min time goes far beyond what the others had published, once they are evicted.
        leader = FrontPlan(
            f"{spec.name}-leader", 0, 0, leaves=False, joins_ns=MS, late=True, role="leader"
        )
        fronts = (*fronts, leader)
    return replace(
        pipeline,
        spec=spec,
        fronts=fronts,
        limit_changes=rng.choice([0, 0, 0, 0, 0, 1, 2]),
        readers_run_ahead=ahead,
        write_offs=lost if holds and not pipeline.restarts and pipeline.kind != "queries" else 0,
    )


def _draw_edges(rng: random.Random, segments: tuple[str, ...]) -> tuple[Edge, ...]:
    """A chain, with ways that fork, join, loop and lead back."""

    def delay() -> int:
        return rng.choice([0, 0, 1, 3])

    edges = {(a, b): delay() for a, b in itertools.pairwise(segments)}
    for _ in range(rng.choice([0, 0, 0, 1, 2])):
        edges[rng.choice(segments), rng.choice(segments)] = delay()
    if len(edges) > 1 and rng.random() < 0.15:
        del edges[rng.choice(sorted(edges))]  # a segment apart
    return tuple(Edge(a, b, d) for (a, b), d in edges.items())


def _draw_ring(rng: random.Random, segments: tuple[str, ...]) -> tuple[Edge, ...]:
    """Round and round: an item has one way to go, and may get later as it goes."""
    following = (*segments[1:], segments[0])
    return tuple(
        Edge(a, b, rng.choice([0, 1, 1])) for a, b in zip(segments, following, strict=True)
    )
