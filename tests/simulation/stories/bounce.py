"""A few items go round and round between shards that are kept apart."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from tests import inside
from tests.simulation.plan import MS, QUICK, ROOMY, FrontPlan, Plan
from tests.simulation.stories.plans import calm, draw_workers, name_of, one_pipeline
from tests.simulation.stories.story import Moment, Story
from tracker.core.log import ShardReport
from tracker.core.model import Edge

BOUNCE = "bounce"
MANY_SCOPES = 12


def draw_bounce(rng: random.Random, plan: Plan) -> Plan:
    """A few items go round and round between shards that are kept apart, and no front holds min time
    any more: whoever overlooks an item says so at once."""
    front = FrontPlan(
        name_of(rng, "front", 1), 0, batches=1, leaves=True, joins_ns=0, role="one item"
    )
    segments = tuple(f"s{n}" for n in range(rng.choice([1, 2, 3])))
    edges = tuple(
        Edge(name, segments[(n + 1) % len(segments)], rng.choice([0, 1, 1]))
        for n, name in enumerate(segments)
    )
    workers = draw_workers(rng, len(segments), rng.choice([1, 1, 2]))
    pipeline = one_pipeline(
        rng, segments, edges, (front,), workers, hops=40, child_share=1.0, is_open=False
    )
    return replace(
        calm(rng, plan, pipeline),
        story=BOUNCE,
        scopes=rng.choice([1, 1, MANY_SCOPES]),
        late_share=0.0,
        bad_share=0.02,
        shards=rng.choice([2, 3, 3]),
        config=rng.choice([QUICK, QUICK, ROOMY]),
        pause_ns=rng.choice([0.5, 1.0]) * MS,
        faults_for_ns=rng.randint(40, 60) * MS,
    )


class BounceStory(Story):
    """Items move on between shards that know each other at moments far apart."""

    def moments(self) -> list[Callable[[], Moment]]:
        if self.sim.plan.config is not QUICK:
            return [self._unreported, self._anew, self._anew]
        outdated = [self._outdated] * self.sim.plan.reorders
        return [self._overtaken, self._overtaken, self._behind, self._unreported, *outdated]

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

    # --- looking ----------------------------------------------------------------------------------

    def _open_at(self) -> list[int]:
        """The shards that have open cells."""
        return [shard for shard in range(self.sim.plan.shards) if self._has_open(shard)]

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
