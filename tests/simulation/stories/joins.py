"""Shards come while a front comes and goes behind one that is far ahead."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from itertools import permutations

from tests.simulation.nodes import VisitingFront
from tests.simulation.plan import MS, QUICK, ROOMY, FrontPlan, Plan
from tests.simulation.stories.plans import calm, draw_workers, name_of, one_pipeline
from tests.simulation.stories.story import Moment, Story
from tracker.core.log import ShardReport
from tracker.core.log.steps import FIRST_SEQUENCER as SEQUENCER

JOINS = "joins"


def draw_joins(rng: random.Random, plan: Plan) -> Plan:
    """Shards come while a front comes and goes behind one that is far ahead: a newcomer may have heard of
    more than the shards that do not count it yet."""
    shards = rng.choice([2, 2, 3])
    leader = FrontPlan(name_of(rng, "front", shards), 0, 0, leaves=False, joins_ns=0, role="leader")
    visitor = FrontPlan(
        name_of(rng, "visitor", shards), 0, 1, leaves=True, joins_ns=MS, late=True, role="visitor"
    )
    pipeline = one_pipeline(
        rng, ("s0",), (), (leader, visitor), draw_workers(rng, 1, 1),
        hops=1, child_share=0.0, is_open=rng.random() < 0.5,
    )  # fmt: skip
    return replace(
        calm(rng, plan, pipeline),
        story=JOINS,
        shards=shards,
        config=rng.choice([QUICK, ROOMY]),
        pause_ns=1.0 * MS,
        faults_for_ns=rng.randint(60, 90) * MS,
        late_share=0.0,
        bad_share=0.02,
    )


class JoinsStory(Story):
    """A newcomer has heard of more than the shards that do not count it yet."""

    def moments(self) -> list[Callable[[], Moment]]:
        return [self._joined]

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
