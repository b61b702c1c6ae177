"""Functions that run when a time is complete, in the order of times: a notificator.

    with Notificator(target, "orders", "load") as times:
        times.at(datetime(2026, 3, 1, 10), send_report)
        times.run()                     # or times.start(), in a thread of its own

A function runs once min time has reached its time, after all those of lower times that were asked for by then,
and after those of the same time that were asked for before. It may ask for further times itself.

Where it is to emit items at its time, a node holds that time for it, in the segments that are named:

    with Notificator(target, "orders", "load", node=node, holds=["reports"]) as times:
        times.at(slot, lambda slot: TickContent(created=report_of(slot)))

From `at` on, min time of those segments does not pass the slot, until all functions of the time have returned and what
they have returned is durable, in one tick with the end of the hold.
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import replace
from datetime import datetime

from tracker.client.closing import Closing
from tracker.client.node import NodeClient
from tracker.client.subscriber import Subscriber
from tracker.core.model import Cells, RefusalCode, TickContent
from tracker.core.model.slots import FOREVER
from tracker.errors import (
    ClosedError,
    Code,
    LowmarkError,
    RefusedError,
    StateError,
    UnavailableError,
)

MAX_CALLBACKS = 100_000
"""Functions that may wait in one notificator."""
_WAIT_S = 1.0
"""One wait for min time lasts at most this long: then it is looked whether an earlier time was asked for."""

Callback = Callable[[int], object]
"""Is given the time, a slot: everything below it is complete. Where that is held, it may return a TickContent, to
be committed by the node, with those of the time's other functions; one of them may have a batch."""

HOLD_PREFIX = "at/"
"""How the holds of notificators are named: `at/<slot>/<segment>`."""
_DURABLE_S = 60.0
_Entry = tuple[int, int, Callback]
"""A function that waits: its time, how many were asked for before, and itself."""


