"""An uplink in memory: knows every item, answers at once, and fails as it is told."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from local_tracker.agent.uplink import MinTimes
from local_tracker.worker.handle import Handle
from local_tracker.worker.protocol import Deadline, HandedOver
from tracker.core.log import Grant
from tracker.core.model import Cells, HoldMove, TickContent
from tracker.core.model.slots import FOREVER
from tracker.errors import Code, HandOverError

Rows = list[tuple[int, int, int, int]]


def one_cell(segment: int, slot: int, checksum: int, count: int = 1) -> Cells:
    return Cells.of([(segment, slot, checksum, count)])


class FakeUplink:
    """Takes flushes and contributions in order. `before_flush` and `before_stage` may raise, or
    block, before anything is taken; `after_flush` when it has been taken (as if the answer was lost)."""

    pipeline = "p"
    segments: tuple[str, ...] = ("a", "b")
    slack_ns = 10_000_000
    rounds = 1

    def __init__(self) -> None:
        self.flushes: dict[int, tuple[TickContent, bytes]] = {}
        self.order: list[int] = []
        self.attempts: list[tuple[int, bool]] = []
        self.above, self.sent_first_to = "", dict[int, str]()
        self.staged: dict[tuple[object, ...], HandedOver] = {}
        self.stage_calls: list[int] = []
        self.left_fronts: list[str] = []
        self.before_flush: Callable[[int, TickContent], None] = lambda number, content: None
        self.after_flush: Callable[[int], None] = lambda number: None
        self.before_stage: Callable[[Sequence[HandedOver]], None] = lambda handed: None
        self.last_known, self.generation = 0, 0
        self.flushed = threading.Event()
        self.watching: MinTimes | None = None
        self.closed_leaving: bool | None = None

    def look_again(self, segment: str) -> None:
        pass

    def stage(self, node_id: str, contributions: Sequence[HandedOver], deadline: Deadline) -> None:
        self.before_stage(contributions)
        self.stage_calls.append(len(contributions))
        for handed in contributions:
            self.staged[(node_id, *handed.contribution.key)] = handed

    def open(self) -> tuple[int, int | None]:
        return self.last_known, self.generation

    def record_above(self) -> str:
        return self.above

    def flush(
        self, number: int, content: TickContent, fingerprint: bytes, again: bool, above: str
    ) -> None:
        self.sent_first_to[number] = above
        self.attempts.append((number, again))
        self.before_flush(number, content)
        known = self.flushes.get(number)
        if known is None:
            self.flushes[number] = content, fingerprint
            self.order.append(number)
        elif known[1] != fingerprint:
            raise HandOverError(
                f"flush {number} has other contents than before", Code.REFUSED_ROLLED_BACK
            )
        self.flushed.set()
        self.after_flush(number)

    def join_front(self, front: str, segment: str, deadline: Deadline) -> Grant:
        return Grant(front, self.segments.index(segment), 7, -5, True)

    def leave_front(self, front: str, joining: tuple[int, int], deadline: Deadline) -> None:
        self.left_fronts.append(front)

    def holds(self, deadline: Deadline) -> tuple[HoldMove, ...]:
        held: dict[str, HoldMove] = {}
        for content, _ in self.flushes.values():
            held |= {move.name: move for move in content.holds}
        return tuple(move for move in held.values() if move.slot != FOREVER)

    def watch(self, heard: MinTimes) -> None:
        self.watching = heard

    def close(self, leave: bool) -> None:
        self.closed_leaving = leave

    def sums(self) -> dict[tuple[int, int], int]:
        """The XOR of all that was flushed, by (segment, slot), where it is not zero."""
        sums: dict[tuple[int, int], int] = {}
        for content, _ in self.flushes.values():
            for segment, slot, checksum, _ in content.created.rows() + content.consumed.rows():
                sums[segment, slot] = sums.get((segment, slot), 0) ^ checksum
        return {cell: checksum for cell, checksum in sums.items() if checksum}


def hands_over(handle: Handle, created: Cells) -> tuple[threading.Thread, list[str]]:
    """A worker that hands over a step; the codes with which that was refused."""
    refused: list[str] = []

    def hand_over() -> None:
        try:
            handle.step(created, Cells.empty())
        except HandOverError as error:
            refused.append(error.code)

    worker = threading.Thread(target=hand_over)
    worker.start()
    return worker, refused


def refusing(bad: int) -> Callable[[int, TickContent], None]:
    """Refuses flushes that create the item `bad`."""

    def check(number: int, content: TickContent) -> None:
        # A merged checksum is the XOR of several items: `bad` has a bit that no other item has.
        if any(checksum & bad for _, _, checksum, _ in content.created.rows()):
            raise HandOverError(
                f"item {bad} was created below min time", Code.REFUSED_BELOW_MIN_TIME
            )

    return check
