"""Simulated workers that hold time (rule 11): what they have taken in comes out later, as of a query's state.

A holder keeps some children of what it consumes for later, and holds the lowest of their slots; or it holds what
it has consumed for a while, as a long task does. What it keeps is its own durable record. Its chances are drawn
beside those of the run, so that a schedule without holders is what it was before there were any.
"""

from __future__ import annotations

import random
from functools import partial
from typing import TYPE_CHECKING

from tests.simulation.checkers import Failure
from tests.simulation.nodes import WorkerNode, step_content
from tests.simulation.plan import MS, PipelinePlan, Plan
from tests.simulation.world import Item, World
from tracker.core.log import Joined
from tracker.core.model import Batch, HoldMove, RefusalCode, TickContent
from tracker.core.model.slots import FOREVER

if TYPE_CHECKING:
    from tests.simulation.simulator import Simulator

SHARE, STORMY_SHARE = 0.7, 0.4
"""Of the pipelines in which workers could hold time, how many have such; in storms."""
MAX_HOLDS = 3
_FAR_SLOTS = 10_000
_RETRY_NS = 2 * MS

Place = tuple[int, int]
"""(segment, slot)."""


def holds_time(plan: Plan, pipeline: PipelinePlan, kind: str = "plain") -> bool:
    """Whether workers of a pipeline of that kind hold time: where no operator gives up what they hold, and no
    story or front decides what there is."""
    if plan.story or pipeline.write_offs or pipeline.spec.evicts or pipeline.kind != kind:
        return False
    if pipeline.spec.rounds > 1:  # what a node holds may stand for anything that it creates
        return False
    share = STORMY_SHARE if plan.storm else SHARE
    return random.Random(f"holders {plan.seed} {pipeline.spec.name}").random() < share


class Keeper:
    """What is kept for later, and where time is held for it: the durable record of who holds."""

    def __init__(self, chances: random.Random) -> None:
        self.chances = chances
        self.clear()

    def clear(self) -> None:
        self.kept: dict[str, list[Item]] = {}
        """By name of the hold, what it stands for."""
        self.holding: dict[str, Place] = {}

    def choose(
        self, consumed: list[Item], created: list[Item], *, healed: bool
    ) -> tuple[list[Item], str, Place] | None:
        """Which of the items that a step makes come into being by it, and the name and place of the hold
        for the rest; None if nothing is to be put aside."""
        sources = [item for item in consumed if item.known and not item.late]
        full = len(self.holding) >= MAX_HOLDS
        if not sources or full or healed or self.chances.random() < 0.4:
            return None
        kept: list[Item] = []
        at = min((item.segment, item.slot) for item in sources)
        if created and self.chances.random() < 0.7:
            segment = self.chances.choice(created).segment
            kept = [item for item in created if item.segment == segment]
            at = segment, min(item.slot for item in kept)
        name = next(n for n in "abcd" if n not in self.holding)
        self.kept[name] = kept
        return [item for item in created if item not in kept], name, at

    def stand(self, name: str, at: Place | None) -> HoldMove:
        """The hold stands there from now on, or (None) is let go of."""
        segment, _ = self.holding[name] if at is None else at
        if at is None:
            del self.holding[name], self.kept[name]
        else:
            self.holding[name] = at
        return HoldMove(name, segment, FOREVER if at is None else at[1])

    def go_on(self, name: str, *, healed: bool) -> tuple[list[Item], Place | None]:
        """What comes out of what was kept, from the lowest slot on, and to where the hold moves then."""
        (segment, slot), kept = self.holding[name], self.kept[name]
        self.kept[name] = left = [item for item in kept if item.slot > slot]
        to = min((item.slot for item in left), default=None)
        if to is None and not healed and self.chances.random() < 0.4:
            to = slot + self.chances.choice([1, 2, 5])  # it holds on, for nothing
        comes_out = [item for item in kept if item.slot == slot]
        return comes_out, None if to is None else (segment, to)

    def pause_ns(self, *, healed: bool) -> int:
        """How long a hold stands."""
        return int((0.2 if healed else 1.0) * self.chances.randint(1, 25) * MS)


