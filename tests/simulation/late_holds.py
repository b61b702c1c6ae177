"""Holds that are begun too late, while the home of their node cannot know that yet (rule 11).

A worker consumes what was never in flight, below a min time that another process has announced, and begins a hold
there. Its home may take that tick: it has not heard of the announcement. Such a hold holds nothing. Once the home has
heard, it must refuse whatever names the hold again, so that nothing rests on it; and letting go of it is always taken.
"""

from __future__ import annotations

import random
from functools import partial
from typing import TYPE_CHECKING

from tests.simulation.plan import MS
from tracker.core.log import Joined
from tracker.core.model import Cells, HoldMove, Refusal, RefusalCode, TickContent
from tracker.core.model.slots import FOREVER

if TYPE_CHECKING:
    from tests.simulation.nodes import WorkerNode

NAME = "late elsewhere"
_SHARE = 0.3
"""Of the steps of a worker that has none, how many begin one, where its home does not know."""
_PAUSE_NS = 2 * MS


class LateHold:
    """The one late hold that a worker may have."""

    def __init__(self, node: WorkerNode) -> None:
        self._node = node
        self._chances = random.Random(f"late holds {node.sim.plan.seed} {node.name}")
        self.forget()

    def forget(self) -> None:
        """The life of the node ends: what is under way may or may not arrive."""
        self._place: tuple[int, int] | None = None
        """(segment, slot), while its home keeps the hold."""
        self._under_way: TickContent | None = None
        """The tick that begins it or lets go of it."""

    @property
    def settled(self) -> bool:
        return self._place is None and self._under_way is None

    def joined(self, joined: Joined) -> None:
        """The home says what the node holds."""
        for held in joined.holds:
            if held.name == NAME:
                self._place = held.segment, held.slot
                self._soon()

    def perhaps_begin(self, segment: int) -> None:
        """Begins one below what is announced, if the home does not know of that yet."""
        node, floors = self._node, self._floors()
        if not self.settled or floors is None or node.sim.healed or node.world.spec.rounds > 1:
            return
        announced = node.sim.checkers[node.world.spec.name].highest[segment]
        if not floors[segment] < announced < FOREVER or self._chances.random() >= _SHARE:
            return
        node.world.exact_late = False  # what the hold itself leaves behind is counted late, too
        never = Cells.of([(segment, announced - 1, self._chances.getrandbits(63) + 1, 1)])
        self._commit(TickContent(consumed=never, holds=(HoldMove(NAME, segment, announced - 1),)))

    def is_durable(self, content: TickContent) -> None:
        """A tick of the node is durable."""
        if content is not self._under_way:
            return
        self._under_way = None
        move = content.holds[0]
        if move.slot == FOREVER:
            self._place = None
            return
        self._node.sim.count("holds_late_elsewhere")
        self._place = move.segment, move.slot
        self._soon()

    def is_refused(self, content: TickContent, refusal: Refusal) -> bool:
        """Whether it was the beginning of the hold, of which the home has heard in time that it would be late."""
        begins = content is self._under_way and content.holds[0].slot != FOREVER
        if begins and refusal.code is RefusalCode.BELOW_MIN_TIME:
            self._under_way = None
            return True
        return False

    def _commit(self, content: TickContent) -> None:
        self._under_way = content
        self._node.commit(content)

    def _floors(self) -> list[int] | None:
        """What the home of the node has heard announced, by segment; None while it is away."""
        node = self._node
        pipeline = node.sim.pipeline_at(node.home, node.world.spec.name)
        return pipeline.floors() if pipeline else None

    def _soon(self) -> None:
        self._node.later(_PAUSE_NS, self._name_again)

    def _name_again(self) -> None:
        """Names the hold again, where it stands or moved up, as soon as its home must refuse that; then lets go."""
        if self._place is None:
            return
        (segment, slot), floors = self._place, self._floors()
        if floors is None or floors[segment] <= slot:
            self._soon()
            return
        to = slot if self._chances.random() < 0.5 else floors[segment]
        if to < FOREVER:
            self._node.sim.count("late_holds_named_again")
            again = TickContent(holds=(HoldMove(NAME, segment, to),))
            self._node.commit_refused(again, (RefusalCode.BELOW_MIN_TIME,))
        let_go = TickContent(holds=(HoldMove(NAME, segment, FOREVER),))
        self._node.later(_PAUSE_NS, partial(self._commit, let_go))
