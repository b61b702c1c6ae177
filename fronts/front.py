"""The front library: label items, publish batches of them, and let a thread do the promising.

    with Front("127.0.0.1:7070", "orders", "shop-1", "parse") as front:
        labels = front.label_many(len(rows))
        front.publish(lambda batch: queue.send(batch.number, rows, batch.slots, batch.values))

What was published is committed in the background, and then promised beyond. A front that was killed
is started again with what it had published (its own durable record), commits what the tracker has not
seen, and goes on.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fronts.batches import PublishedBatch, items_batch, units_batch
from fronts.clock import ClockFault
from fronts.core import MAX_WAITING_BATCHES, FrontCore, SealedBatch
from fronts.once import Starting
from tracker.client.admin import Admin
from tracker.client.node import NodeClient, segment_number
from tracker.core.log import Grant, Joined
from tracker.core.model import Batch, NodeKind, RefusalCode, TickContent
from tracker.core.model.ack_values import root_value, root_values
from tracker.core.model.slots import LOWEST_SLOT
from tracker.errors import (
    ClosedError,
    Code,
    FencedError,
    LowmarkError,
    NotPublishedError,
    RefusedError,
    StateError,
    TrackingError,
    UnavailableError,
)

if TYPE_CHECKING:
    from fronts.kafka_times import Records

HEARTBEAT_INTERVAL_MS = 50
JOIN_TIMEOUT_S = 30.0
PUBLISH_TIMEOUT_S = 60.0
"""How long `publish` waits while too many batches are not durable in the tracker."""
DRAIN_TIMEOUT_S = 30.0
_RETRY_FIRST_S, _RETRY_MOST_S = 0.05, 1.0
_PASSES = {RefusalCode.BEYOND_HORIZON: 5.0, RefusalCode.NOT_READY: 5.0, RefusalCode.FULL: 0.0}
"""Refusals that pass as others get on: the tick is committed again after a while. How many seconds each may take in
the ordinary course of things, such as a pipeline's first moments or a rescale: then somebody has to look."""

log = logging.getLogger("lowmark.front")

Clock = Callable[[], int]
"""Gives nanoseconds since 1970."""


@dataclass(frozen=True, slots=True)
class Label:
    """The label of an item: its slot, and its ack value (below 2**64)."""

    slot: int
    value: int


@dataclass(frozen=True, slots=True, eq=False)
class Labels:
    """Labels of items, by their order: `slots` (int64) and ack `values` (uint64) of one length."""

    slots: NDArray[np.int64]
    values: NDArray[np.uint64]


@dataclass(frozen=True, slots=True, eq=False)
class OpenBatch:
    """What is to be published: the labels of its items, and its number, by which publishing it again
    can be told from publishing another one."""

    number: int
    slots: NDArray[np.int64]
    values: NDArray[np.uint64]


Send = Callable[[OpenBatch], Sequence[str] | PublishedBatch | None]
"""Publishes a batch. Returns the names of the units that it became, all under the batch's one slot, if
they are the items; None where the items are the rows, by their labels; else the batch itself, of items
of another kind, within the slots of the labels."""

Recover = Callable[[int, Batch | None], Sequence[PublishedBatch]]
"""Finds what was published before: from the number of the fed segment and the last batch that the
tracker has, the batches beyond that, in the order of their numbers."""


