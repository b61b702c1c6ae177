"""A tracked query that runs, as whoever started it asks about it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming import StreamingQuery

from local_tracker.spark import jvm
from local_tracker.spark.formats.sinks import AtRest, Sweeper
from local_tracker.spark.query.compose import ComposeError
from local_tracker.spark.query.emits import Emission
from local_tracker.spark.query.follow import Followed, Follower, Stopping
from local_tracker.spark.query.labels import Promises
from local_tracker.spark.query.plans import Routes
from local_tracker.spark.query.ticks import QueryTicks
from local_tracker.spark.session import connect
from tracker.client import Admin, NodeClient
from tracker.core.log import Joined
from tracker.core.model import TickContent
from tracker.errors import TrackingError

_DRAIN_TIMEOUT_S = 30.0
_HEARTBEAT_INTERVAL_MS = 50

_T = TypeVar("_T")

log = logging.getLogger("lowmark.spark")


def _elsewhere(wait: Callable[[], _T]) -> _T:
    """The outcome of a call that waits long in the JVM, made by another thread. PySpark's own handler of Ctrl-C asks
    the JVM something, too: of a thread that is in the middle of a call it can't."""
    outcome: Future[_T] = Future()

    def work() -> None:
        try:
            outcome.set_result(wait())
        except BaseException as error:
            outcome.set_exception(error)

    threading.Thread(target=work, name="lowmark-waits-for-query", daemon=True).start()
    return outcome.result()


