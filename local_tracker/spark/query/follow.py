"""Follows a query's checkpoint and commits one tick for each batch, once the batch is over.

Two threads: one reads each batch out of the logs as soon as `commits/N` appears, before anything can
be purged; the other turns it into a tick, waits for what must be waited for (slots of units that
another query created), and commits it, batch after batch, until it is durable. A tracker that is
away costs nothing but time. What is in the checkpoint and not yet durable in the tracker, because
the driver was killed in between, is committed first.

What a batch means is the business of `BatchTicks`; this module only sees to it that each batch's
tick is durable once, in order, or that the query ends with the reason.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import CancelledError
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import suppress
from functools import partial
from typing import Any, Protocol, TypeVar

from local_tracker.spark.query.compose import fingerprint, same_input
from local_tracker.spark.query.logs import CheckpointLog
from tracker.client import Admin, LowmarkError, NodeClient
from tracker.client.updates import slot_time
from tracker.core.log import Joined
from tracker.core.model import Batch, Refusal, RefusalCode, TickContent
from tracker.core.model.waits import WaitCause, WaitKind
from tracker.errors import FilesError, RefusedError, TrackingError
from tracker.files import AwayError

BEGUN = -1
"""In place of a batch's or a run's number: the query, or the node's jobs, have begun."""
MAX_BATCHES_BEHIND = 90
"""How far a query may run ahead of the tracker before it is stopped; fewer than
`spark.sql.streaming.minBatchesToRetain`, or a killed driver could find the logs purged."""

_LISTING_EVERY_S = 0.5  # batch ids may skip: the directory is listed now and then
_POLLS_PER_LISTING = 30  # at least, where requests cost
_LOOKS_A_BATCH = 10  # at what a query reports, each of which takes its JVM's time
_LONGEST_PAUSE_S = 0.25  # between these
_ALIVE_EVERY_S = 0.5
_MAX_RELABELS = 5
_RETRY_AFTER_S = 1.0
_PASSES = {RefusalCode.FULL, RefusalCode.NOT_READY}
_WAIT_STEP_S = 0.25
_STEPS_PER_WARNING = 40

_ANEW = (
    "start over: an empty checkpoint and sink, and a pipeline of another name, into which the fronts "
    "publish anew"
)
"""In the same pipeline, input that was consumed would be consumed again."""

_T = TypeVar("_T")

log = logging.getLogger("lowmark.spark")


class AtRest(TrackingError):
    """There is nothing left to track: what a batch read or wrote lies in segments that are complete. Names them."""


class Stopping(Exception):
    """Raised out of a wait because the follower is being closed."""


def passes(error: RefusedError) -> bool:
    """Whether the same is taken later: when there is room, when every shard reckons with an edge that is new, or without the
    tick of another thread that it came behind."""
    return error.behind or error.refusal.code in _PASSES


class BatchTicks(Protocol):
    """What the batches of a query mean."""

    def read(self, batch: int) -> Any:
        """Everything that is needed of a batch out of logs that may be purged later; its `fingerprint`
        tells it from another one of that number."""

    def tick(self, record: Any, stopping: threading.Event) -> TickContent:
        """The tick of a batch; may wait, and raises Stopping when the event is set meanwhile."""

    def relabelled(self, record: Any, refusal: Refusal) -> TickContent | None:
        """Another tick for a batch whose tick was refused; None if there is none."""

    def durable(self, batch: int) -> None:
        """A batch's tick is durable."""

    def hear(self) -> None:
        """Adopts what the pipeline has become, if the node has heard that it has changed. Raises TrackingError where
        the query cannot go on so."""


