"""Flushing (eager): steps of workers are merged and committed as ticks of the local tracker.

One flush is on its way at a time; what comes meanwhile gathers for the next, so that a slow tracker
makes flushes larger, not more. Each worker is answered when the flush with its step is durable. A
flush that is refused is taken apart, so that only the steps that deserve it are refused.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from hashlib import blake2b

from local_tracker.agent.spool import MAX_SENDERS, Spool
from local_tracker.agent.stats import Stats
from local_tracker.agent.uplink import ClosedError, Uplink
from local_tracker.core.window import Flush, FlushWindow, Step, merged_content
from local_tracker.worker.handle import ElsewhereError
from local_tracker.worker.protocol import MAX_CELLS, Deadline, pack_cells
from tracker.core.model import TickContent
from tracker.errors import Code, HandOverError

MAX_GATHERED_CELLS = 16 * MAX_CELLS
_RETRY_S = 0.2
_LEAD = 2
"""So many times what recording took of late is allowed for it before the end of a window."""
_SMOOTHING = 8
"""What recording took counts one so many-th of what it took before."""
_FIRST_LEAD_NS = 1_000_000

log = logging.getLogger("lowmark.local-tracker")


class Flusher:
    """Takes steps and commits them, in a thread of its own. Thread-safe."""

    def __init__(
        self,
        uplink: Uplink,
        spool: Spool,
        window_ms: float,
        on_failure: Callable[[], None] = lambda: None,
        stats: Stats | None = None,
        flush: Flush = Flush.WHEN_IDLE,
    ) -> None:
        """Joins; what an earlier process left in the spool is committed first. `on_failure` is
        called when nothing can be committed any more. Raises HandOverError."""
        self._on_failure = on_failure
        self._stats = stats or Stats()
        self._uplink, self._spool = uplink, spool
        self._window = FlushWindow(window_ms, MAX_CELLS, MAX_GATHERED_CELLS, flush)
        self._changed = threading.Condition()
        self._outcomes: OrderedDict[str, tuple[int, Future[None]]] = OrderedDict()
        self._failure: HandOverError | None = None
        self._closing = self._abandoned = False
        self._over: ClosedError | None = None
        self._lead_ns = _FIRST_LEAD_NS
        """How long before the end of a window what has gathered is recorded."""
        last_flush, generation = uplink.open()
        given_up = 0 if generation is None else spool.begin_generation(generation, last_flush)
        if given_up:
            log.warning(
                "pipeline %s was restarted: %d flushes of before generation %d count for nothing; whoever "
                "handed them over begins again with what it reads from that one's first slot on",
                uplink.pipeline, given_up, generation,
            )  # fmt: skip
        self._number = max(spool.last_number, last_flush)
        for sender, last in spool.senders.items():
            future: Future[None] = Future()
            if last.settled and last.error is not None:
                future.set_exception(HandOverError(last.error[1], last.error[0]))
            elif last.settled:
                future.set_result(None)
            self._outcomes[sender] = last.number, future
        self._thread = threading.Thread(target=self._run, name="lowmark-flush", daemon=True)
        self._thread.start()

    @property
    def failure(self) -> HandOverError | None:
        """Why nothing can be committed any more, if so."""
        return self._failure

    @property
    def spool_identity(self) -> str:
        """The name of the record by which a step that arrives again is known."""
        return self._spool.identity

    @property
    def generation(self) -> int | None:
        """How often the pipeline had been restarted when this joined; None if that is not known."""
        return self._spool.generation

    @property
    def gathered_cells(self) -> int:
        """Cells that wait for the next flush."""
        with self._changed:
            return self._window.cells

    def last_step(self, sender: str) -> int:
        """The number of a sender's last step, 0 if none of its is known."""
        with self._changed:
            return self._outcomes[sender][0] if sender in self._outcomes else 0

    def knows(self, step: Step, again: bool, first_to: str) -> bool:
        """Whether a step was taken before. Raises HandOverError where that cannot be told."""
        with self._changed:
            return self._known(step, again, first_to) is not None

    def submit(
        self, step: Step, again: bool, deadline: Deadline, first_to: str = ""
    ) -> Future[None]:
        """The outcome of a step: done when it is durable, or a HandOverError. A step that was taken
        before has the outcome that it had. `again`: it may have been, and is known by the spool of the
        name `first_to` (empty: whoever hands it over does not know). Waits for room until the deadline;
        raises TimeoutError, HandOverError."""
        with self._changed:
            known = self._known(step, again, first_to)
            if known is not None:
                return known
            room = lambda: self._failure or self._closing or not self._window.full  # noqa: E731
            self._changed.wait_for(room, deadline.left_s())
            if self._failure is not None:
                raise self._failure
            if self._closing:
                raise HandOverError(
                    "the local tracker is ending; try again", Code.HAND_OVER_UNREACHABLE
                )
            deadline.left_s()
            known = self._known(step, again, first_to)
            if known is not None:
                return known
            try:
                self._window.add(step, time.monotonic_ns())
            except ValueError as error:
                raise HandOverError(str(error), Code.REFUSED_FULL) from None
            future: Future[None] = Future()
            self._outcomes[step.sender] = step.number, future
            self._outcomes.move_to_end(step.sender)
            self._forget_settled()
            self._changed.notify_all()
            return future

    def end(self, error: ClosedError) -> None:
        """Nothing can be committed any more, as somebody else has found."""
        with self._changed:
            self._over = error
            self._changed.notify_all()

    def close(self, timeout_s: float) -> bool:
        """Flushes what has been taken, then ends; False if that was not durable in time, or that it is
        was not written down (the spool keeps what had been sent)."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join(timeout_s)
        drained = not self._thread.is_alive() and self._failure is None and self._is_kept()
        with self._changed:
            self._abandoned = True
            self._changed.notify_all()
        return drained

    # --- inside -----------------------------------------------------------------------------------

    def _is_kept(self) -> bool:
        """Whether it is durable that all flushes are done: the tracker knows none of a node that has left."""
        try:
            self._spool.sync()
        except HandOverError as error:
            log.warning("the node does not leave: %s", error)
            return False
        return True

    def _known(self, step: Step, again: bool, first_to: str) -> Future[None] | None:
        found = self._outcomes.get(step.sender)
        if found is None:
            lost = first_to != self._spool.identity if first_to else self._spool.fresh
            if again and lost:
                raise HandOverError(
                    "this step was handed over before, to a local tracker whose spool is gone: "
                    "whether it is durable cannot be told; go on from the program's own record",
                    Code.HAND_OVER_UNKNOWN,
                )
            if again and self._spool.forgot:
                raise HandOverError(
                    f"this step may have been handed over before, by a sender that is not among the last {MAX_SENDERS} "
                    "that are remembered: whether it is durable cannot be told; go on from the program's own record",
                    Code.HAND_OVER_UNKNOWN,
                )
            return None
        number, future = found
        if step.number == number:
            return future
        if step.number < number:
            raise HandOverError(
                f"step {step.number} of {step.sender} comes after its step {number}: numbers grow",
                Code.HAND_OVER_PROTOCOL,
            )
        return None

    def _forget_settled(self) -> None:
        while len(self._outcomes) > MAX_SENDERS:
            sender = next((s for s, (_, f) in self._outcomes.items() if f.done()), None)
            if sender is None:
                break
            del self._outcomes[sender]
            self._spool.forgot = True

    def _run(self) -> None:
        try:
            for number, steps in list(self._spool.pending.items()):
                self._settle(number, steps, self._spool.above[number], again=True)
            while (due := self._next_steps()) is not None:
                self._number += 1
                above = self._uplink.record_above()
                self._record(self._number, due, above)
                self._settle(self._number, due, above)
        except HandOverError as error:
            self._fail(error)
        except Exception as error:
            log.exception("flushing failed")
            self._fail(HandOverError(f"the local tracker failed: {error!r}", Code.FAILED))

    def _next_steps(self) -> tuple[Step, ...] | None:
        """Waits until a flush is due, and records what can be recorded ahead of it; None when all is flushed
        and no more will come."""
        while True:
            with self._changed:
                if self._over is not None:
                    raise self._over
                due = self._window.due_ns()
                now = time.monotonic_ns()
                if due is not None and (due <= now or self._closing):
                    steps = self._window.take(now)
                    self._changed.notify_all()
                    return steps
                if due is None and self._closing:
                    return None
                ahead = self._window.ahead_ns(self._lead_ns)
                if ahead is None or ahead > now:
                    until = due if ahead is None else ahead
                    self._changed.wait(None if until is None else (until - now) / 1e9)
                    continue
                steps = self._window.record_ahead()
            self._record(self._number + 1, steps, self._uplink.record_above())

    def _record(self, number: int, steps: tuple[Step, ...], above: str) -> None:
        """The first steps of a flush, or all of them, where they are not recorded ahead."""
        rest = steps[len(self._spool.pending.get(number, ())) :]
        if not rest and self._spool.above.get(number) == above:
            return
        began = time.monotonic_ns()
        self._spool.flush(number, rest, above)
        took = time.monotonic_ns() - began
        self._lead_ns += (_LEAD * took - self._lead_ns) // _SMOOTHING

    def _settle(
        self, number: int, steps: tuple[Step, ...], above: str, again: bool = False
    ) -> None:
        """Commits a flush and answers those who wait. `again`: it may have been sent before, to the
        record of the name `above`."""
        content, start = merged_content(steps), time.monotonic()
        try:
            self._commit(number, content, above, again)
        except ClosedError:
            raise
        except HandOverError as error:
            self._stats.flush_refused()
            if len(steps) == 1 or error.code == Code.HAND_OVER_UNKNOWN:
                self._spool.done(number, (error.code, str(error)))
                for step in steps:
                    self._resolve(step, error)
                return
            self._spool.split(number)
            self._number = self._spool.last_number
            for index, step in enumerate(steps):
                number_of = number + 1 + index
                self._settle(number_of, (step,), self._spool.above[number_of])
            return
        received = sum(len(step.created) + len(step.consumed) for step in steps)
        flushed = len(content.created) + len(content.consumed)
        self._stats.flushed(len(steps), received, flushed, time.monotonic() - start)
        self._spool.done(number)
        for step in steps:
            self._resolve(step, None)
        # Behind the next one whoever is above may not know this one any more.
        if self._spool.pending:
            self._spool.sync()

    def _commit(self, number: int, content: TickContent, above: str, again: bool) -> None:
        while True:
            try:
                self._uplink.flush(number, content, _fingerprint(content), again, above)
                return
            except ElsewhereError:  # by that one's record it is known again, if it comes again
                above = self._uplink.record_above()
                self._spool.flush(number, (), above)
                continue
            except TimeoutError as error:
                log.warning("flush %d is not durable yet: %s", number, error)
            except HandOverError as error:
                if error.code != Code.HAND_OVER_UNREACHABLE:
                    raise
                log.warning("flush %d is not durable yet: %s", number, error)
            with self._changed:
                if self._changed.wait_for(lambda: self._abandoned, _RETRY_S):
                    raise ClosedError(f"the local tracker ended before flush {number} was durable")
            again = True

    def _resolve(self, step: Step, error: HandOverError | None) -> None:
        with self._changed:
            number, future = self._outcomes.get(step.sender, (0, None))
        if future is None or number != step.number or future.done():
            return
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)

    def _fail(self, error: HandOverError) -> None:
        """Nothing can be committed any more. What is recorded already is committed by the next process with
        this spool, and a local tracker below hands it over again until then: those steps are not told that they
        were not taken."""
        pending = self._spool.pending.values()
        recorded = {(step.sender, step.number) for steps in pending for step in steps}
        # Also where another has the node by now, which may have come behind the flush.
        told_as = ClosedError if isinstance(error, ClosedError) else HandOverError
        later = told_as(
            "the local tracker has ended with the step in its spool, and the next one with that spool goes on "
            f"with it: {error}",
            Code.HAND_OVER_UNREACHABLE,
        )
        with self._changed:
            self._failure = error
            failed = [
                (future, later if (sender, number) in recorded else error)
                for sender, (number, future) in self._outcomes.items()
                if not future.done()
            ]
            self._changed.notify_all()
        for future, told in failed:
            future.set_exception(told)
        self._on_failure()


def _fingerprint(content: TickContent) -> bytes:
    promises = repr([(h.front, h.slot) for h in content.heartbeats]).encode()
    if content.holds:
        promises += repr([(h.name, h.segment, h.slot) for h in content.holds]).encode()
    created, consumed = pack_cells((content.created,)), pack_cells((content.consumed,))
    lengths = f"{len(created)} {len(consumed)} ".encode()
    return blake2b(lengths + created + consumed + promises, digest_size=16).digest()
