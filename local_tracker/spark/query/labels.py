"""What a front in a driver labels and promises: a Spark front, or a query that emits from its state."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import CancelledError, Future
from concurrent.futures import TimeoutError as FutureTimeout

from tracker.client import LowmarkError, NodeClient
from tracker.core.model import Heartbeat, TickContent
from tracker.core.model.rounds import Rounds
from tracker.errors import RefusedError, TrackingError

_JOIN_TIMEOUT_S = 30.0

log = logging.getLogger("lowmark.spark")


class FrontLabels:
    """Which slot a batch gets, and what may be promised meanwhile: whole times. Thread-safe."""

    def __init__(self, lowest_slot: int, rounds: int = 1) -> None:
        """`lowest_slot`: nothing is labelled below it (the front's grant and its last promise); rounds: how many
        slots each time has."""
        self._lock = threading.Lock()
        self._times = Rounds(rounds)
        self.lowest_slot = self._floor = self._times.next_whole(lowest_slot)
        self._open: dict[int, int] = {}

    @classmethod
    def joined(cls, node: NodeClient, front: str, segment: str) -> FrontLabels:
        """Of a front that joins now: when every shard has granted it. Raises LowmarkError."""
        grant = node.join_front(front, segment, _JOIN_TIMEOUT_S)
        return cls(max(grant.slot, grant.heartbeat), node.joined.spec.rounds)

    def label(self, batch: int, slot: int, allowed: Iterable[int] = ()) -> int:
        """The label of a batch whose timestamp is in `slot`, none below `allowed`: the same when asked again. Promises
        wait for it until `close`."""
        with self._lock:
            label = self._open.get(batch)
            if label is None:
                lowest = [self._times.next_whole(each) for each in allowed]
                self._floor = label = max([self._times.whole(slot), self._floor, *lowest])
                self._open[batch] = label
            return label

    def reopen(self, batch: int, label: int) -> None:
        """A batch was published under a label before, and its tick is not durable yet."""
        with self._lock:
            self._open[batch] = label

    def close(self, batch: int) -> None:
        """A batch's tick is durable."""
        with self._lock:
            self._floor = max(self._floor, self._open.pop(batch, self._floor))

    def promise(self, slot: int) -> int:
        """The largest slot, at most `slot`, below which nothing will be labelled any more."""
        with self._lock:
            promise = min([max(self._times.whole(slot), self._floor), *self._open.values()])
            self._floor = max(self._floor, promise)
            return promise


class Promises:
    """Goes on promising for a front while its driver lives, in a thread of its own."""

    def __init__(
        self,
        node: NodeClient,
        front: str,
        promise: Callable[[], int],
        interval_ms: float,
        on_refused: Callable[[TrackingError], None],
    ) -> None:
        """promise: the largest slot below which nothing will be labelled any more. on_refused: the tracker
        takes no promise any more."""
        self._node, self._front, self._promise = node, front, promise
        self._interval_ms, self._on_refused = interval_ms, on_refused
        self._stopping = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name=f"lowmark-promise-{front}", daemon=True
        )

    def start(self) -> None:
        self._thread.start()

    def stop(self, last_within_s: float | None = None) -> None:
        """Ends the thread. last_within_s: what may be promised by then is promised once more, and is durable
        unless the tracker is away for so long; None: no promise follows."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()
        if last_within_s is None:
            return
        try:
            self._commit(self._promise()).result(last_within_s)
        except (LowmarkError, CancelledError, FutureTimeout) as error:
            log.warning(
                "front %r: its last promise is made at its next start: %s", self._front, error
            )

    def _commit(self, promise: int) -> Future[int]:
        return self._node.commit(TickContent(heartbeats=(Heartbeat(self._front, promise),)))

    def _run(self) -> None:
        """A tracker that is away hears the newest promise later."""
        promised: int | None = None
        pending: Future[int] | None = None
        while not self._stopping.wait(self._interval_ms / 1000):
            if pending is not None and not pending.done():
                continue
            promise = self._promise()
            try:
                if pending is not None:
                    pending.result()
                if promise != promised:
                    pending, promised = self._commit(promise), promise
            except LowmarkError as error:
                if isinstance(error, RefusedError):
                    why = f"was refused ({error.refusal.code.value}): {error.refusal.message}"
                elif self._node.failure is not None:
                    why = f"promises no more, its node has ended: {self._node.failure}"
                else:
                    pending, promised = None, None
                    continue
                refused = TrackingError(f"front {self._front!r} {why}; start its query again")
                log.error("%s", refused)
                self._on_refused(refused)
                return
