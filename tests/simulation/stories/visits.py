"""Fronts come, label something, leave and come again, behind one that is far ahead."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from tests.simulation.nodes import WorkerNode
from tests.simulation.plan import MS, QUICK, ROOMY, FrontPlan, Plan
from tests.simulation.stories.plans import calm, draw_workers, name_of, one_pipeline
from tests.simulation.stories.story import Moment, Story
from tracker.core.log import Entries
from tracker.core.model import Edge

VISITS = "visits"


def draw_visits(rng: random.Random, plan: Plan) -> Plan:
    """Fronts come, label something, leave and come again at once, behind one that is far ahead: every
    visit is at some shards before it is at others, and after."""
    chain = rng.choice([1, 2, 2])
    segments = tuple(f"s{n}" for n in range(chain))
    edges = (Edge("s0", "s1", rng.choice([0, 0, 2])),) if chain > 1 else ()
    shards = rng.choice([1, 2, 3, 3, 3])
    leader = FrontPlan(
        name_of(rng, "front", shards), chain - 1, 0, leaves=False, joins_ns=0, role="leader"
    )
    visitors = tuple(
        FrontPlan(
            name_of(rng, f"visitor{n}", shards, leader.name), 0, 1, leaves=True, joins_ns=n * MS,
            late=True, role="visitor",
        )
        for n in range(1 if shards == 3 else rng.choice([1, 2]))
    )  # fmt: skip
    workers = draw_workers(rng, chain, 2)
    fronts = (leader, *visitors)
    pipeline = one_pipeline(
        rng, segments, edges, fronts, workers, hops=1, child_share=0.7, is_open=rng.random() < 0.5
    )
    return replace(
        calm(rng, plan, pipeline),
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


class VisitsStory(Story):
    """Shards hear late of fronts that have joined, labelled and left meanwhile, and of min time."""

    def moments(self) -> list[Callable[[], Moment]]:
        moments: list[Callable[[], Moment]] = [self._early]
        if self.sim.plan.shards > 1:
            moments += [self._lag, self._lag, self._connections, self._late, self._late]
            moments += [self._rejoined]
            moments += [self._visited] * (2 * (self.sim.plan.shards > 2))
        return moments

    def _lag(self) -> Moment:
        """One shard hears another late."""
        source, target, *_ = self._some_shards()
        self.sim.hold_link(source, target, self.sim.milliseconds(3, 15))
        yield self.sim.milliseconds(1, 5)

    def _connections(self) -> Moment:
        """Some connections begin anew, between two reports."""
        for _ in range(3):
            self._connect(*self._some_shards()[:2])
            yield self.sim.milliseconds(0, 3)

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
