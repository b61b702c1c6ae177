"""How a story goes: one moment after another, each waiting for what it needs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING

from tests.simulation.nodes import Node
from tracker.core.model.slots import FOREVER, HIGHEST_SLOT, LOWEST_SLOT

if TYPE_CHECKING:
    from tests.simulation.simulator import Simulator
    from tests.simulation.world import Item
    from tracker.core.pipeline.pipeline import Pipeline

LOOK_EVERY_NS = 400_000
LOOKS = 50
"""After so many looks, what a moment waits for does not come about."""

Moment = Generator[int | Callable[[], bool]]
"""What a moment waits for: some time in nanoseconds, or a condition."""


class Story(ABC):
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
        self._moments = self.moments()

    @abstractmethod
    def moments(self) -> list[Callable[[], Moment]]:
        """Those that the story chooses from; what is there twice is chosen as often."""

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
        return self.sim.pipeline_at(shard, "p0")

    def _has_open(self, shard: int) -> bool:
        pipeline = self._pipeline(shard)
        return pipeline is not None and any(pipeline.shard.cells.open_slots)

    def _has_unreported(self, shard: int) -> bool:
        pipeline = self._pipeline(shard)
        return pipeline is not None and bool(pipeline.shard.changes.touched)

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

    def _has_seen_off(self, shard: int) -> bool:
        """Whether a shard has no front but the leader."""
        pipeline = self._pipeline(shard)
        return pipeline is not None and len(pipeline.shard.fronts) <= 1

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

    # --- doing ------------------------------------------------------------------------------------

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