class Notificator(Closing):
    """Runs functions at times of one segment (None: of the whole pipeline). `at` may be called by any
    thread, one thread runs them."""

    def __init__(
        self,
        target: str | Sequence[str],
        pipeline: str,
        segment: str | None = None,
        *,
        node: NodeClient | None = None,
        holds: Sequence[str] = (),
    ) -> None:
        """node: one of the same pipeline that has joined, and holds the times of functions in the segments
        `holds`; a program that ends leaves its holds to the next under this node id. Raises ValueError for one
        without the other."""
        if (node is None) != (not holds):
            raise ValueError("node and holds go together: who holds times, and in which segments")
        self._node, self._segments = node, tuple(holds)
        self.pipeline, self.segment = pipeline, segment
        self._subscriber = Subscriber(target, pipeline)
        self._heap: list[_Entry] = []
        self._asked = 0
        self._changed = threading.Condition()
        self._running = threading.Lock()
        self._holding = threading.RLock()
        """A time is taken and let go of by one at a time: else a hold might end that another thread has just found there."""
        self._returned: dict[int, TickContent] = {}
        """By time what functions have returned of which others still wait: committed with theirs, since a process
        that comes back asks for all of them again."""
        self._under_way: dict[_Entry, Future[int]] = {}
        """By the last function of a time the tick that lets go of it, until that is durable or refused."""
        self._closed = False
        self._thread: threading.Thread | None = None
        self.failure: Exception | None = None
        """What has ended the thread that `start` began."""

    def at(self, when: int | datetime, function: Callback) -> None:
        """Asks for a call when everything before a moment, or below a slot, is complete; at once if it is
        already. Where times are held, this one is on return. Raises LowmarkError if MAX_CALLBACKS wait; of a
        moment RefusedError, UnavailableError; and what `NodeClient.hold` raises, so RefusedError for a
        time that can be held no more."""
        slot = self._subscriber.slot_until(when)
        if self._node is None:
            self._push(slot, function)
            return
        with self._holding:
            before = self._node.holds
            try:
                for segment in self._segments:
                    self._node.hold(segment, slot, _name(slot, segment))
                self._push(slot, function)
            except LowmarkError as error:
                # Of a time that cannot be held in all segments, an earlier process may have died before it had asked for
                # a function there: what that held would be let go of by nobody.
                gone = (
                    isinstance(error, RefusedError)
                    and error.refusal.code is RefusalCode.BELOW_MIN_TIME
                    and not self._waits_at(slot)
                )
                for name, hold in self._node.holds.items():
                    if (gone or name not in before) and name in self._names(slot):
                        hold.release()
                raise

    def _waits_at(self, slot: int) -> bool:
        with self._changed:
            return any(time == slot for time, _, _ in self._heap)

    @property
    def unfinished(self) -> list[int]:
        """The times that are held, those of an earlier process of the node as well: whoever comes back asks for
        its functions at each of them again, since nobody else would let go of them."""
        if self._node is None:
            return []
        parts = (name.split("/") for name in self._node.holds if name.startswith(HOLD_PREFIX))
        return sorted({int(slot) for _, slot, *_ in parts})

    def _push(self, slot: int, function: Callback) -> None:
        with self._changed:
            if len(self._heap) >= MAX_CALLBACKS:
                raise StateError(
                    f"pipeline {self.pipeline!r}: {len(self._heap)} functions wait for their time, the "
                    f"limit is {MAX_CALLBACKS}; ask for one time at once, and for the next when it has come",
                    Code.STATE_LIMIT,
                )
            heapq.heappush(self._heap, (slot, self._asked, function))
            self._asked += 1
            self._changed.notify_all()

    @property
    def waiting(self) -> int:
        """How many functions wait for their time."""
        with self._changed:
            return len(self._heap)

    def run(self, timeout_s: float | None = None) -> int:
        """Runs what is due, and waits for what is not, until nothing is left, or for `timeout_s` seconds
        without a call (None: for ever). Returns how many functions it has run.

        What a function raises is raised here; it stays the first, and is called again by the next `run`:
        nothing of a later time comes before it. Raises RefusedError, ClosedError.
        """
        with self._running:
            count, left_s = 0, float("inf") if timeout_s is None else timeout_s
            while (slot := self._first()) is not None:
                # Not longer at once: an earlier time may be asked for meanwhile.
                wait_s = min(left_s, _WAIT_S)
                if self._subscriber.wait_until(slot, self.segment, wait_s):
                    count += self._call_first(slot)
                    left_s = float("inf") if timeout_s is None else timeout_s
                elif (left_s := left_s - wait_s) <= 0:
                    break
            return count

    def _first(self) -> int | None:
        with self._changed:
            return self._heap[0][0] if self._heap and not self._closed else None

    def _call_first(self, complete: int) -> int:
        """Calls the first function, if its time is complete."""
        with self._changed:
            if self._closed or not self._heap or self._heap[0][0] > complete:
                return 0
            entry = self._heap[0]
        if self._node is None:
            entry[2](entry[0])
        else:
            self._emit(self._node, entry)
        self._remove(entry)
        return 1

    def _emit(self, node: NodeClient, entry: _Entry) -> None:
        """What the functions of a time return becomes durable with the last of them, in the tick that lets go of it.
        Raises UnavailableError where that takes too long: then it is waited for again, and nothing is called."""
        if entry not in self._under_way:
            result = entry[2](entry[0])
            content = result if isinstance(result, TickContent) else TickContent()
            with self._holding:
                together = _together(self._returned.get(entry[0]), content)
                with self._changed:
                    if sum(slot == entry[0] for slot, _, _ in self._heap) > 1:
                        self._returned[entry[0]] = together
                        return
                self._under_way[entry] = self._let_go(node, entry[0], together)
        future = self._under_way[entry]
        try:
            future.result(_DURABLE_S)
        except FutureTimeout:
            raise UnavailableError(
                f"pipeline {self.pipeline!r}: what was emitted at slot {entry[0]} was not durable within "
                f"{_DURABLE_S:g} s; run again, which waits for it"
            ) from None
        except LowmarkError:
            del self._under_way[entry]
            raise
        del self._under_way[entry]
        self._returned.pop(entry[0], None)

    def _let_go(self, node: NodeClient, slot: int, content: TickContent) -> Future[int]:
        names = self._names(slot)
        moves = tuple(hold.at(FOREVER) for name, hold in node.holds.items() if name in names)
        return node.commit(replace(content, holds=(*content.holds, *moves)))

    def _names(self, slot: int) -> list[str]:
        return [_name(slot, segment) for segment in self._segments]

    def _remove(self, entry: _Entry) -> None:
        with self._changed:
            self._heap.remove(entry)
            heapq.heapify(self._heap)

    def start(self) -> None:
        """Runs functions in a thread of its own until `close`; what one raises ends it (`failure`)."""
        self._thread = threading.Thread(target=self._work, name="lowmark-times", daemon=True)
        self._thread.start()

    def _work(self) -> None:
        try:
            while not self._closed:
                self.run()
                with self._changed:
                    self._changed.wait_for(lambda: self._heap or self._closed)
        except ClosedError:
            pass
        except Exception as error:
            self.failure = error

    def close(self) -> None:
        """Runs nothing more; what waits is forgotten. What is held for it stays held (`unfinished`)."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._subscriber.close()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()


def _together(before: TickContent | None, content: TickContent) -> TickContent:
    """What functions of one time have returned, as one tick. Raises StateError where two have a batch."""
    if before is None:
        return content
    if before.batch is not None and content.batch is not None:
        raise StateError(
            f"two functions of one time return the batches {before.batch.id} of {before.batch.scope!r} and "
            f"{content.batch.id} of {content.batch.scope!r}: they are one tick, which has one",
            Code.STATE_ORDER,
        )
    return TickContent(
        Cells.concatenate((before.created, content.created)),
        Cells.concatenate((before.consumed, content.consumed)),
        before.heartbeats + content.heartbeats,
        before.joins + content.joins,
        before.leaves + content.leaves,
        before.batch or content.batch,
        before.units_created + content.units_created,
        before.units_consumed + content.units_consumed,
        before.holds + content.holds,
    )


def _name(slot: int, segment: str) -> str:
    return f"{HOLD_PREFIX}{slot}/{segment}"
