"""Functions that run when a time is complete, in the order of times: a notificator.

    with Notificator(target, "orders", "load") as times:
        times.at(datetime(2026, 3, 1, 10), send_report)
        times.run()                     # or times.start(), in a thread of its own

A function runs once min time has reached its time, after all those of lower times that were asked for by then,
and after those of the same time that were asked for before. It may ask for further times itself.
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable, Sequence
from datetime import datetime

from tracker.client.closing import Closing
from tracker.client.errors import ClosedError, LowmarkError
from tracker.client.subscriber import Subscriber
from tracker.client.updates import slot_until

MAX_CALLBACKS = 100_000
"""Functions that may wait in one notificator."""
_WAIT_S = 1.0
"""One wait for min time lasts at most this long: then it is looked whether an earlier time was asked for."""

Callback = Callable[[int], object]
"""Is given the time, a slot: everything below it is complete."""


class Notificator(Closing):
    """Runs functions at times of one segment (None: of the whole pipeline). `at` may be called by any
    thread, one thread runs them."""

    def __init__(
        self, target: str | Sequence[str], pipeline: str, segment: str | None = None
    ) -> None:
        self.pipeline, self.segment = pipeline, segment
        self._subscriber = Subscriber(target, pipeline)
        self._heap: list[tuple[int, int, Callback]] = []
        self._asked = 0
        self._changed = threading.Condition()
        self._running = threading.Lock()
        self._closed = False
        self._thread: threading.Thread | None = None
        self.failure: Exception | None = None
        """What has ended the thread that `start` began."""

    def at(self, when: int | datetime, function: Callback) -> None:
        """Asks for a call when everything before a moment, or below a slot, is complete; at once if it is
        already. Raises LowmarkError if MAX_CALLBACKS wait; of a moment RefusedError, UnavailableError."""
        slot = when if isinstance(when, int) else slot_until(when, self._subscriber.slack_ns())
        with self._changed:
            if len(self._heap) >= MAX_CALLBACKS:
                raise LowmarkError(
                    f"pipeline {self.pipeline!r}: {len(self._heap)} functions wait for their time, the "
                    f"limit is {MAX_CALLBACKS}; ask for one time at once, and for the next when it has come"
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
        entry[2](entry[0])
        with self._changed:
            self._heap.remove(entry)
            heapq.heapify(self._heap)
        return 1

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
        """Runs nothing more; what waits is forgotten."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._subscriber.close()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
