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

SHARE = 0.7
"""Of the pipelines in which workers could hold time, how many have such."""
MAX_HOLDS = 3
_FAR_SLOTS = 10_000
_RETRY_NS = 2 * MS

Place = tuple[int, int]
"""(segment, slot)."""


def holds_time(plan: Plan, pipeline: PipelinePlan) -> bool:
    """Whether workers of a pipeline hold time: where no operator gives up what they hold, and no story or front
    decides what there is."""
    if plan.story or pipeline.write_offs or pipeline.spec.evicts or pipeline.kind != "plain":
        return False
    return random.Random(f"holders {plan.seed} {pipeline.spec.name}").random() < SHARE


class HolderNode(WorkerNode):
    """A worker that puts some of what it makes aside, and holds time for it."""

    def __init__(self, sim: Simulator, world: World, name: str, reads: set[int]) -> None:
        self.chances = random.Random(f"holds {sim.plan.seed} {name}")
        self._clear()
        super().__init__(sim, world, name, reads)

    def _clear(self) -> None:
        self.kept: dict[str, list[Item]] = {}
        """By name of the hold, what it stands for."""
        self.holding: dict[str, Place] = {}
        self.held_after: dict[int, dict[str, Place]] = {}
        """By batch, what the node holds after it."""

    def renew(self) -> None:
        super().renew()
        self._clear()

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

    # --- taking time ------------------------------------------------------------------------------

    def put_aside(
        self, batch: Batch, consumed: list[Item], created: list[Item]
    ) -> tuple[list[Item], tuple[HoldMove, ...]]:
        sources = [item for item in consumed if item.known and not item.late]
        full = len(self.holding) >= MAX_HOLDS
        if not sources or full or self.sim.healed or self.chances.random() < 0.4:
            return created, ()
        kept: list[Item] = []
        at = min((item.segment, item.slot) for item in sources)
        if created and self.chances.random() < 0.7:
            segment = self.chances.choice(created).segment
            kept = [item for item in created if item.segment == segment]
            at = segment, min(item.slot for item in kept)
        name = next(n for n in "abcd" if n not in self.holding)
        self.kept[name] = kept
        self.sim.count("holds_begun")
        self._soon(name)
        return [item for item in created if item not in kept], (self._stand(batch, name, at),)

    def _stand(self, batch: Batch, name: str, at: Place | None) -> HoldMove:
        """The hold stands there from this batch on, or (None) is let go of."""
        segment, _ = self.holding[name] if at is None else at
        if at is None:
            del self.holding[name], self.kept[name]
        else:
            self.holding[name] = at
        self.held_after[batch.id] = dict(self.holding)
        self.world.hold((self.name, name), at)
        return HoldMove(name, segment, FOREVER if at is None else at[1])

    def _soon(self, name: str) -> None:
        share = 0.2 if self.sim.healed else 1.0
        self.later(int(share * self.chances.randint(1, 25) * MS), partial(self._go_on, name))

    def _go_on(self, name: str) -> None:
        """What was kept comes out, from the lowest slot on, in the tick that moves the hold."""
        if name not in self.holding:
            return
        if self.key is None:
            self.later(_RETRY_NS, partial(self._go_on, name))
            return
        (segment, slot), kept = self.holding[name], self.kept[name]
        comes_out = [item for item in kept if item.slot == slot]
        left = [item for item in kept if item.slot > slot]
        self.kept[name] = left
        to = min((item.slot for item in left), default=None)
        if to is None and not self.sim.healed and self.chances.random() < 0.4:
            to = slot + self.chances.choice([1, 2, 5])  # it holds on, for nothing
        batch = self.new_batch()
        self.world.step([], comes_out)
        move = self._stand(batch, name, None if to is None else (segment, to))
        self.sim.count("holds_let_go" if to is None else "holds_moved")
        content = step_content(batch, created=comes_out)
        content.holds = (move,)
        self.publish(content)
        self.sim.items_appeared(self.world)
        if to is not None:
            self._soon(name)

    def bad_holds(self) -> list[tuple[TickContent, tuple[RefusalCode, ...]]]:
        """What must be refused: one out of nothing, and one that moves back."""
        codes: tuple[RefusalCode, ...] = (RefusalCode.INVALID, RefusalCode.BELOW_MIN_TIME)
        start = self.world.spec.start_slot
        move = HoldMove("nothing", 0, start + _FAR_SLOTS)
        for name, (segment, _) in self.holding.items():
            move = HoldMove(name, segment, start - 1)
        return 3 * [(TickContent(holds=(move,)), codes)]
