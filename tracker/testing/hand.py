"""A front whose labels a test gives, and the items that it has let in: what a test of those who wait needs, without a
query."""

from __future__ import annotations

from datetime import datetime

from tracker.client.closing import Closing
from tracker.client.moments import parse_slot
from tracker.client.node import NodeClient, segment_number
from tracker.client.updates import slot_at, slot_until
from tracker.core.model import Cells, Heartbeat, NodeKind, PipelineSpec, TickContent
from tracker.core.model.ack_values import root_value

COMMIT_S = 30.0
"""A tick that a tracker of this very machine has not made durable by then never will be."""

When = datetime | str | int
"""A moment: a datetime, an ISO date or time (of UTC unless it has an offset), or a slot."""


def slot_of_moment(when: When, spec: PipelineSpec, *, up: bool = False) -> int:
    """The slot in which a moment lies; or, `up`, the min time by which all before it is complete. Raises ValueError."""
    if isinstance(when, str):
        return parse_slot(when, spec.slack_ns, spec.rounds, up=up)
    return (slot_until if up else slot_at)(when, spec.slack_ns, spec.rounds)


class HandFront(Closing):
    """A front that lets in what the test says, under the moments that it names. Each call returns when the tracker has
    made it durable, and raises RefusedError where the tracker refuses it, as a label below min time."""

    def __init__(self, target: str, pipeline: str, front: str, segment: str) -> None:
        self.name, self._ordinal = front, 0
        self._node = NodeClient(target, pipeline, front, NodeKind.FRONT)
        try:
            self._run = self._node.join(COMMIT_S).key.incarnation
            self._node.join_front(front, segment, COMMIT_S)
        except BaseException:
            self._node.close()
            raise
        self._segment = segment

    def let_in(self, at: When) -> HandItem:
        """An item, labelled with a moment: min time does not pass it before it is done."""
        slot = slot_of_moment(at, self._node.spec)
        # Of this run of the front: the same value once more would take out what an earlier one has left open.
        value = root_value(self.name, self._run, self._ordinal)
        self._ordinal += 1
        item = HandItem(self._node, slot, value)
        item.move_to(self._segment)
        return item

    def promise(self, until: When) -> None:
        """Nothing is let in before a moment any more: min time may go so far."""
        slot = slot_of_moment(until, self._node.spec, up=True)
        promised = TickContent(heartbeats=(Heartbeat(self.name, slot),))
        self._node.commit(promised).result(COMMIT_S)

    def leave(self) -> None:
        """Nothing is let in ever again: when all items are done, and all fronts have left, the pipeline is complete."""
        self._node.leave_front(self.name).result(COMMIT_S)

    def close(self) -> None:
        """Ends this run of the front, as a process that ends without leaving: min time waits for it."""
        self._node.close()


class HandItem:
    """An item in flight, in one segment at a time."""

    def __init__(self, node: NodeClient, slot: int, value: int) -> None:
        self.slot = slot
        self._node, self._value, self._in = node, value, ""

    def move_to(self, segment: str) -> None:
        """It has been processed where it was, and what came of it is in another segment: one step, as the tick of a
        query is."""
        self._commit(segment)

    def done(self) -> None:
        """It has been processed, and nothing comes of it."""
        self._commit("")

    def _commit(self, segment: str) -> None:
        consumed, created = self._cells(self._in), self._cells(segment)
        self._node.commit(TickContent(consumed=consumed, created=created)).result(COMMIT_S)
        self._in = segment

    def _cells(self, segment: str) -> Cells:
        if not segment:
            return Cells.of([])
        number = segment_number(self._node.spec, segment)
        return Cells.of([(number, self.slot, self._value, 1)])