class TrackedQuery(Followed):
    """A running query and what follows it. Everything that a StreamingQuery offers is here too."""

    def __init__(
        self,
        query: StreamingQuery,
        node_id: str,
        node: NodeClient,
        admin: Admin,
        ticks: QueryTicks,
        joined: Joined,
        max_batches_behind: int,
        emission: Emission | None,
        sinks: Callable[[], Sequence[AtRest]] | None,
    ) -> None:
        """emission: of the front that the query is of what it emits, if it is one. sinks: what is
        swept for it, such as topics that it has claimed; closed with the query."""
        for sink in sinks() if sinks else ():
            sink.follow(ticks.checkpoint)
        self._waiting = threading.Event()  # set when the query is to wait for nothing more
        self.query, self.checkpoint = query, ticks.checkpoint
        self._node, self._admin, self._ticks = node, admin, ticks
        self._follower = Follower(
            node_id, node, self.checkpoint, ticks, joined,
            is_active=partial(_is_running, query), on_end=self._halt,
            max_batches_behind=max_batches_behind,
            progress=partial(jvm.newest_progress, query) if hasattr(query, "_jsq") else None,
        )  # fmt: skip
        self._front, self._closed = emission.front if emission else None, False
        self._left = emission is None and not ticks.holds_state
        """Whether nothing holds min time that ends only when it is to."""
        self._promises: Promises | None = None
        ticks.resume(self.last_durable_batch)
        self._follower.start()
        self._sweeper = Sweeper(sinks, lambda: self.last_durable_batch) if sinks else None
        if self._sweeper is not None:
            self._sweeper.start()
        if emission is not None:
            self._promises = Promises(
                node, emission.front, emission.promise, _HEARTBEAT_INTERVAL_MS, self._give_up
            )
            self._promises.start()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.query, name)

    @property
    def tracking_failure(self) -> TrackingError | None:
        """Why the query was stopped, if tracking failed."""
        return self.failure

    def processAllAvailable(self) -> None:
        """As in Spark; then also wait until the tracker has it all."""
        with self._reasons():
            self.query.processAllAvailable()
        self.wait_durable()

    def awaitTermination(self, timeout: int | None = None) -> bool | None:
        """As in Spark; raises TrackingError if the query was stopped because tracking failed. Ctrl-C leaves it by
        KeyboardInterrupt, after which the query can be stopped."""
        with self._reasons():
            ended: bool | None = _elsewhere(partial(self.query.awaitTermination, timeout))
        if not _is_running(self.query):
            self._close()
            if self.tracking_failure is not None:
                raise self.tracking_failure
        return ended

    def exception(self) -> Exception | None:
        """Why the query has ended: a failure of tracking, or Spark's own exception."""
        return self.tracking_failure or self.query.exception()

    def check_published(self, batch: int) -> None:
        """Raises TrackingError if a batch had input and has not published what the query creates: for
        when its function has returned, before Spark commits it."""
        self._check_before_commit(lambda: self._ticks.check_published(batch))

    def check_acks(self, batch: int, run: str) -> None:
        """Raises TrackingError if what user code acknowledged in a batch cannot be counted: for
        those who publish a batch, before they do."""
        self._check_before_commit(lambda: self._ticks.check_acks(batch, run))

    @property
    def routes(self) -> Routes:
        """Where its input comes from and its output goes."""
        return self._ticks.routes

    def slots_to_write(self, batch: int, segments: Iterable[int]) -> dict[int, int]:
        """As `QueryTicks.slots_to_write`, for those who write while a batch goes on. Raises TrackingError
        where the query emits as a front, or is stopped meanwhile."""
        if self._front is not None:
            raise TrackingError(
                f"the query emits as front {self._front!r}, which is for files: leave out emits, or write files"
            )
        try:
            return self._ticks.slots_to_write(batch, segments, self._waiting)
        except Stopping:
            raise TrackingError(f"the query was stopped while batch {batch} waited") from None

    def _check_before_commit(self, check: Callable[[], None]) -> None:
        try:
            check()
        except ComposeError as error:
            self._refusal = TrackingError(str(error))
            raise self._refusal from None

    @contextmanager
    def _reasons(self) -> Iterator[None]:
        """Spark's exception gives way to the reason, where that is known."""
        try:
            yield
        except StreamingQueryException:
            if self._refusal is None:
                raise
            self._close()
            raise self._refusal from None

    def stop(self, *, leave: bool = False) -> None:
        """Stop the query, and commit what is over. What the tracker doesn't take in time (it may be
        away) is committed when the query is started again. leave: a query that emits from its state
        ends for good: its front holds min time no longer, nor does what is in its state, which is given up. Raises
        TrackingError where it has been closed before without leaving, as after `awaitTermination`."""
        self._halt()
        self._close(leave=leave)

    def _give_up(self, error: TrackingError) -> None:
        """The tracker takes no promise of the query's front any more."""
        self._refusal = error
        self._halt()

    def _halt(self) -> None:
        """Stops the query, whose batch may be waiting for slots."""
        self._waiting.set()
        self.query.stop()

    def _close(self, *, leave: bool = False) -> None:
        if self._closed:  # what is in the checkpoint now is another run's
            if leave and not self._left:
                raise self._not_left()
            return
        self._closed = True
        clean = self._followed.close(_DRAIN_TIMEOUT_S)
        if self._sweeper is not None:
            self._sweeper.stop()
        if self._promises is not None:
            # The last batch of a run that ends by itself has just become durable.
            self._promises.stop(_DRAIN_TIMEOUT_S if clean and not leave else None)
        if leave and clean:
            self._leave()
        elif self._ticks.let_go():  # for the batch that was under way
            self._left = False
        if not clean and self._followed.failure is None:
            log.warning(
                "query %s has batches that are not durable in the tracker yet; they are committed "
                "when it is started again%s", self.query.id,
                "; till then its front, and what is in its state, hold min time" if leave else "",
            )  # fmt: skip
        self._node.close()
        self._admin.close()

    def _leave(self) -> None:
        """It emits nothing any more, of which all is durable that is over."""
        if self._front is not None:
            self._node.leave_front(self._front).result(_DRAIN_TIMEOUT_S)
        if moves := self._ticks.let_go():
            self._node.commit(TickContent(holds=moves)).result(_DRAIN_TIMEOUT_S)
        self._left = True

    def _not_left(self) -> TrackingError:
        node_id = self._node.node_id
        return TrackingError(
            f"query {node_id!r} was closed before it was to leave, so what its front, its state or its last batch holds is "
            f"still held: start it again and stop(leave=True) while it runs, or lowmark nodes retire {node_id} "
            f"--release-holds"
        )


def _is_running(query: StreamingQuery) -> bool:
    return connect.is_running(query) if connect.is_remote(query) else jvm.is_running(query)