class Follower:
    """Commits the ticks of one query. `start()`, then `close()`; `failure` names why it gave up, `rest` why nothing is
    left to track."""

    def __init__(
        self,
        name: str,
        node: NodeClient,
        checkpoint: CheckpointLog,
        ticks: BatchTicks,
        joined: Joined,
        is_active: Callable[[], bool],
        on_end: Callable[[], None],
        *,
        max_batches_behind: int = MAX_BATCHES_BEHIND,
        one_query: bool = True,
        first_batch: int = 0,
        progress: Callable[[], tuple[int, str] | None] | None = None,
    ) -> None:
        """joined: what the tracker has answered the node, or would answer it. one_query: the batches of a node
        are those of one query, whose checkpoint must be there. first_batch: where a query begins that
        the tracker has nothing of. on_end: called once, if it gives up or comes to rest. progress: the batch that the
        query itself has reported last, and when, asked where its files cost requests. Raises TrackingError where
        checkpoint and tracker don't fit."""
        self.name, self._one_query, self._first_batch = name, one_query, first_batch
        self.failure: TrackingError | None = None
        self.rest: AtRest | None = None
        self._node, self._checkpoint, self._ticks = node, checkpoint, ticks
        self._joined = joined
        self._is_active, self._on_end = is_active, on_end
        self._max_behind = max_batches_behind
        self._progress = progress if checkpoint.files.MAY_LAG else None
        self._changed = threading.Condition()
        self._ending, self._stopping = threading.Event(), threading.Event()
        self._records: queue.Queue[tuple[int, Any] | None] = queue.Queue()
        self._last_read = self._last_durable = self._admit(joined.last_batches)
        self._read_all = False
        self._threads = [
            threading.Thread(
                target=self._run, args=(loop,), name=f"lowmark-{kind}-{name}", daemon=True
            )
            for kind, loop in (("read", self._read_loop), ("commit", self._commit_loop))
        ]
        self._going_on = len(self._threads)

    # --- what the query's owner asks --------------------------------------------------------------

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    @property
    def last_durable_batch(self) -> int:
        """The last batch whose tick is durable; -1 before the first."""
        return self._last_durable

    def wait_durable(self, timeout_s: float | None = None) -> bool:
        """Wait until every batch that is over by now is durable in the tracker, or the query is at rest. False when
        the time is up, or it is followed no more; raises TrackingError if the query cannot be tracked."""
        until_s = float("inf") if timeout_s is None else time.monotonic() + timeout_s
        while True:
            try:
                target = max(self._checkpoint.committed(), default=-1)
                break
            except AwayError:
                left_s = until_s - time.monotonic()
                if left_s <= 0 or self._stopping.wait(min(left_s, _RETRY_AFTER_S)):
                    self._raise_failure()
                    return False

        def is_done() -> bool:
            return self.rest is not None or self._last_durable >= target

        with self._changed:
            self._changed.wait_for(
                lambda: self.failure or not self._going_on or is_done(),
                None if timeout_s is None else until_s - time.monotonic(),
            )
        self._raise_failure()
        return is_done()

    def _raise_failure(self) -> None:
        if self.failure is not None:
            raise self.failure

    def close(self, timeout_s: float) -> bool:
        """Commit what is over by now, then end both threads. True if nothing was left behind; what
        was left is committed at the next start."""
        self._ending.set()
        deadline = time.monotonic() + timeout_s
        for thread in self._threads:
            if thread.ident is not None and thread is not threading.current_thread():
                thread.join(max(0.0, deadline - time.monotonic()))
        self._stopping.set()
        for thread in self._threads:
            if thread.ident is not None and thread is not threading.current_thread():
                thread.join()
        if self.rest is not None:
            return True
        # What is in the checkpoint behind the last one read is of a later run of the query.
        if self._read_all:
            return self._last_durable >= self._last_read
        try:
            return self._last_durable >= max(self._checkpoint.committed(), default=-1)
        except AwayError:
            return False

    # --- admission --------------------------------------------------------------------------------

    def _admit(self, last_batches: Sequence[Batch]) -> int:
        """The last durable batch of this query, checked against the checkpoint; -1 if there is none.

        Raises TrackingError if the checkpoint is older than the tracker, or has lost batches.
        """
        query = self._checkpoint.query_id
        last = next((batch for batch in last_batches if batch.scope == query), None)
        committed = self._checkpoint.committed()
        if last is None:
            if self._one_query:
                refuse_another_query(self._about(), self._checkpoint.root, last_batches)
            if restarted := self._restarted():
                log.warning("%s: %s", self._about(), restarted)
                if committed and committed[0] > self._first_batch:
                    raise TrackingError(
                        f"{self._about()}: {restarted}; {self._checkpoint.root}/commits begins at "
                        f"{committed[0]}, so those of before that count cannot be told any more"
                    )
            return self._first_batch - 1
        if last.id < 0:  # the tracker knows that it has begun
            return self._first_batch - 1
        advice = (
            f"the checkpoint has been rolled back or rewritten; restore the newer one, or {_ANEW}"
        )
        if last.id > max(committed, default=-1):
            raise TrackingError(
                f"{self._about()}: the tracker has batch {last.id}, but "
                f"{self._checkpoint.root}/commits ends at {max(committed, default=None)}: {advice}"
            )
        if last.id in self._checkpoint.readable():
            if not self._is_same(last):
                raise TrackingError(
                    f"{self._about()}: batch {last.id} in {self._checkpoint.root} is not the one "
                    f"that the tracker has: {advice}"
                )
        elif committed[0] > last.id + 1:
            raise TrackingError(
                f"{self._about()}: {self._checkpoint.root}/commits begins at {committed[0]}, but "
                f"the tracker's last batch is {last.id}: those in between have been purged and "
                f"cannot be told any more; raise spark.sql.streaming.minBatchesToRetain"
            )
        return last.id

    def _is_same(self, last: Batch) -> bool:
        """Whether a batch in the checkpoint is the one that the tracker has, as far as it can be told."""
        try:
            return same_input(self._ticks.read(last.id).fingerprint, last.fingerprint)
        except AwayError:
            raise
        except (
            FilesError
        ) as error:  # what it read is in its tables' logs, which are kept for as long as they are
            log.warning(
                "%s: whether batch %d is the one that the tracker has cannot be told any more: %s",
                self._about(), last.id, error,
            )  # fmt: skip
            return True

    def _restarted(self) -> str:
        """What is to be known where the pipeline was restarted; empty where it never was."""
        return restarted(self._joined, "Start the query on an empty checkpoint and sink")

    # --- the two threads --------------------------------------------------------------------------

    def _run(self, loop: Callable[[], None]) -> None:
        try:
            loop()
        except Stopping:
            pass
        except AtRest as rest:
            self._come_to_rest(rest)
        except TrackingError as error:
            self._fail(error)
        except Exception as error:
            self._fail(TrackingError(f"{self._about()}: {error}"), error)
        with self._changed:
            self._going_on -= 1
            self._changed.notify_all()

    def _read_loop(self) -> None:
        """Hands every batch that is over to the other thread, in order."""
        files = self._checkpoint.files
        (first_s, longest_s), share = files.POLL_S, files.POLL_SHARE
        alive, listing = (
            _Due(_ALIVE_EVERY_S),
            _Due(max(_LISTING_EVERY_S, _POLLS_PER_LISTING * longest_s)),
        )
        pause_s, found_s = first_s, time.monotonic()
        looked_at: tuple[int, str] | None = None
        try:
            while not self._stopping.is_set():
                self._answered(self._ticks.hear)
                # Looked up before the batches: what is over when the query has ended is all there is.
                ended = self._ending.is_set() or (alive.is_due() and not self._is_active())
                lists = ended or listing.is_due()
                reported = self._progress() if self._progress else None
                found: list[int] = []
                if lists or self._progress is None or reported != looked_at:
                    found = self._answered(partial(self._next_batches, lists))
                    if not (found and reported and found[-1] < reported[0]):
                        looked_at = reported  # there is nothing more up to there
                for batch in found:
                    record = self._answered(partial(self._ticks.read, batch))
                    self._records.put((batch, record))
                    self._last_read = batch
                    self._check_behind()
                    if self._stopping.is_set():
                        return
                if ended and self._answered(self._is_behind):
                    self._stopping.wait(first_s)
                    continue
                if ended:
                    self._read_all = True
                    return
                if found:
                    pause_s, found_s = self._first_pause_s(found_s), time.monotonic()
                    continue
                self._ending.wait(pause_s)
                if not self._progress:
                    waited_s = time.monotonic() - found_s
                    pause_s = min(max(first_s, share * waited_s), longest_s)
        finally:
            self._records.put(None)

    def _first_pause_s(self, found_s: float) -> float:
        """Between looks for the next batch, where the last one was found at `found_s`."""
        first_s = self._checkpoint.files.POLL_S[0]
        if not self._progress:
            return first_s
        batch_s = time.monotonic() - found_s
        return max(first_s, min(batch_s / _LOOKS_A_BATCH, _LONGEST_PAUSE_S))

    def _answered(self, ask: Callable[[], _T]) -> _T:
        """What the store of the logs answers, however long it is away. Raises Stopping."""
        was_away = False
        while True:
            try:
                answer = ask()
            except AwayError as error:
                was_away = True
                self._node.report_waits([WaitCause(WaitKind.OTHER, f"its files: {error}")])
                log.warning("%s: %s", self._about(), error)
                if self._stopping.wait(_RETRY_AFTER_S):
                    raise Stopping from None
                continue
            if was_away:
                self._node.report_waits(())
            return answer

    def _next_batches(self, listing: bool) -> list[int]:
        if not listing:
            is_next = self._checkpoint.is_committed(self._last_read + 1)
            return [self._last_read + 1] if is_next else []
        if not self._checkpoint.check_stands(self._last_read):
            if self._ending.is_set():
                return []
            raise AwayError(f"{self._checkpoint.root}/metadata is gone; restore the checkpoint")
        over = [batch for batch in self._checkpoint.committed() if batch > self._last_read]
        if not over or over[-1] - self._last_read == len(over):
            return over
        # Numbers may skip. But whatever was planned is over too: a listing may lag, and one of several pages is not of
        # one moment.
        planned = (b for b in self._checkpoint.planned() if self._last_read < b < over[-1])
        if unseen := [batch for batch in planned if batch not in over]:
            raise AwayError(
                f"{self._checkpoint.root}/commits/{unseen[0]} is not seen yet, though {over[-1]} is"
            )
        return over

    def _is_behind(self) -> bool:
        """Whether the batch behind the last one that was read is over, and a listing does not show it yet."""
        files, batch = self._checkpoint.files, self._last_read + 1
        if not files.MAY_LAG or files.size(f"{self._checkpoint.root}/offsets/{batch}") is None:
            return False
        return bool(files.seen(lambda: self._checkpoint.is_committed(batch) or None))

    def _check_behind(self) -> None:
        behind = self._records.qsize()
        if behind > self._max_behind and not self._ending.is_set():
            known = "".join(f" (it waits for {wait.text})" for wait in self._node.waits)
            raise TrackingError(
                f"{self._about()}: {behind} batches wait for the tracker{known}, the limit is {self._max_behind}, beyond which a restart might find "
                f"their logs purged; the query is stopped and goes on where it was when it is "
                f"started again; to allow more, raise spark.sql.streaming.minBatchesToRetain"
            )

    def _commit_loop(self) -> None:
        while (item := self._records.get()) is not None:
            batch, record = item
            self._commit(batch, record)
            self._answered(partial(self._ticks.durable, batch))
            with self._changed:
                self._last_durable = batch
                self._changed.notify_all()
        if not self._ending.is_set():  # whoever asks why nothing comes finds the query here
            self._node.report_waits([WaitCause(WaitKind.OTHER, "being started: its run has ended")])

    def _commit(self, batch: int, record: Any) -> None:
        """Commit a batch's tick until it is durable. Raises TrackingError when it is refused."""
        content: TickContent | None = None
        refusals: list[Refusal] = []
        while True:
            try:
                content = content or self._content(batch, record, refusals)
                self._commit_once(batch, content)
                self._node.report_waits(())
                return
            except RefusedError as error:
                if passes(error):
                    self._wait_refused(batch, error.refusal.message)
                    continue
                content = None
                refusals.append(error.refusal)
            except (LowmarkError, CancelledError) as error:
                if isinstance(error, TrackingError | FilesError) and not isinstance(
                    error, AwayError
                ):
                    raise  # what is read of the query is wrong, and stays so
                if (over := self._node.failure) is not None and not self._stopping.is_set():
                    raise TrackingError(
                        f"{self._about()}: its node takes no batch any more, batch {batch} is not committed: {over}; "
                        "start the query again when the reason is gone"
                    ) from over
                self._node.report_waits([WaitCause(WaitKind.OTHER, str(error), batch=batch)])
                log.warning("%s: batch %d is tried again: %s", self._about(), batch, error)
                if self._stopping.wait(_RETRY_AFTER_S):
                    raise Stopping from None

    def _content(self, batch: int, record: Any, refusals: Sequence[Refusal]) -> TickContent:
        """The tick of a batch, after these refusals. What is wrong may have been composed by what the pipeline was before it
        was changed: once, it is composed anew. Raises TrackingError where there is no other."""
        if not refusals:
            return self._ticks.tick(record, self._stopping)
        newest, content = refusals[-1], None
        if newest.code is not RefusalCode.INVALID and len(refusals) <= _MAX_RELABELS:
            content = self._ticks.relabelled(record, newest)
        elif len(refusals) == 1:
            self._answered(self._ticks.hear)
            content = self._ticks.tick(record, self._stopping)
        if content is None:
            raise TrackingError(_refused(self._about(), batch, newest, self._restarted()))
        return content

    def _wait_refused(self, batch: int, message: str) -> None:
        """What is refused may be taken later; till then it is reported what the query waits for."""
        self._node.report_waits([WaitCause(WaitKind.REFUSED, message, batch=batch)])
        log.warning("%s: batch %d is refused, and tried again: %s", self._about(), batch, message)
        if self._stopping.wait(_RETRY_AFTER_S):
            raise Stopping

    def _commit_once(self, batch: int, content: TickContent) -> None:
        future = self._node.commit(content)
        waits = 0
        while not self._stopping.is_set():
            try:
                future.result(timeout=_WAIT_STEP_S)
                return
            except FutureTimeout:
                waits += 1
                if waits % _STEPS_PER_WARNING == 0:
                    log.warning(
                        "%s: batch %d waits for the tracker since %.0f s",
                        self._about(), batch, waits * _WAIT_STEP_S,
                    )  # fmt: skip
        raise Stopping

    def _fail(self, error: TrackingError, cause: Exception | None = None) -> None:
        error.__cause__ = cause
        with self._changed:
            if self.failure is not None:
                return
            self.failure = error
            self._changed.notify_all()
        log.error("%s", error)
        self._end([WaitCause(WaitKind.REFUSED, str(error))])

    def _come_to_rest(self, rest: AtRest) -> None:
        """Nothing is left to track, and nothing has failed."""
        with self._changed:
            self.rest = rest
            self._changed.notify_all()
        log.warning("%s is at rest: %s", self._about(), rest)
        self._end(())

    def _end(self, waits: Sequence[WaitCause]) -> None:
        """Ends both threads, and the query. waits: what is reported of it from now on."""
        self._stopping.set()
        self._ending.set()
        self._records.put(None)
        with suppress(LowmarkError):  # for as long as the session is there
            self._node.report_waits(waits)
        try:
            self._on_end()
        except Exception:
            log.exception("%s: could not be stopped", self._about())

    def _about(self) -> str:
        return f"query {self.name!r} ({self._checkpoint.query_id})"