class Node(Protocol):
    """What a front needs of `tracker.client.NodeClient`."""

    never_left: bool
    left_in: int

    def join(self, timeout_s: float, *, owner: str = "") -> Joined: ...
    def check_join(self, timeout_s: float, *, owner: str = "") -> Joined: ...
    def segment(self, name: str) -> int: ...
    def join_front(self, front: str, segment: str, timeout_s: float) -> Grant: ...
    def commit(self, content: TickContent) -> Future[int]: ...
    def leave(self, timeout_s: float) -> None: ...
    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class FrontOptions:
    """What is rare of a front, the same for fronts of every kind and for groups of them; what does not concern one
    leaves it as it is.

    node_id: the node that commits for it, `None`: named as the front. clock: gives nanoseconds since 1970, and may be any,
    of a replay too, but labels of several fronts are in order only where their clocks differ by less than the slack; of a
    Kafka topic it says when the brokers are asked. heartbeat_interval_ms: how often it promises. max_waiting_batches: so
    many may be published and not durable in the tracker. pass_over_late: of what was published and not committed when the
    front was evicted, that which lies below where it may label now is left to be consumed late, and the rest is committed;
    if not given, the commit of the first such batch is refused and the front fails. node: commits in place of one that
    speaks to the target.

    Of files on this machine: lock_directory: of the file that keeps a second run out, `None`: where it writes; comes_again:
    False if no front of this name is started after it has left; then that file stays, by another name, only where others
    that it has published do.

    Of ranges: first: where partitions begin, 0 if not named; prune_above_bytes: how long a local journal may become.

    Of a topic: begin: where the first run of all begins, at the earliest record that is there, or behind the latest;
    timestamps: the records' own, for which they are read, are their slots; idle_s: then a partition that has been at its
    end for so long holds the others no longer.

    Of a topic, and of groups: poll_interval_ms: how often it is looked whether there is more, `None`: as its kind does.
    Of groups: member: this member's name, or its beginning, `None`: of the host and the process; anyone_after_ms: how long
    a file waits for the member that it is meant for.

    Of Spark's: max_batches_behind: so many batches of the query may not be committed yet, `None`: as many as of other
    queries; untried_pyspark: as of `Tracked`."""

    node_id: str | None = None
    clock: Clock = time.time_ns
    heartbeat_interval_ms: float = HEARTBEAT_INTERVAL_MS
    max_waiting_batches: int = MAX_WAITING_BATCHES
    pass_over_late: bool = False
    node: Node | None = None
    lock_directory: str | os.PathLike[str] | None = None
    comes_again: bool = True
    first: Mapping[str, int] = field(default_factory=dict)
    prune_above_bytes: int = 16 * 2**20
    begin: Literal["earliest", "latest"] = "earliest"
    timestamps: bool | Records = False
    idle_s: float = 5.0
    poll_interval_ms: float | None = None
    member: str | None = None
    anyone_after_ms: float = 10_000
    max_batches_behind: int | None = None
    untried_pyspark: str | None = None


DEFAULTS = FrontOptions()


