"""Fronts join one segment and leave it at once for another."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from tests.simulation.nodes import WanderingFront
from tests.simulation.plan import MS, QUICK, ROOMY, FrontPlan, Plan
from tests.simulation.stories.plans import calm, draw_workers, name_of, one_pipeline
from tests.simulation.stories.story import Moment, Story

WANDERS = "wanders"


def draw_wanders(rng: random.Random, plan: Plan) -> Plan:
    """Fronts join one segment and leave it at once for another, which has nothing to do with the first
    and is far ahead of it, as far as their home has heard."""
    shards = rng.choice([2, 2, 3])
    slow = FrontPlan(name_of(rng, "front", shards), 0, 3, leaves=False, joins_ns=0)
    leader = FrontPlan(
        name_of(rng, "leader", shards), 1, 0, leaves=False, joins_ns=0, role="leader"
    )
    wanderer = FrontPlan(
        name_of(rng, "wanderer", shards, leader.name, together=True), 0, 1, leaves=True,
        joins_ns=MS, late=True, role="wanderer",
    )  # fmt: skip
    workers = draw_workers(rng, 2, 1)
    pipeline = one_pipeline(
        rng, ("s0", "s1"), (), (slow, leader, wanderer), workers,
        hops=1, child_share=0.0, is_open=rng.random() < 0.5,
    )  # fmt: skip
    return replace(
        calm(rng, plan, pipeline),
        story=WANDERS,
        shards=shards,
        config=rng.choice([QUICK, ROOMY]),
        pause_ns=1.0 * MS,
        faults_for_ns=rng.randint(60, 90) * MS,
        part_commits=0.7,
        late_share=0.0,
        bad_share=0.02,
    )


class WandersStory(Story):
    """A front is elsewhere before a shard has heard of where it was."""

    def moments(self) -> list[Callable[[], Moment]]:
        return [self._wandered]

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

    def _is_ahead(self, shard: int, of: int, segment: int) -> bool:
        """Whether a shard has announced more than another one."""
        one, other = self._pipeline(shard), self._pipeline(of)
        return (
            one is not None
            and other is not None
            and one.announced[segment] > other.announced[segment] + 3
        )