class _Due:
    """Says once in so many seconds that they are over; the first time at once."""

    def __init__(self, interval_s: float) -> None:
        self._interval_s, self._next_s = interval_s, 0.0

    def is_due(self) -> bool:
        now_s = time.monotonic()
        if now_s < self._next_s:
            return False
        self._next_s = now_s + self._interval_s
        return True


class Followed:
    """A query that is followed, as its owner asks about it."""

    _follower: Follower | None = None
    _refusal: TrackingError | None = None
    """Why the query was stopped, where that was not the follower's doing."""

    @property
    def _followed(self) -> Follower:
        assert self._follower is not None, "the query is not followed yet: call start()"
        return self._follower

    @property
    def last_durable_batch(self) -> int:
        """The last batch whose tick is durable in the tracker; the one before the first, before."""
        return self._followed.last_durable_batch

    @property
    def failure(self) -> TrackingError | None:
        """Why the query was stopped, or cannot be followed any further, if so."""
        return (self._follower.failure if self._follower else None) or self._refusal

    @property
    def rest(self) -> AtRest | None:
        """Why nothing is left to track, where what the query creates is complete; it has been stopped then."""
        return self._follower.rest if self._follower else None

    def wait_durable(self, timeout_s: float | None = None) -> bool:
        """Wait until all batches that are over by now are durable in the tracker; False when the time
        is up. Raises TrackingError if tracking has failed."""
        return self._followed.wait_durable(timeout_s)


