"""A tracker's answers to one front, by hand: what a real one would do, when the test says so."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future

from tests.waits import HANG_S
from tracker.core.log import Grant, Joined
from tracker.core.model import (
    Batch,
    NodeKey,
    PipelineSpec,
    Refusal,
    RefusalCode,
    TickContent,
    Unit,
)
from tracker.core.model.slots import LOWEST_SLOT
from tracker.errors import LowmarkError, RefusedError

SPEC = PipelineSpec("p", ("other", "in"), slack_ns=10)


class FakeTracker:
    """What a tracker keeps of one front; survives the front's runs."""

    def __init__(self, grant: int = 0) -> None:
        self.grant = grant
        self.incarnation = 0
        self.heartbeat = LOWEST_SLOT
        self.last: Batch | None = None
        self.ticks: list[TickContent] = []
        """Durable ticks in their order."""
        self.created: list[tuple[int, int, int]] = []
        """Slot, checksum and number of items of durable cells."""
        self.units: list[Unit] = []
        self.left = False
        self.holding = False
        """Ticks wait for `release`, instead of becoming durable at once."""
        self.refusals: list[Refusal] = []
        """Given to the next ticks, one each."""
        self.changed = threading.Condition()
        self.node: FakeNode | None = None

    def connect(self) -> FakeNode:
        return FakeNode(self)

    def wait(self, until: Callable[[], object]) -> None:
        """Waits until what a front does in the background has made something true."""
        with self.changed:
            assert self.changed.wait_for(until, HANG_S), "waited in vain"

    def release(self) -> None:
        """Lets the ticks that wait become durable, and those that follow."""
        self.holding = False
        if self.node is not None:
            self.node.resolve_held()

    def apply(self, content: TickContent) -> None:
        with self.changed:
            for segment, slot, checksum, count in content.created.rows():
                assert segment == 1 and slot >= self.heartbeat, "created below its own promise"
                self.created.append((slot, checksum, count))
            for beat in content.heartbeats:
                assert beat.slot > self.heartbeat, "a promise is news"
                self.heartbeat = beat.slot
            if content.batch is not None:
                assert self.last is None or content.batch.id > self.last.id
                self.last = content.batch
            self.units += content.units_created
            self.left = self.left or bool(content.leaves)
            self.ticks.append(content)
            self.changed.notify_all()


class FakeNode:
    """One incarnation: what `NodeClient` is to a front."""

    def __init__(self, tracker: FakeTracker) -> None:
        self.tracker = tracker
        self.held: list[tuple[TickContent, Future[int]]] = []
        self.closed = False
        self.owner = ""
        self.gone, self.never_left, self.left_in = False, False, -1

    def check_join(self, timeout_s: float, *, owner: str = "") -> Joined:
        other = self.tracker.node
        if other is not None and not other.closed and "" not in (owner, other.owner):
            raise RefusedError(refusal(RefusalCode.CONFLICT))
        return Joined(NodeKey("f", self.tracker.incarnation), SPEC, (), 0, ())

    def join(self, timeout_s: float, *, owner: str = "") -> Joined:
        self.tracker.incarnation += 1
        self.tracker.node, self.owner = self, owner
        last = () if self.tracker.last is None else (self.tracker.last,)
        return Joined(NodeKey("f", self.tracker.incarnation), SPEC, last, 0, ())

    def segment(self, name: str) -> int:
        return SPEC.segments.index(name)

    def join_front(self, front: str, segment: str, timeout_s: float) -> Grant:
        return Grant(front, 1, self.tracker.grant, self.tracker.heartbeat, True)

    def commit(self, content: TickContent) -> Future[int]:
        future: Future[int] = Future()
        with self.tracker.changed:
            if self.closed:
                raise LowmarkError("closed")
            assert not self.held, "one tick is out at a time"
            self.held.append((content, future))
            self.tracker.changed.notify_all()
        if not self.tracker.holding:
            self.resolve_held()
        return future

    def resolve_held(self) -> None:
        held, self.held = self.held, []
        for content, future in held:
            if self.tracker.refusals:
                future.set_exception(RefusedError(self.tracker.refusals.pop(0), of_tick=True))
            else:
                self.tracker.apply(content)
                future.set_result(len(self.tracker.ticks))

    def crash(self, arrived: bool) -> None:
        """The front's process is gone, with a tick out that did or did not arrive."""
        held, self.held, self.closed = self.held, [], True
        for content, future in held:
            if arrived:
                self.tracker.apply(content)
            future.set_exception(LowmarkError("gone"))

    def leave(self, timeout_s: float) -> None:
        assert self.tracker.left, "its front must leave first"
        self.gone = True
        self.close()

    def close(self) -> None:
        if not self.closed:
            self.crash(arrived=False)


def refusal(code: RefusalCode) -> Refusal:
    return Refusal(code, f"refused as {code.value}")
