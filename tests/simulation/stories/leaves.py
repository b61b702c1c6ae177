"""All shards but one are to go, and the last that goes has something to wait for."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from tests import inside
from tests.simulation.plan import MS, QUICK, ROOMY, FrontPlan, Plan
from tests.simulation.stories.plans import calm, draw_workers, name_of, one_pipeline
from tests.simulation.stories.story import Moment, Story
from tracker.core.log import EntriesReceived
from tracker.core.log.steps import FIRST_SEQUENCER as SEQUENCER
from tracker.core.model.routing import RoutingTable

if TYPE_CHECKING:
    from tests.simulation.rescaling import RescalingSimulator

LEAVES = "leaves"
_SHARDS = 3
_LAST = 1
"""The shard that goes last: of those that go, the one with the highest number goes first."""


def draw_leaves(rng: random.Random, plan: Plan) -> Plan:
    """A front comes and goes at the shard that will go last: it has keys to drop before it may go."""
    leader = FrontPlan(name_of(rng, "front", 1), 0, 0, leaves=False, joins_ns=0, role="leader")
    at_last = (f"p0-visitor-{n}" for n in range(1_000))
    visitor = FrontPlan(
        next(name for name in at_last if RoutingTable.uniform(_SHARDS).home("p0", name) == _LAST),
        0, 1, leaves=True, joins_ns=MS, late=True, role="visitor",
    )  # fmt: skip
    pipeline = one_pipeline(
        rng, ("s0",), (), (leader, visitor), draw_workers(rng, 1, 1),
        hops=1, child_share=0.0, is_open=rng.random() < 0.5,
    )  # fmt: skip
    return replace(
        calm(rng, plan, pipeline),
        story=LEAVES,
        shards=_SHARDS,
        config=rng.choice([QUICK, ROOMY]),
        pause_ns=1.0 * MS,
        faults_for_ns=rng.randint(60, 90) * MS,
        late_share=0.0,
        bad_share=0.02,
    )


class LeavesStory(Story):
    """A shard is told to go while another one is going, as far as it has heard."""

    def moments(self) -> list[Callable[[], Moment]]:
        return [self._left]

    def _left(self) -> Moment:
        """A shard does not hear that another one has what it said of a key that is closed, so it keeps
        the key. Both are told to go; the last words of the one that goes first reach the other after the
        word that it is to go itself, and it cannot go yet."""
        sim = cast("RescalingSimulator", self.sim)
        first = _SHARDS - 1
        sim.deafen_link(first, _LAST, 60 * MS, EntriesReceived)
        yield self._has_closed_keys
        sim.wish(1, evacuate=True)
        yield lambda: self._leaving_at(SEQUENCER) == first
        sim.hold_link(first, _LAST, sim.milliseconds(6, 10))
        yield lambda: self._leaving_at(_LAST) == _LAST
        yield sim.milliseconds(2, 4)
        sim.mend_link(first, _LAST)
        yield 10 * MS

    def _has_closed_keys(self) -> bool:
        """Whether the shard that goes last has keys to drop."""
        running = self.sim.shards[_LAST].running
        return running is not None and len(inside.closed_keys(running.process)) > 0

    def _leaving_at(self, shard: int) -> int | None:
        """Who is to go now, as far as a shard has heard."""
        running = self.sim.shards[shard].running
        return None if running is None else running.process.membership.leaving