class HolderNode(WorkerNode):
    """A worker that puts some of what it makes aside, and holds time for it."""

    def __init__(self, sim: Simulator, world: World, name: str, reads: set[int]) -> None:
        self.keeper = Keeper(random.Random(f"holds {sim.plan.seed} {name}"))
        self.held_after: dict[int, dict[str, Place]] = {}
        """By batch, what the node holds after it."""
        super().__init__(sim, world, name, reads)

    @property
    def holding(self) -> dict[str, Place]:
        return self.keeper.holding

    def renew(self) -> None:
        super().renew()
        self.keeper.clear()
        self.held_after = {}

    @property
    def settled(self) -> bool:
        return super().settled and not self.holding

    def die(self) -> None:
        super().die()
        if self.holding:
            self.sim.count("holders_dying")

    def joined(self, joined: Joined) -> None:
        """It must be told just what it holds by the batches that the tracker has."""
        last = max((batch.id for batch in joined.last_batches), default=-1)
        known = max((number for number in self.held_after if number <= last), default=None)
        expected = {} if known is None else self.held_after[known]
        told = {held.name: (held.segment, held.slot) for held in joined.holds}
        if told != expected:
            raise Failure("broken", f"{self.name} holds {expected}, and was told {told}")
        if expected:
            self.sim.count("holds_found_again")
        for name in self.holding:
            self._soon(name)
        super().joined(joined)

    def perhaps_a_late_hold(self, segment: int) -> None:
        """Not here: what this node holds is known in every detail."""

    # --- taking time ------------------------------------------------------------------------------

    def put_aside(
        self, batch: Batch, consumed: list[Item], created: list[Item]
    ) -> tuple[list[Item], tuple[HoldMove, ...]]:
        chosen = self.keeper.choose(consumed, created, healed=self.sim.healed)
        if chosen is None:
            return created, ()
        now, name, at = chosen
        self.sim.count("holds_begun")
        self._soon(name)
        return now, (self._stand(batch, name, at),)

    def _stand(self, batch: Batch, name: str, at: Place | None) -> HoldMove:
        move = self.keeper.stand(name, at)
        self.held_after[batch.id] = dict(self.holding)
        self.world.hold((self.name, name), at)
        return move

    def _soon(self, name: str) -> None:
        self.later(self.keeper.pause_ns(healed=self.sim.healed), partial(self._go_on, name))

    def _go_on(self, name: str) -> None:
        """What was kept comes out in the tick that moves the hold."""
        if name not in self.holding:
            return
        if self.key is None:
            self.later(_RETRY_NS, partial(self._go_on, name))
            return
        comes_out, to = self.keeper.go_on(name, healed=self.sim.healed)
        batch = self.new_batch()
        self.world.step([], comes_out)
        move = self._stand(batch, name, to)
        self.sim.count("holds_let_go" if to is None else "holds_moved")
        content = step_content(batch, created=comes_out)
        content.holds = (move,)
        self.publish(content)
        self.sim.items_appeared(self.world)
        if to is not None:
            self._soon(name)

    def bad_ways(self) -> list[tuple[TickContent, tuple[RefusalCode, ...]]]:
        """Not here: what it holds may lead anywhere."""
        return []

    def bad_holds(self) -> list[tuple[TickContent, tuple[RefusalCode, ...]]]:
        """What must be refused: one out of nothing, and one that moves back."""
        codes: tuple[RefusalCode, ...] = (RefusalCode.INVALID, RefusalCode.BELOW_MIN_TIME)
        start = self.world.spec.start_slot
        move = HoldMove("nothing", 0, start + _FAR_SLOTS)
        for name, (segment, _) in self.holding.items():
            move = HoldMove(name, segment, start - 1)
        return 3 * [(TickContent(holds=(move,)), codes)]