class Front(Starting):
    """A front of one segment of a pipeline, and the node that commits for it. Thread-safe."""

    def __init__(
        self,
        target: str | Sequence[str],
        pipeline: str,
        front: str,
        segment: str,
        *,
        options: FrontOptions = DEFAULTS,
        known: str | os.PathLike[str] | None = None,
        owner: str = "",
    ) -> None:
        """target: host:port of the tracker, or several; `front` names the front. known: a file beside what it publishes,
        by which a tracker that has lost what this front was acknowledged is refused when it starts again. owner: names
        this run, so that it is not let in while another one's session lives."""
        self.front, self.segment = front, segment
        node_id, clock = options.node_id or front, options.clock
        self.identity = front_identity(node_id, front)
        """Names the front among all that feed the pipeline; what its ack values are made from."""
        self._node = options.node or NodeClient(
            target, pipeline, node_id, kind=NodeKind.FRONT, known=known
        )
        self._target, self._pipeline = target, pipeline
        self._has_joined = False
        self._owner = owner
        self._clock = clock
        self._steady: Clock | None = time.monotonic_ns if clock is time.time_ns else None
        self._heartbeat_interval_ms = options.heartbeat_interval_ms
        self._max_waiting_batches = options.max_waiting_batches
        self._pass_over_late = options.pass_over_late
        self.late_batches: tuple[int, ...] = ()
        """Numbers of the batches of which `start` has passed over what is too late, or all."""
        self._core: FrontCore | None = None
        self.generation = 0
        """How often the pipeline had been restarted when the front joined."""
        self.left_after = -1
        """The last batch when an earlier run left in this generation, once the front has joined; -1 if
        none has."""
        self.replay_from = LOWEST_SLOT
        """The slot at which the pipeline's generation begins, once the front has joined: what was
        published from there on counts, what lies below is complete. LOWEST_SLOT in the first one."""
        self.horizon_slots = 0
        """How far above min time an item may be created, once the front has joined."""
        self._changed = threading.Condition()
        self._publishing = threading.Lock()
        self._news = False
        self._is_silent = False
        self._closing = False
        self._failure: LowmarkError | None = None
        self._refusal: RefusedError | None = None
        """Why the last tick was refused, if it is committed again."""
        self._thread: threading.Thread | None = None

    # --- starting and ending ----------------------------------------------------------------------

    def check_alone(self, timeout_s: float) -> bool:
        """Whether the tracker knows a run of this front, which has not left; changes nothing. Raises FencedError where
        another run has a session with the tracker, RefusedError and UnavailableError as `start`."""
        try:
            return self._node.check_join(timeout_s, owner=self._owner).key.incarnation > 0
        except RefusedError as error:
            if error.refusal.code is not RefusalCode.CONFLICT:
                raise
            raise FencedError(
                f"front {self.identity!r} runs in another process: {error.refusal.message}",
                code=Code.FENCED_FRONT,
            ) from error

    def start(
        self,
        published: Sequence[PublishedBatch] | Recover = (),
        timeout_s: float = JOIN_TIMEOUT_S,
        *,
        left_after: int = -1,
        left_in: int = -1,
        newest: int | None = None,
    ) -> Self:
        """Joins, waits until every shard has granted the front, and begins to promise.

        published: the batches published by earlier runs, as `batch_of` makes them, or how to find
        them; those that the tracker has may be left out, and those up to `left_after`, as `leave` has
        reported it, in the generation `left_in` (-1: it never has). newest: the number of the last one, where `published`
        finds them; a front that has published since it left has not left in order (rule 2). Where the pipeline was restarted
        the tracker has none: what was published from slot `replay_from` on is committed anew. Raises RefusedError,
        UnavailableError, and StateError if they contradict what the tracker has, or it was started before.
        """
        with self._once():
            if newest is None and not callable(published):
                newest = max((batch.number for batch in published), default=-1)
            self._node.never_left = left_in < 0 or (newest is not None and newest > left_after)
            self._node.left_in = left_in
            self._start(published, timeout_s, left_after, left_in)
        return self

    def _start(
        self,
        published: Sequence[PublishedBatch] | Recover,
        timeout_s: float,
        left_after: int,
        left_in: int,
    ) -> None:
        try:
            joined = self._node.join(timeout_s, owner=self._owner)
            self._has_joined = True
            number = self._node.segment(self.segment)
            core = FrontCore(self.front, number, joined.spec.slack_ns, joined.spec.rounds)
            last = next((b for b in joined.last_batches if b.scope == self.front), None)
            self.generation, self.replay_from = joined.generation, joined.replay_from
            self.horizon_slots = joined.spec.horizon_slots
            self.left_after = left_after if left_in == joined.generation else -1
            earlier = published(number, last) if callable(published) else published
            core.recover(earlier, last, self.left_after, joined.replay_from)
            if joined.generation and last is None and self.left_after < 0:
                log.warning(
                    "front %r: the pipeline was restarted, generation %d begins at slot %d: %d of the "
                    "batches published before are committed anew",
                    self.front, joined.generation, joined.replay_from, core.waiting,
                )  # fmt: skip
            grant = self._node.join_front(self.front, self.segment, timeout_s)
            core.grant(grant.slot, grant.heartbeat, self._clock())
            if self._pass_over_late:
                self.late_batches = tuple(core.pass_over_late(grant.slot))
                if self.late_batches:
                    log.warning(
                        "front %r: what lies below slot %d of %d batches that were published before it was "
                        "evicted is passed over: whoever reads it consumes it late",
                        self.front, grant.slot, len(self.late_batches),
                    )  # fmt: skip
        except BaseException:
            self._node.close()
            raise
        self._core = core
        self._report_clock()
        self._thread = threading.Thread(
            target=self._run, name=f"lowmark-front-{self.front}", daemon=True
        )
        self._thread.start()

    @contextmanager
    def silent(self) -> Iterator[None]:
        """Meanwhile it commits nothing, so that min time waits where the front was granted."""
        self._is_silent = True
        try:
            yield
        finally:
            with self._changed:
                self._is_silent = False
                self._changed.notify_all()

    def leave(
        self, timeout_s: float = DRAIN_TIMEOUT_S, note: Callable[[int], None] | None = None
    ) -> None:
        """Ends the front for good: commits what was published, and min time no longer waits for it.

        The tracker forgets the front, and with it the numbers of its batches. `note` is called before,
        with the last one (-1 if there is none), when all are durable: who wants to start a front of
        this name again notes it, with `generation`, and gives both to `start`. Raises StateError if items are
        labelled and not published, UnavailableError, TrackingError."""
        with self._publishing, self._changed:
            core = self._ready()
            if note is not None:
                self._wait(lambda: not core.waiting, timeout_s, "has batches that are not durable")
                note(core.newest_published)
            core.leave()
            self._wake()
            self._wait(lambda: core.left, timeout_s, "has not left")
        self._stop()
        try:
            self._node.leave(timeout_s)
        finally:
            self._node.close()

    def close(self, timeout_s: float = DRAIN_TIMEOUT_S) -> None:
        """Ends this run: min time waits for the front to be started again. What was published is
        committed first; what is not durable after `timeout_s` seconds is by the next run."""
        core = self._core
        if core is not None and self._thread is not None and not self._closing:
            with self._changed:
                self._changed.wait_for(lambda: self._failure or not core.waiting, timeout_s)
                if core.waiting:
                    log.warning(
                        "front %r: closed with %d published batches that are not durable in the "
                        "tracker; start it again to commit them", self.front, core.waiting,
                    )  # fmt: skip
        self._stop()

    def _stop(self) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        # Ends the commit that the thread may be waiting for.
        left = self._core is not None and self._core.left
        if not left:
            self._node.close()
        if self._thread is not None:
            self._thread.join()

    # --- labelling --------------------------------------------------------------------------------

    def label(self) -> Label:
        """Labels one item, which belongs to the batch that is published next. Raises StateError
        when too many are, TrackingError."""
        with self._changed:
            core = self._ready()
            slot, number, ordinal = core.label(*self._now())
            self._report_clock()
        return Label(slot, root_value(self.identity, number, ordinal))

    def label_many(self, count: int) -> Labels:
        """Labels `count` items that come in now; else as `label`."""
        with self._changed:
            core = self._ready()
            clock_ns, steady_ns = self._now()
            number, first, slots = core.label_many(clock_ns, count, steady_ns)
            self._report_clock()
        return self._labels(number, first, slots)

    def label_at(self, clock_ns: ArrayLike) -> Labels:
        """Labels items of which each has a reading of the front's clock (int64 nanoseconds since
        1970), in their order; else as `label`."""
        with self._changed:
            number, first, slots = self._ready().label_at(clock_ns)
            self._report_clock()
        return self._labels(number, first, slots)

    def _labels(self, number: int, first: int, slots: NDArray[np.int64]) -> Labels:
        ordinals = np.arange(first, first + len(slots), dtype=np.int64)
        return Labels(slots, root_values(self.identity, number, ordinals))

    # --- publishing -------------------------------------------------------------------------------

    def publish(self, send: Send, timeout_s: float = PUBLISH_TIMEOUT_S) -> int | None:
        """Publishes what has been labelled as one batch; returns its number, None if it is nothing.

        When `send` returns, the batch must be durable where the front finds it after a restart, and
        it is committed in the background. When it raises, the batch keeps its number and contents,
        and the next call sends it again, before anything labelled since; unless it was
        NotPublishedError. Raises what `send` raises; UnavailableError when too many batches have not
        become durable in the tracker within `timeout_s` seconds; TrackingError.
        """
        with self._publishing:
            again = self._ready().sealed is not None
            number = self._publish_one(send, timeout_s)
            return (self._publish_one(send, timeout_s) or number) if again else number

    def publish_now(self, count: int, send: Send, timeout_s: float = PUBLISH_TIMEOUT_S) -> int:
        """Labels `count` (at least one) items that come in now and publishes them as a batch of their
        own; else as `publish`. Raises StateError if other items are labelled and not published."""
        with self._publishing:
            number = self._publish_one(send, timeout_s, count)
            assert number is not None
            return number

    def _publish_one(self, send: Send, timeout_s: float, fresh: int = 0) -> int | None:
        sealed = self._seal(timeout_s, fresh)
        if sealed is None:
            return None
        ordinals = np.arange(len(sealed.slots), dtype=np.int64)
        batch = OpenBatch(
            sealed.number, sealed.slots, root_values(self.identity, sealed.number, ordinals)
        )
        try:
            units = send(batch)
        except NotPublishedError:
            with self._changed:
                self._started.withdraw()
            raise
        published = (
            units
            if isinstance(units, PublishedBatch)
            else self.batch_of(batch.number, batch.slots, batch.values, units)
        )
        with self._changed:
            self._started.published(published)
            self._wake()
        return batch.number

    def _seal(self, timeout_s: float, fresh: int) -> SealedBatch | None:
        """Seals a batch when there is room for it, of `fresh` items that are labelled by this."""
        with self._changed:
            core = self._ready()
            if fresh and core.open_items:
                raise StateError(
                    f"front {self.front!r}: {core.open_items} items are labelled and not published; "
                    "publish them first, or start the front again",
                    Code.STATE_ORDER,
                )
            if not fresh and not core.open_items:
                return None
            self._changed.wait_for(
                lambda: self._failure or self._closing or core.waiting < self._max_waiting_batches,
                timeout_s,
            )
            core = self._ready()
            if core.waiting >= self._max_waiting_batches:
                raise UnavailableError(
                    f"front {self.front!r}: {core.waiting} published batches are not durable in the "
                    f"tracker, the limit is {self._max_waiting_batches}, and none became so within "
                    f"{timeout_s:g} s; {self._stuck()}",
                    Code.UNAVAILABLE_ROOM,
                )
            if fresh:
                clock_ns, steady_ns = self._now()
                core.label_many(clock_ns, fresh, steady_ns)
                self._report_clock()
            return core.seal()

    def _stuck(self) -> str:
        """Why nothing becomes durable, as far as the front knows."""
        if self._refusal is not None:
            return f"it commits again until it is taken: {self._refusal}"
        return "is the tracker reachable, and its min time moving?"

    def batch_of(
        self,
        number: int,
        slots: ArrayLike,
        values: ArrayLike,
        units: Sequence[str] | None = None,
        *,
        segment: str | int | None = None,
    ) -> PublishedBatch:
        """A published batch, by the labels of its items (int64 slots, uint64 values), or by the names
        of the units that it became, under its lowest slot. segment: the name of the fed segment, or its
        number; this front's own if not given. Raises LowmarkError for a name that the pipeline has not; and, of
        a front that has not joined, what asking the tracker for it raises: RefusedError, UnavailableError."""
        fed = segment if isinstance(segment, int) else self._number_of(segment or self.segment)
        if units is None:
            return items_batch(fed, number, slots, values)
        return units_batch(fed, number, int(np.min(np.asarray(slots, np.int64))), units)

    def _number_of(self, segment: str) -> int:
        if self._has_joined:
            return self._node.segment(segment)
        with Admin(self._target) as admin:
            return segment_number(admin.pipeline(self._pipeline).spec, segment)

    def wait_durable(self, timeout_s: float | None = None) -> bool:
        """Waits until all that was published by now is durable in the tracker; False after
        `timeout_s` seconds (None: waits for ever). Raises TrackingError."""
        core = self._started
        with self._changed:
            target = core.newest_published
            done = self._changed.wait_for(
                lambda: self._failure or self._closing or core.last_durable >= target, timeout_s
            )
            self._ready()
            return bool(done)

    @property
    def last_durable(self) -> int:
        """Number of the last batch that is durable in the tracker; -1 if there is none."""
        return self._started.last_durable

    @property
    def slack_ns(self) -> int:
        """The width of the pipeline's slots."""
        return self._started.slack_ns

    @property
    def clock_faults_ns(self) -> dict[ClockFault, int]:
        """The most that the clock was off so far, by kind of fault, in nanoseconds."""
        with self._changed:
            return dict(self._started.clock.measured_ns)

    @property
    def failure(self) -> LowmarkError | None:
        """Why the front can go on no more, if so."""
        return self._failure

    def check_running(self) -> None:
        """Raises TrackingError where the front can go on no more, ClosedError where it is closed."""
        with self._changed:
            self._ready()

    # --- the shell around the core ----------------------------------------------------------------

    @property
    def _started(self) -> FrontCore:
        if self._core is None:
            raise StateError(
                f"front {self.front!r} has not been started; call start() first", Code.STATE_ORDER
            )
        return self._core

    def _ready(self) -> FrontCore:
        core = self._started
        if self._failure is not None:
            raise self._failure
        if self._closing:
            raise ClosedError(f"front {self.front!r} is closed")
        return core

    def _now(self) -> tuple[int, int | None]:
        """A reading of the clock and one of the steady clock; under the lock, so that readings of
        several threads come in their order."""
        return self._clock(), None if self._steady is None else self._steady()

    def _wake(self) -> None:
        self._news = True
        self._changed.notify_all()

    def _report_clock(self) -> None:
        core = self._started
        for report in core.clock_reports:
            log.warning("front %r: %s", self.front, report)
        core.clock_reports.clear()

    def _run(self) -> None:
        """Commits one tick after the other: news at once, promises once an interval."""
        retry_s, refused_s, has_warned = _RETRY_FIRST_S, 0.0, False
        try:
            while (content := self._next()) is not None:
                refusal = self._refusal = self._commit(content)
                if refusal is None:
                    retry_s, refused_s, has_warned = _RETRY_FIRST_S, 0.0, False
                    continue
                # Warned of once, however often it is refused.
                if refused_s >= _PASSES[refusal.refusal.code] and not has_warned:
                    has_warned = True
                    log.warning(
                        "front %r: commits again until it is taken: %s", self.front, refusal
                    )
                refused_s += retry_s
                with self._changed:
                    self._changed.wait_for(lambda: self._closing, retry_s)
                    self._news = True
                retry_s = min(2 * retry_s, _RETRY_MOST_S)
        except Exception as error:
            self._fail(error)

    def _next(self) -> TickContent | None:
        """The next tick, when it is due; None when the front has ended."""
        core = self._started
        while True:
            with self._changed:
                interval_s = self._heartbeat_interval_ms / 1000
                self._changed.wait_for(
                    lambda: (self._news and not self._is_silent) or self._closing, interval_s
                )
                if self._is_silent and not self._closing:
                    continue
                self._news = False
                if self._closing or core.left:
                    return None
                content = core.next_tick(*self._now())
                self._report_clock()
            if content is not None:
                return content

    def _commit(self, content: TickContent) -> RefusedError | None:
        """Commits a tick and waits; returns a refusal that passes."""
        core = self._started
        try:
            self._node.commit(content).result()
        except RefusedError as error:
            if not error.of_tick or error.refusal.code not in _PASSES:
                raise
            with self._changed:
                core.refused()
            return error
        with self._changed:
            core.durable()
            # What was created can be promised beyond at once.
            self._news = self._news or content.batch is not None
            self._changed.notify_all()
        return None

    def _fail(self, error: Exception) -> None:
        with self._changed:
            if self._closing:
                return
            what = error.refusal.code.value if isinstance(error, RefusedError) else repr(error)
            self._failure = TrackingError(
                f"front {self.front!r} can go on no more ({what}): {error}; {_behind(error)}",
                Code.TRACKING_FRONT,
            )
            self._failure.__cause__ = error
            log.error("%s", self._failure)
            self._changed.notify_all()

    def _wait(self, done: Callable[[], bool], timeout_s: float, what: str) -> None:
        """Waits, under the lock; raises TrackingError or UnavailableError."""
        if not self._changed.wait_for(lambda: self._failure or done(), timeout_s):
            raise UnavailableError(
                f"front {self.front!r} {what} after {timeout_s:g} s: is the tracker reachable?"
            )
        if self._failure is not None:
            raise self._failure


def front_identity(node_id: str, front: str) -> str:
    """What a front of a node is called among all that feed the pipeline."""
    return front if node_id == front else f"{node_id}/{front}"


def _behind(error: Exception) -> str:
    """What becomes of what a front has published and the tracker has not taken, and what to do."""
    code = error.refusal.code if isinstance(error, RefusedError) else None
    if code is RefusalCode.BELOW_MIN_TIME:
        return (
            "min time does not wait for what it published there: start the front again with "
            "pass_over_late=True, and whoever reads that consumes it late"
        )
    if code is RefusalCode.FENCED:
        return (
            "what it published and the tracker has not taken is waited for, unless the front was evicted or "
            "retired: start it again, and with pass_over_late=True if that is refused as below_min_time"
        )
    return "what it published and the tracker has not taken holds min time back"
