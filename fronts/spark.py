"""A Spark front: labels the raw stream of a source that knows nothing of Lowmark.

Its query writes each micro-batch as files whose names carry one slot, that of the batch's timestamp
(what `current_timestamp()` says in it, the same when the batch is run again), never below what the
front has promised before. It is a node, and the front of its segment: what a batch published is
created by the batch's tick, and between batches the driver goes on promising, so that min time moves
while the source is silent.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import Any

import pyspark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

from fronts.front import DEFAULTS, FrontOptions
from fronts.once import StartedOnce
from local_tracker.spark.formats.hadoop_files import session_stores
from local_tracker.spark.formats.published import KEPT_MANIFESTS, Manifest, PublishedBatches
from local_tracker.spark.jvm import checkpoint_root, is_running, newest_progress
from local_tracker.spark.query.compose import BatchUnits, CreatedUnit, compose, fingerprint
from local_tracker.spark.query.follow import (
    MAX_BATCHES_BEHIND,
    Followed,
    Follower,
    begun_batch,
    refuse_another_node,
)
from local_tracker.spark.query.labels import FrontLabels, Promises
from local_tracker.spark.query.logs import BatchOffsets, CheckpointLog
from local_tracker.spark.query.starting import StartingQuery, check_planned
from local_tracker.spark.session import connect
from local_tracker.spark.versions import check_version
from tracker.client import Admin
from tracker.client.node import segment_number
from tracker.core.log import Joined
from tracker.core.model import Batch, Refusal, RefusalCode, TickContent
from tracker.core.model.slots import slot_of
from tracker.core.model.units import file_name
from tracker.errors import RefusedError, TrackingError

_DRAIN_TIMEOUT_S = 30.0
_READY_TIMEOUT_S = 60.0

log = logging.getLogger("lowmark.spark")


class SparkFront(Followed, StartedOnce):
    """A front whose items are the batches of a streaming query, published as files in `out`.

    `segment` is the one that the readers of `out` read; `fmt` and `written` go to the files' writer. The clock of the
    options is for promises; labels come from Spark's own. What is passed over as too late is in `late_batches`.
    """

    def __init__(
        self,
        target: str | Sequence[str],
        pipeline: str,
        front: str,
        segment: str,
        out: str,
        *,
        fmt: str = "parquet",
        options: FrontOptions = DEFAULTS,
        **written: str,
    ) -> None:
        check_version(pyspark.__version__, options.untried_pyspark)
        self.front, self.segment = front, segment
        self._stores = session_stores(SparkSession.getActiveSession())
        self._batches = PublishedBatches(out, self._stores)
        self._target, self._pipeline, self._node_id = target, pipeline, options.node_id or front
        self._format, self._written, self._options = fmt, written, options
        self.late_batches: list[int] = []
        """The batches that were passed over: published before an eviction, and too late to be created."""
        self._ready, self._stopping = threading.Event(), threading.Event()
        self._query: StreamingQuery | None = None
        self._last_of_before = -1
        """The last batch of a query that may have run before it was a front: it may have published nothing."""

    def start(self, writer: DataStreamWriter, *, take_over: bool = False) -> StreamingQuery:
        """Start the query of a raw stream: `front.start(frame.writeStream.option(...))`, with the
        checkpoint's location and the trigger set, and no sink. take_over: end another query that runs
        under this node id. Raises TrackingError or LowmarkError if it cannot be a front; nothing has
        been ended then, and no query runs."""
        with self._once():
            return self._begin(writer, take_over)

    def _begin(self, writer: DataStreamWriter, take_over: bool) -> StreamingQuery:
        if connect.is_remote(writer):
            raise connect.refuse_front(self.front)
        planned = check_planned(writer, self.front)
        starting = StartingQuery(
            self._target, self._pipeline, self._node_id, planned, take_over,
            self._stores, front_in=self._batches.directory,
        )  # fmt: skip
        self._node = starting.node
        try:
            asked = starting.ask()
            self._segment_number = segment_number(asked.spec, self.segment)
            if starting.checkpoint is not None and starting.checkpoint.exists():
                with Admin(self._target) as admin:
                    about = f"front {self.front!r}"
                    refuse_another_node(about, starting.checkpoint, asked, [self.segment], admin)
                self._follow(starting.checkpoint, asked)  # as it will be: nothing is begun
                if all(b.scope != starting.id or b.id < 0 for b in asked.last_batches):
                    self._last_of_before = max(starting.checkpoint.planned(), default=-1)
            return self._start(writer, starting.join(), starting.id)
        except BaseException:
            self._stopping.set()
            self._ready.set()
            if self._query is not None:
                self._query.stop()
            self._node.close()
            raise

    def _start(self, writer: DataStreamWriter, joined: Joined, query_id: str) -> StreamingQuery:
        self._slack_ns = joined.spec.slack_ns
        self._labels = FrontLabels.joined(self._node, self.front, self.segment)
        self._commit_left([b for b in joined.last_batches if b.scope != query_id])
        self._promises = Promises(
            self._node, self.front,
            lambda: self._labels.promise(slot_of(self._options.clock(), self._slack_ns)),
            self._options.heartbeat_interval_ms, self._give_up,
        )  # fmt: skip
        query = self._query = writer.foreachBatch(self._publish).start()
        follower = self._follower = self._follow(
            CheckpointLog(checkpoint_root(query), self._stores), joined
        )
        self._reopen(follower.last_durable_batch)
        self._make_known(joined.last_batches)
        follower.start()
        self._ready.set()
        self._promises.start()
        return query

    def _follow(self, checkpoint: CheckpointLog, joined: Joined) -> Follower:
        self._checkpoint = checkpoint
        return Follower(
            self.front, self._node, checkpoint, self, joined,
            is_active=lambda: self._query is not None and is_running(self._query),
            on_end=lambda: self._query and self._query.stop(),
            max_batches_behind=self._options.max_batches_behind or MAX_BATCHES_BEHIND,
            one_query=False,  # what is published again are new items
            progress=lambda: None if self._query is None else newest_progress(self._query),
        )  # fmt: skip

    def stop(self, *, leave: bool = False) -> None:
        """Stop the query and commit what it published. `leave`: the front ends for good and no longer
        holds min time; else min time waits for it to be started again."""
        assert self._query is not None, "the front was not started"
        self._query.stop()
        clean = self._followed.close(_DRAIN_TIMEOUT_S)
        self._stopping.set()
        self._promises.stop()
        try:
            if leave:
                if not clean:
                    raise TrackingError(
                        f"front {self.front!r} has batches that are not durable in the tracker yet, "
                        f"so it cannot leave: start it again and stop it later"
                    )
                self._node.leave_front(self.front).result(_DRAIN_TIMEOUT_S)
        finally:
            self._node.close()

    # --- the query's side -------------------------------------------------------------------------

    def _publish(self, frame: DataFrame, batch: int) -> None:
        self._ready.wait(_READY_TIMEOUT_S)
        if self._stopping.is_set() or not self._ready.is_set():
            raise TrackingError(f"front {self.front!r} was not started")
        offsets = self._checkpoint.offsets(batch)
        label = self._label(offsets)

        def name_of(name: str, ordinal: int) -> str:
            suffix = name.rsplit(".", 1)[-1]
            return file_name(label, f"{self.front}.{ordinal}", batch, suffix)

        run = frame.sparkSession.sparkContext.getLocalProperty("spark.jobGroup.id") or ""
        self._batches.publish(
            self._checkpoint.query_id, batch, offsets.text, run,
            lambda folder: frame.write.format(self._format).options(**self._written).save(folder),
            name_of, label,
        )  # fmt: skip

    def _label(self, offsets: BatchOffsets) -> int:
        timestamp_ns = offsets.timestamp_ms * 1_000_000
        return self._labels.label(offsets.batch, slot_of(timestamp_ns, self._slack_ns))

    def _reopen(self, last_durable: int) -> None:
        """Hold promises for what an earlier driver published and did not commit, or may be publishing still: its label
        for that is not below the one here."""
        for batch in self._checkpoint.planned():
            if batch <= last_durable:
                continue
            if (manifest := self._manifest(batch)) is None:
                self._label(self._checkpoint.offsets(batch))
                continue
            assert manifest.slot is not None
            # Nothing of what lies lower can be created any more.
            if manifest.slot >= self._labels.lowest_slot:
                self._labels.reopen(batch, manifest.slot)

    def _make_known(self, last_batches: Sequence[Batch]) -> None:
        """Before a query publishes anything the tracker knows of it: else nobody would look for what it has published where
        nothing of it is committed, and it never runs again."""
        query = self._checkpoint.query_id
        if all(batch.scope != query for batch in last_batches):
            begun = TickContent(batch=begun_batch(query, query))
            self._node.commit(begun).result(_DRAIN_TIMEOUT_S)

    def _commit_left(self, last_batches: Sequence[Batch]) -> None:
        """Commits what queries of this front with other checkpoints have published, and nobody has committed: readers
        may have read it. last_batches: what the tracker has of these."""
        for last in last_batches:
            for batch in self._batches.numbers(last.scope):
                manifest = self._batches.manifest(last.scope, batch) if batch > last.id else None
                if manifest is None:
                    continue
                self._batches.place(manifest)
                record = self._record(last.scope, batch, manifest, manifest.offsets)
                try:
                    content = self.tick(record, self._stopping)
                    self._node.commit(content).result(_DRAIN_TIMEOUT_S)
                except RefusedError as error:
                    self.relabelled(record, error.refusal)  # says what to do
                    raise
                log.warning(
                    "front %r: batch %d of query %s, whose checkpoint was another one, was published and is committed now",
                    self.front, batch, last.scope,
                )  # fmt: skip

    def _manifest(self, batch: int) -> Manifest | None:
        return self._batches.manifest(self._checkpoint.query_id, batch)

    def _give_up(self, error: TrackingError) -> None:
        """The tracker no longer takes this front's promises: its query must not publish any more."""
        assert self._query is not None
        self._refusal = TrackingError(
            f"{error}, and with pass_over_late=True if it was evicted and that is refused as below_min_time"
        )
        self._query.stop()

    # --- BatchTicks -------------------------------------------------------------------------------

    def read(self, batch: int) -> Any:
        """A batch, as the follower reads it."""
        query = self._checkpoint.query_id
        offsets = self._checkpoint.offsets(batch).text
        return self._record(query, batch, self._manifest(batch), offsets)

    def _record(
        self, query: str, batch: int, manifest: Manifest | None, offsets: str
    ) -> BatchUnits:
        segment = self._segment_number
        names = self._batches.units(query, batch)
        created = tuple(CreatedUnit(name, (segment,)) for name in names)
        slots = {} if manifest is None else {segment: manifest.slot or 0}
        return BatchUnits(query, batch, fingerprint(offsets, {}, created), (), created, slots)

    def tick(self, record: BatchUnits, stopping: threading.Event) -> TickContent:
        if not record.label_slots and record.batch > self._last_of_before:
            raise TrackingError(
                f"front {self.front!r}: batch {record.batch} is over, and nothing in {self._batches.directory}/_lowmark "
                f"tells any more what it published, which readers may have read: restore it, or start over, with a "
                f"pipeline of another name"
            )
        lowest = self._labels.lowest_slot
        late = bool(record.created) and record.label_slots[self._segment_number] < lowest
        if late and self._options.pass_over_late:
            log.warning(
                "front %r: batch %d was published before the front was evicted and lies below slot %d: it "
                "is passed over, whoever reads it consumes it late", self.front, record.batch, lowest,
            )  # fmt: skip
            self.late_batches.append(record.batch)
            return TickContent(batch=compose(record).batch)
        return compose(record)

    def relabelled(self, record: BatchUnits, refusal: Refusal) -> TickContent | None:
        if refusal.code is RefusalCode.BELOW_MIN_TIME and not self._node.joined.generation:
            raise TrackingError(
                f"front {self.front!r}: batch {record.batch}, which it has published, is not waited for, "
                f"since the front was evicted before it was committed ({refusal.message}); start it again "
                "with pass_over_late=True, and whoever reads the batch consumes it late"
            )
        return None

    def hear(self) -> None:
        """A segment that a front feeds is not removed, and keeps its number."""

    def durable(self, batch: int) -> None:
        self._labels.close(batch)
        self._batches.forget(self._checkpoint.query_id, batch - KEPT_MANIFESTS)
