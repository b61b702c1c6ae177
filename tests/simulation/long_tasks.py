"""Simulated long tasks of eager local trackers, which hold time by steps (rule 11).

A task consumes its input at once and holds its time in that step, as with `acks.hold`; what it makes comes out by
later steps, which move the hold or let go of it. The hold is that of the local tracker's node, through as many local
trackers as there are between. What a task keeps is its own durable record, and goes on when a worker comes back.
"""

from __future__ import annotations

import random
from collections import deque
from functools import partial
from typing import TYPE_CHECKING

from tests.simulation.holders import Keeper, Place
from tests.simulation.local_trackers import EagerWorker, Upper
from tests.simulation.world import Item, World
from tracker.core.model import HoldMove

if TYPE_CHECKING:
    from tests.simulation.simulator import Simulator


class LongTaskWorker(EagerWorker):
    """An eager worker some of whose tasks take long, and hold time meanwhile."""

    def __init__(
        self, sim: Simulator, world: World, name: str, upper: Upper, reads: set[int]
    ) -> None:
        self.keeper = Keeper(random.Random(f"long tasks {sim.plan.seed} {name}"))
        self._due: deque[str] = deque()
        """The holds whose tasks go on as soon as the worker is free."""
        super().__init__(sim, world, name, upper, reads)

    @property
    def settled(self) -> bool:
        return super().settled and not self.keeper.holding

    def renew(self) -> None:
        super().renew()
        self.keeper.clear()

    def die(self) -> None:
        super().die()
        self._due.clear()
        if self.keeper.holding:
            self.sim.count("eager_holders_dying")

    def resume(self) -> None:
        for name in self.keeper.holding:
            self._soon(name)
        super().resume()

    def wake(self) -> None:
        if self.free and self._due:
            self._go_on(self._due.popleft())
        else:
            super().wake()

    def found_nothing(self) -> None:
        if self._due:
            self.wake()

    def put_aside(
        self, consumed: list[Item], created: list[Item]
    ) -> tuple[list[Item], tuple[HoldMove, ...]]:
        chosen = self.keeper.choose(consumed, created, healed=self.sim.healed)
        if chosen is None:
            return created, ()
        now, name, at = chosen
        self.sim.count("eager_holds_begun")
        self._soon(name)
        return now, (self._stand(name, at),)

    def _stand(self, name: str, at: Place | None) -> HoldMove:
        """All workers of a tree share a node: the hold's name says whose it is."""
        move = self.keeper.stand(name, at)
        self.world.hold((self.name, name), at)
        return HoldMove(f"{self.name}-{name}", move.segment, move.slot)

    def _soon(self, name: str) -> None:
        pause_ns = self.keeper.pause_ns(healed=self.sim.healed)
        self.later(pause_ns, partial(self._ripe, name))

    def _ripe(self, name: str) -> None:
        self._due.append(name)
        self.wake()

    def _go_on(self, name: str) -> None:
        """What was kept comes out in the step that moves the hold."""
        comes_out, to = self.keeper.go_on(name, healed=self.sim.healed)
        move = self._stand(name, to)
        self.sim.count("eager_holds_let_go" if to is None else "eager_holds_moved")
        if to is not None:
            self._soon(name)
        self.step([], comes_out, (move,))
