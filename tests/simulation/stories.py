"""Stories: plans for moments that plain chance hardly ever brings about, and who brings them about.

Everything in a story is what may happen to a real system: links that lag or lose frames for a while,
connections that begin anew, processes that write a snapshot and die. A story only chooses when and to
whom, so that shards know each other at moments far apart, while items or fronts move on between them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator
from dataclasses import replace
from itertools import permutations
from typing import TYPE_CHECKING

from tests import inside
from tests.simulation.nodes import Node, VisitingFront, WanderingFront, WorkerNode
from tests.simulation.plan import MS, QUICK, ROOMY, FrontPlan, PipelinePlan, Plan, draw_plain
from tracker.core.log import Entries, ShardReport
from tracker.core.log.steps import SEQUENCER
from tracker.core.model import Edge, PipelineSpec
from tracker.core.model.routing import RoutingTable
from tracker.core.model.slots import FOREVER, HIGHEST_SLOT, LOWEST_SLOT

if TYPE_CHECKING:
    from tests.simulation.simulator import Simulator
    from tests.simulation.world import Item
    from tracker.core.pipeline.pipeline import Pipeline

BOUNCE, VISITS, WANDERS, JOINS = "bounce", "visits", "wanders", "joins"
MANY_SCOPES = 12
LOOK_EVERY_NS = 400_000
LOOKS = 50
"""After so many looks, what a moment waits for does not come about."""


def draw_plan(seed: int) -> Plan:
    """The plan of a seed."""
    plan, rng = draw_plain(seed), random.Random(f"story {seed}")
    drawn = rng.random()
    if drawn < 0.045:
        return _draw_bounce(rng, plan)
    if drawn < 0.08:
        return _draw_visits(rng, plan)
    if drawn < 0.11:
        return _draw_wanders(rng, plan)
    if drawn < 0.13:
        return _draw_joins(rng, plan)
    return plan


def _draw_bounce(rng: random.Random, plan: Plan) -> Plan:
    """A few items go round and round between shards that are kept apart, and no front holds min time
    any more: whoever overlooks an item says so at once."""
    front = FrontPlan(
        _name(rng, "front", 1), 0, batches=1, leaves=True, joins_ns=0, role="one item"
    )
    segments = tuple(f"s{n}" for n in range(rng.choice([1, 2, 3])))
    edges = tuple(
        Edge(name, segments[(n + 1) % len(segments)], rng.choice([0, 1, 1]))
        for n, name in enumerate(segments)
    )
    workers = _draw_workers(rng, len(segments), rng.choice([1, 1, 2]))
    pipeline = _pipeline(
        rng, segments, edges, (front,), workers, hops=40, child_share=1.0, is_open=False
    )
    return replace(
        _calm(rng, plan, pipeline),
        story=BOUNCE,
        scopes=rng.choice([1, 1, MANY_SCOPES]),
        late_share=0.0,
        bad_share=0.02,
        shards=rng.choice([2, 3, 3]),
        config=rng.choice([QUICK, QUICK, ROOMY]),
        pause_ns=rng.choice([0.5, 1.0]) * MS,
        faults_for_ns=rng.randint(40, 60) * MS,
    )


def _draw_visits(rng: random.Random, plan: Plan) -> Plan:
    """Fronts come, label something, leave and come again at once, behind one that is far ahead: every
    visit is at some shards before it is at others, and after."""
    chain = rng.choice([1, 2, 2])
    segments = tuple(f"s{n}" for n in range(chain))
    edges = (Edge("s0", "s1", rng.choice([0, 0, 2])),) if chain > 1 else ()
    shards = rng.choice([1, 2, 3, 3, 3])
    leader = FrontPlan(
        _name(rng, "front", shards), chain - 1, 0, leaves=False, joins_ns=0, role="leader"
    )
    visitors = tuple(
        FrontPlan(
            _name(rng, f"visitor{n}", shards, leader.name), 0, 1, leaves=True, joins_ns=n * MS,
            late=True, role="visitor",
        )
        for n in range(1 if shards == 3 else rng.choice([1, 2]))
    )  # fmt: skip
    workers = _draw_workers(rng, chain, 2)
    fronts = (leader, *visitors)
    pipeline = _pipeline(
        rng, segments, edges, fronts, workers, hops=1, child_share=0.7, is_open=rng.random() < 0.5
    )
    return replace(
        _calm(rng, plan, pipeline),
        story=VISITS,
        shards=shards,
        config=rng.choice([QUICK, QUICK, ROOMY]),
        block_slots=rng.choice([1, 2, 4, 4]),
        pause_ns=1.0 * MS,
        faults_for_ns=rng.randint(40, 60) * MS,
        commit_ns=(0.3 if shards == 3 else rng.choice([0.3, 2.0])) * MS,
        part_commits=0.7,
        late_share=0.1,
        bad_share=0.1,
    )


def _draw_wanders(rng: random.Random, plan: Plan) -> Plan:
    """Fronts join one segment and leave it at once for another, which has nothing to do with the first
    and is far ahead of it, as far as their home has heard."""
    shards = rng.choice([2, 2, 3])
    slow = FrontPlan(_name(rng, "front", shards), 0, 3, leaves=False, joins_ns=0)
    leader = FrontPlan(_name(rng, "leader", shards), 1, 0, leaves=False, joins_ns=0, role="leader")
    wanderer = FrontPlan(
        _name(rng, "wanderer", shards, leader.name, together=True), 0, 1, leaves=True,
        joins_ns=MS, late=True, role="wanderer",
    )  # fmt: skip
    workers = _draw_workers(rng, 2, 1)
    pipeline = _pipeline(
        rng, ("s0", "s1"), (), (slow, leader, wanderer), workers,
        hops=1, child_share=0.0, is_open=rng.random() < 0.5,
    )  # fmt: skip
    return replace(
        _calm(rng, plan, pipeline),
        story=WANDERS,
        shards=shards,
        config=rng.choice([QUICK, ROOMY]),
        pause_ns=1.0 * MS,
        faults_for_ns=rng.randint(60, 90) * MS,
        part_commits=0.7,
        late_share=0.0,
        bad_share=0.02,
    )


def _draw_joins(rng: random.Random, plan: Plan) -> Plan:
    """Shards come while a front comes and goes behind one that is far ahead: a newcomer may have heard of
    more than the shards that do not count it yet."""
    shards = rng.choice([2, 2, 3])
    leader = FrontPlan(_name(rng, "front", shards), 0, 0, leaves=False, joins_ns=0, role="leader")
    visitor = FrontPlan(
        _name(rng, "visitor", shards), 0, 1, leaves=True, joins_ns=MS, late=True, role="visitor"
    )
    pipeline = _pipeline(
        rng, ("s0",), (), (leader, visitor), _draw_workers(rng, 1, 1),
        hops=1, child_share=0.0, is_open=rng.random() < 0.5,
    )  # fmt: skip
    return replace(
        _calm(rng, plan, pipeline),
        story=JOINS,
        shards=shards,
        config=rng.choice([QUICK, ROOMY]),
        pause_ns=1.0 * MS,
        faults_for_ns=rng.randint(60, 90) * MS,
        late_share=0.0,
        bad_share=0.02,
    )


def _name(
    rng: random.Random, what: str, shards: int, other: str = "", *, together: bool = False
) -> str:
    """The name of a node, by chance at home at another shard than some other node is, or at its own."""
    home = RoutingTable.uniform(shards).home
    while True:
        name = f"p0-{what}-{rng.randrange(1000)}"
        if not other or shards == 1 or (home("p0", name) == home("p0", other)) is together:
            return name


def _draw_workers(
    rng: random.Random, segments: int, number: int
) -> tuple[tuple[str, frozenset[int]], ...]:
    reads = [set[int]() for _ in range(number)]
    for segment in range(segments):
        rng.choice(reads).add(segment)
        rng.choice(reads).add(segment)
    return tuple((_name(rng, f"worker{n}", 1), frozenset(r)) for n, r in enumerate(reads))


def _pipeline(
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


def _calm(rng: random.Random, plan: Plan, pipeline: PipelinePlan) -> Plan:
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


Moment = Generator[int | Callable[[], bool]]
"""What a moment waits for: some time in nanoseconds, or a condition."""


class Story:
    """Brings a story's moments about, one after another, for as long as there are faults. It looks at
    where items are, and into processes, to choose the moment; it changes neither. While a moment is
    prepared, workers may be slow, and items may all go to slots of one shard."""

    def __init__(self, sim: Simulator) -> None:
        self.sim = sim
        self.workers_wait = False
        self.toward: int | None = None
        """The shard that owns the slots to which items go now."""
        self.only: frozenset[Item] | None = None
        """The items that workers take now, if not all."""
        self.visitors_wait = False
        self._moments: list[Callable[[], Moment]] = [self._early]
        if sim.plan.story == VISITS and sim.plan.shards > 1:
            self._moments += [self._lag, self._lag, self._connections, self._late, self._late]
            self._moments += [self._rejoined]
            self._moments += [self._visited] * (2 * (sim.plan.shards > 2))
        if sim.plan.story == BOUNCE and sim.plan.config is QUICK:
            self._moments = [self._overtaken, self._overtaken, self._behind, self._unreported]
            self._moments += [self._outdated] * sim.plan.reorders
        elif sim.plan.story == BOUNCE:
            self._moments = [self._unreported, self._anew, self._anew]
        elif sim.plan.story == WANDERS:
            self._moments = [self._wandered]
        elif sim.plan.story == JOINS:
            self._moments = [self._joined]

    def begin(self) -> None:
        """The next moment, if there is time for one."""
        sim = self.sim
        if sim.faulty:
            sim.count("story_moments")
            self._go_on(sim.rng.choice(self._moments)())

    def _go_on(self, moment: Moment) -> None:
        awaited = next(moment, None)
        if awaited is None or not self.sim.faulty:
            self._end()
        elif isinstance(awaited, int):
            self.sim.after(awaited, self._go_on, moment)
        else:
            self._look(moment, awaited, LOOKS)

    def _look(self, moment: Moment, condition: Callable[[], bool], looks: int) -> None:
        if condition():
            self._go_on(moment)
        elif looks and self.sim.faulty:
            self.sim.after(LOOK_EVERY_NS, self._look, moment, condition, looks - 1)
        else:
            self._end()  # it does not come about

    def _end(self) -> None:
        """Everybody does as they like again, until the next moment."""
        self.workers_wait, self.visitors_wait, self.toward, self.only = False, False, None, None
        self.sim.after(self.sim.milliseconds(1, 4), self.begin)

    # --- looking ----------------------------------------------------------------------------------

    def _some_shards(self) -> list[int]:
        return self.sim.rng.sample(range(self.sim.plan.shards), self.sim.plan.shards)

    def _pipeline(self, shard: int) -> Pipeline | None:
        running = self.sim.shards[shard].running
        return inside.pipelines(running.process).get("p0") if running else None

    def _open_at(self) -> list[int]:
        """The shards that have open cells."""
        return [shard for shard in range(self.sim.plan.shards) if self._has_open(shard)]

    def _has_open(self, shard: int) -> bool:
        pipeline = self._pipeline(shard)
        return pipeline is not None and any(pipeline.shard.cells.open_slots)

    def _seen_open_by(self, shard: int) -> list[int]:
        """The shards that have open cells, as far as one of them knows."""
        pipeline = self._pipeline(shard)
        views = pipeline.combiner.views if pipeline else {}
        return [n for n, view in views.items() if any(low.open_slots for low in view.lows.values())]

    def _holds_no_run(self, shard: int) -> bool:
        """Whether all that a process knows to be touched is inside its M."""
        pipeline = self._pipeline(shard)
        if pipeline is None or pipeline.shard.changes.touched:
            return False
        segments = range(len(pipeline.spec.segments))
        return all(pipeline.combiner.lowest_touched(segment) is None for segment in segments)

    def _has_unreported(self, shard: int) -> bool:
        pipeline = self._pipeline(shard)
        return pipeline is not None and bool(pipeline.shard.changes.touched)

    def _is_quiet(self) -> bool:
        """Whether one shard has all that is open, and all of them know."""
        at = self._open_at()
        shards = range(self.sim.plan.shards)
        return len(at) == 1 and all(
            self._holds_no_run(shard) and self._seen_open_by(shard) == at for shard in shards
        )

    def _homes(self) -> set[int]:
        nodes = self.sim.nodes.values()
        return {node.home for node in nodes if node.kind == "query" and not node.finished}

    # --- moments ----------------------------------------------------------------------------------

    def _lag(self) -> Moment:
        """One shard hears another late."""
        source, target, *_ = self._some_shards()
        self.sim.hold_link(source, target, self.sim.milliseconds(3, 15))
        yield self.sim.milliseconds(1, 5)

    def _overtaken(self) -> Moment:
        """A shard hears nothing of another while an item goes from that one to a third, which it hears
        late. Then it hears everything of the other, which has let go of what it had touched: it knows
        the two at moments far apart, and of what lies between them from nobody."""
        sim = self.sim
        self.workers_wait = True
        yield self._is_quiet
        (sender,) = self._open_at()
        others = [shard for shard in self._some_shards() if shard != sender]
        # What it does not hear of must be in the log of one of the other two.
        third = min(others, key=lambda shard: shard in self._homes())
        receiver = next((shard for shard in others if shard != third), third)
        if third != receiver:
            sim.hold_link(third, receiver, sim.milliseconds(10, 14))
        sim.deafen_link(
            sender, receiver, 14 * MS, sim.rng.choice([ShardReport, ShardReport, object])
        )
        self.workers_wait, self.toward = False, third
        yield lambda: self._open_at() == [third]
        self.workers_wait = True
        yield lambda: self._holds_no_run(sender)
        sim.mend_link(sender, receiver)
        if sim.rng.random() < 0.5:
            self._connect(sender, receiver)
        else:
            self._snapshot_and_crash(sender)
        yield sim.milliseconds(4, 6)

    def _behind(self) -> Moment:
        """The shard that has an item comes back; what another says to it then arrives late, after the
        item has gone to that one."""
        sim = self.sim
        self.workers_wait = True
        yield self._is_quiet
        (receiver,) = self._open_at()
        others = [shard for shard in self._some_shards() if shard != receiver]
        third = min(others, key=lambda shard: shard in self._homes())
        sim.rng.choice([self._crash, self._snapshot_and_crash])(receiver)
        sim.hold_link(third, receiver, sim.milliseconds(8, 12))
        yield 4 * MS
        self.workers_wait, self.toward = False, third
        yield lambda: self._open_at() == [third]
        self.workers_wait = True
        yield sim.milliseconds(6, 10)

    def _unreported(self) -> Moment:
        """A shard writes a snapshot and dies before it has reported that an item went from it to one
        that does not know yet."""
        sim = self.sim
        self.workers_wait = True
        yield self._is_quiet
        (victim,) = self._open_at()
        others = [shard for shard in self._some_shards() if shard != victim]
        behind = min(others, key=lambda shard: shard in self._homes())
        for source in self._some_shards():
            if source != behind:
                sim.hold_link(source, behind, 14 * MS)
        self.workers_wait, self.toward = False, behind
        yield lambda: not self._has_open(victim) and self._has_unreported(victim)
        self.workers_wait = True
        self._snapshot_and_crash(victim)
        yield sim.milliseconds(6, 8)

    def _anew(self) -> Moment:
        """A connection begins anew, and all is said on it, while the sender has applied what it has
        not reported yet and the others have."""
        sim = self.sim
        self.workers_wait = True
        yield self._is_quiet
        homes = self._homes()
        sender = min(self._some_shards(), key=lambda shard: shard in homes)
        receiver = next(shard for shard in self._some_shards() if shard != sender)
        for home in homes - {sender}:
            sim.hold_link(home, sender, 6 * MS)
        self.workers_wait, self.toward = False, sender
        yield lambda: self._knows_of_all_but(receiver, sender)
        self.workers_wait = True
        self._connect(sender, receiver)
        yield sim.milliseconds(3, 5)

    def _knows_of_all_but(self, shard: int, late: int) -> bool:
        """Whether one shard knows that the others have applied what one has not reported yet."""
        running, behind = self.sim.shards[shard].running, self.sim.shards[late].running
        if running is None or behind is None or not self._has_unreported(late):
            return False
        wanted, vectors = inside.applied(behind.process), inside.vectors(running.process)
        return self._has_open(late) and all(
            dict(vectors.of(other)).get(home, 0) >= number
            for other in vectors.shards
            if other != late
            for home, number in wanted.items()
        )

    def _outdated(self) -> Moment:
        """What one shard says, when it says everything, is overtaken by what it says later of an item
        that has gone to it from the one that hears it."""
        sim = self.sim
        self.workers_wait = True
        yield self._is_quiet
        (receiver,) = self._open_at()
        sender = next(shard for shard in self._some_shards() if shard != receiver)
        sim.hold_link(sender, receiver, 12 * MS)
        self._connect(sender, receiver)
        sim.release_link(sender, receiver)
        self.workers_wait, self.toward = False, sender
        yield lambda: self._open_at() == [sender] == self._seen_open_by(receiver)
        self.workers_wait = True
        yield 12 * MS

    def _visited(self) -> Moment:
        """A front joins, labels something and leaves, and one shard hears all of it but from the one
        that has what it labelled. Then what held min time there is over: promises of the leader that
        came late to a third shard."""
        sim = self.sim
        leader = next(node for node in sim.nodes.values() if node.kind == "leader")
        visitor = next(node for node in sim.nodes.values() if node.kind == "visitor")
        home, blind = visitor.home, leader.home
        owner = next(shard for shard in self._some_shards() if shard not in (home, blind))
        if home == blind:
            return
        self.visitors_wait = True
        yield lambda: self._has_seen_off(blind) and not sim.worlds["p0"].items
        sim.deafen_link(blind, home, 40 * MS, Entries)
        ahead = 3 * sim.plan.block_slots + 3
        yield lambda: self._promised(blind, owner, leader.name) - self._announced(blind) >= ahead
        sim.hold_link(owner, blind, 25 * MS)
        self.workers_wait, self.visitors_wait, self.toward = True, False, owner
        yield lambda: bool(sim.worlds["p0"].items)
        self.visitors_wait = True
        yield lambda: self._has_seen_off(blind)
        sim.mend_link(blind, home)
        yield 6 * MS

    def _rejoined(self) -> Moment:
        """A front leaves and joins again while its home, which hears the others late, knows it to be at
        them as it was before; and they announce what they may as long as it is away."""
        sim = self.sim
        visitor = next(node for node in sim.nodes.values() if node.kind == "visitor")
        front = (visitor.name, visitor.name)

        def is_everywhere() -> bool:
            pipeline = self._pipeline(visitor.home)
            known = [] if pipeline is None else pipeline.combiner.settled_fronts
            return any(joined[:2] == front for joined in known)

        yield is_everywhere
        for other in self._some_shards():
            if other != visitor.home:
                sim.hold_link(other, visitor.home, 20 * MS)
        life = visitor.life
        yield lambda: visitor.life > life and visitor.key is not None
        yield 8 * MS

    def _wandered(self) -> Moment:
        """A front joins a segment, leaves and joins another one, all before a shard with a slow store has
        applied any of it: that one knows of the first joining when the others are in its log. It has
        announced more for the second segment than the front's home has heard. And the front's stream
        breaks, so that it is told again what it may do."""
        sim = self.sim
        wanderer = next(node for node in sim.nodes.values() if isinstance(node, WanderingFront))
        home = wanderer.home
        other = next(shard for shard in self._some_shards() if shard != home)
        self.visitors_wait = True
        yield lambda: wanderer.finished
        sim.hold_link(other, home, 25 * MS)
        yield lambda: self._is_ahead(other, home, 1)
        sim.stall_store(other, sim.milliseconds(2, 5))
        self.visitors_wait = False
        yield lambda: wanderer.segment == 1 and not wanderer.wandering
        self.visitors_wait = True
        yield sim.milliseconds(0, 2)
        if sim.rng.random() < 0.5:
            sim.break_session(wanderer)
        yield sim.milliseconds(4, 8)

    def _joined(self) -> Moment:
        """The first words of a newcomer reach the sequencer late. It has heard promises of the leader from
        all shards, and these have not heard them from each other, when it hears no more of them. Then a
        front visits, and is granted what they have announced; and the newcomer is told that it counts."""
        sim = self.sim
        leader = next(node for node in sim.nodes.values() if node.kind == "leader")
        visitor = next(node for node in sim.nodes.values() if isinstance(node, VisitingFront))
        self.visitors_wait = True
        yield lambda: bool(self._joining())
        newcomer = self._joining()[0]
        counted = [shard.number for shard in sim.present if shard.number != newcomer]
        sim.hold_link(newcomer, SEQUENCER, 25 * MS)

        def is_alone() -> bool:
            """Whether the newcomer has begun, and all shards have no front but the leader, and no item."""
            if newcomer >= len(sim.shards) or sim.worlds["p0"].items:
                return False
            return all(map(self._has_seen_off, [*counted, newcomer]))

        yield is_alone
        for source, target in permutations(counted, 2):
            sim.deafen_link(source, target, 40 * MS, ShardReport)
        yield lambda: self._knows_more(newcomer, counted, leader.name)
        for source in counted:
            lost = object if source == visitor.home != SEQUENCER else ShardReport
            sim.deafen_link(source, newcomer, 40 * MS, lost)
        self.visitors_wait, self.workers_wait = False, True
        yield lambda: not any(map(self._has_seen_off, counted))
        self.visitors_wait = True
        for source, target in permutations(counted, 2):
            sim.mend_link(source, target)
        yield lambda: visitor.active or visitor.finished
        yield lambda: not self._joining()
        yield 5 * MS

    def _joining(self) -> list[int]:
        """The shards that are joining, as far as the sequencer knows."""
        running = self.sim.shards[SEQUENCER].running
        return [*running.process.membership.joining] if running else []

    def _knows_more(self, newcomer: int, counted: list[int], leader: str) -> bool:
        """Whether all shards have told a newcomer of more than any of them has announced."""
        announced = max(map(self._announced, counted))
        return all(self._promised(newcomer, other, leader) > announced + 3 for other in counted)

    def _is_ahead(self, shard: int, of: int, segment: int) -> bool:
        """Whether a shard has announced more than another one."""
        one, other = self._pipeline(shard), self._pipeline(of)
        return (
            one is not None
            and other is not None
            and one.announced[segment] > other.announced[segment] + 3
        )

    def _has_seen_off(self, shard: int) -> bool:
        """Whether a shard has no front but the leader."""
        pipeline = self._pipeline(shard)
        return pipeline is not None and len(pipeline.shard.fronts) <= 1

    def _announced(self, shard: int) -> int:
        """How far a shard has announced all segments; never more than one that is away."""
        pipeline = self._pipeline(shard)
        return FOREVER if pipeline is None else min(pipeline.announced)

    def _promised(self, shard: int, other: int, leader: str) -> int:
        """What a shard knows another one to be promised."""
        pipeline = self._pipeline(shard)
        if pipeline is None or other not in pipeline.combiner.views:  # it has left
            return LOWEST_SLOT
        reports = pipeline.combiner.views[other].fronts.values()
        promises = [report.heartbeat for report in reports if report.node_id == leader]
        return max(promises, default=LOWEST_SLOT)

    def _late(self) -> Moment:
        """A worker's home does not hear that min time has come to a slot that has an item; what the
        worker consumes just below it then, at the same shard, is late there and not at its home."""
        sim, world = self.sim, self.sim.worlds["p0"]
        workers = [n for n in sim.nodes.values() if isinstance(n, WorkerNode) and 0 in n.reads]
        worker = sim.rng.choice(workers)
        self.workers_wait = True
        yield lambda: sum(item.segment == 0 for item in world.items) >= 2
        self.visitors_wait = True
        for other in self._some_shards():
            if other != worker.home:
                sim.hold_link(other, worker.home, 20 * MS)
        yield lambda: self.is_late_for(worker, 0)
        lowest = min(item.slot for item in world.items if item.segment == 0)
        self.only = frozenset(item for item in world.items if item.slot != lowest)
        self.workers_wait = False
        yield lambda: self.only is not None and self.only.isdisjoint(world.items)

    def _early(self) -> Moment:
        """A node creates below a min time that is in its home's log and not said yet."""
        sim = self.sim
        workers = [n for n in sim.nodes.values() if n.kind == "query"]
        node = sim.rng.choice(workers)

        def is_logged() -> bool:
            pipeline = self._pipeline(node.home)
            return pipeline is not None and pipeline.announced[0] > pipeline.published[0]

        yield is_logged
        if node.attached:
            sim.count("bad_ticks")
            node.commit_just_below_min_time()
        yield sim.milliseconds(1, 5)

    def is_late_for(self, node: Node, segment: int) -> bool:
        """Whether something may be in flight at the very slot that min time has come to, and a node's
        home does not know of that min time: what the node consumes just below it is late elsewhere."""
        pipeline = self._pipeline(node.home)
        reached = self.sim.checkers["p0"].highest[segment]
        owner = self.sim.routing.owner
        return (
            pipeline is not None
            and pipeline.announced[segment] < reached <= HIGHEST_SLOT
            and owner(reached) == owner(reached - 1)
            and any((i.segment, i.slot) == (segment, reached) for i in self.sim.worlds["p0"].items)
        )

    def _connections(self) -> Moment:
        """Some connections begin anew, between two reports."""
        for _ in range(3):
            self._connect(*self._some_shards()[:2])
            yield self.sim.milliseconds(0, 3)

    def _snapshot_and_crash(self, shard: int) -> None:
        running = self.sim.shards[shard].running
        if running is not None and self.sim.faulty:
            self.sim.write_snapshot(running)
            self._crash(shard)

    def _crash(self, shard: int) -> None:
        running = self.sim.shards[shard].running
        if running is not None and self.sim.faulty:
            self.sim.count("crashes")
            self.sim.kill(running)

    def _connect(self, source: int, target: int) -> None:
        running = self.sim.shards[source].running
        if running is not None:
            self.sim.count("link_resets")
            self.sim.connect(running, self.sim.shards[target])