def begun_batch(scope: str, what: str) -> Batch:
    """In place of a scope's first batch, before anything of it is published: it has begun. what: of which it is."""
    return Batch(scope, BEGUN, fingerprint(what, {}, ()))


def restarted(joined: Joined, advice: str) -> str:
    """What is to be known where the pipeline of a node was restarted; empty where it never was."""
    if not joined.generation:
        return ""
    moment = slot_time(joined.replay_from, joined.spec.slack_ns)
    return (
        f"pipeline {joined.spec.name!r} was restarted: generation {joined.generation} begins at slot "
        f"{joined.replay_from} ({moment}), and what was created from input below it is refused. {advice}, over input "
        "from that moment on"
    )


def refuse_another_query(about: str, checkpoint: str, last_batches: Sequence[Batch]) -> None:
    """Raises TrackingError where a node id has batches of another query than that of a checkpoint: it
    would take its input out of the cells once more."""
    if last_batches:
        newest = last_batches[-1]
        raise TrackingError(
            f"{about}: the tracker has batch {newest.id} of query {newest.scope} under this node id, so "
            f"the checkpoint {checkpoint} is a new one, and what the query reads again has been counted "
            f"as consumed; restore the old checkpoint, or {_ANEW}"
        )


def refuse_another_node(
    about: str,
    checkpoint: CheckpointLog,
    asked: Joined,
    segments: Iterable[str],
    admin: Admin,
    first_batch: int = 0,
) -> None:
    """Raises TrackingError where batches of a query have been told under another node id, in segments of this one: told
    again, what they consumed and created would count twice, and what is open pass for complete. asked: what the tracker
    would answer the node; segments: in which the query reads and creates; first_batch: the first that is to be told."""
    query, spec = checkpoint.query_id, asked.spec
    is_known = any(batch.scope == query for batch in asked.last_batches)
    if is_known or max(checkpoint.committed(), default=-1) < first_batch:
        return
    explained = admin.explain(spec.name, max_cells=0)
    mine = {spec.segments.index(name) for name in segments}
    for node in (node for part in explained.parts for node in part.nodes):
        other, last = node.key.node_id, dict(node.last_batches).get(query, -1)
        touched = mine & {*node.consumes, *node.creates}
        if other != asked.key.node_id and last >= first_batch and touched:
            raise TrackingError(
                f"{about}: batches up to {last} of the query were told under node id {other!r}, in segment "
                f"{spec.segments[min(touched)]!r}, and would count twice: start it under that node id; who follows it "
                f"from outside may begin behind them (--set from_batch={last + 1})"
            )
    if explained.silent_shards:
        log.warning(
            "%s: whether its batches were told under another node id is not known, since shards %s do not answer",
            about, sorted(explained.silent_shards),
        )  # fmt: skip


def _refused(about: str, batch: int, refusal: Refusal, restarted: str) -> str:
    advice = {
        RefusalCode.ROLLED_BACK: f"restore the newer checkpoint, or {_ANEW}",
        RefusalCode.BELOW_MIN_TIME: restarted
        or "its rows were read by a query that nothing waited for; see "
        "which unit was not registered by its producer",
    }.get(refusal.code, "")
    text = (
        f"{about}: the tick of batch {batch} was refused ({refusal.code.value}): {refusal.message}"
    )
    return f"{text}; {advice}" if advice else text
