"""What all writers for `foreachBatch` have in common: whose batch it is that calls, that it calls once, and that a batch
of which something is to be there has called."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.utils import ForeachBatchFunction

from local_tracker.spark.formats.outputs import Output
from local_tracker.spark.formats.sinks import AtRest, Outputs, RunningSink, Sink, SinkPlan
from local_tracker.spark.query.logs import CheckpointLog
from local_tracker.spark.query.plans import Routes
from tracker.client.topics import TopicPlace
from tracker.errors import TrackingError
from tracker.files import Stores


class WritingQuery(Protocol):
    """What is asked of the query whose batch is written."""

    @property
    def checkpoint(self) -> CheckpointLog: ...
    @property
    def routes(self) -> Routes: ...
    def slots_to_write(self, batch: int, segments: Iterable[int]) -> dict[int, int]: ...
    def check_acks(self, batch: int, run: str) -> None: ...


class Calls:
    """The calls to those who write to one place: one in each batch of a query's run."""

    def __init__(self, place: str) -> None:
        self._place = place
        self._last: dict[str, tuple[str, int]] = {}  # by query

    def begin(self, frame: DataFrame, batch: int) -> tuple[str, str]:
        """The ids of the query whose batch calls, and of its run. Raises TrackingError outside of
        `foreachBatch`, and where a batch calls for the second time."""
        context = frame.sparkSession.sparkContext
        query_id = context.getLocalProperty("sql.streaming.queryId")
        run = context.getLocalProperty("spark.jobGroup.id")
        if query_id is None or run is None:
            raise TrackingError("a tracked.writer(...) is for use within foreachBatch only")
        if self._last.get(query_id) == (run, batch):
            raise TrackingError(
                f"the writer for {self._place} was called twice in batch {batch}: make one "
                f"tracked.writer(...) for each output"
            )
        self._last[query_id] = run, batch
        return query_id, run


@dataclass(frozen=True, slots=True)
class Writing:
    """What a writer is made from. out, fmt, creates, partition_by, options: as for `Tracked.writer`. admitted_query: by
    its id, one that was started; place_of: where it is recorded who labels a topic; known: the writers of the
    session."""

    session: SparkSession
    stores: Stores
    admitted_query: Callable[[str], WritingQuery]
    place_of: Callable[[str], TopicPlace]
    known: Mapping[str, BatchWriter]
    out: str
    fmt: str
    creates: Sequence[str] | None
    partition_by: Sequence[str]
    options: Mapping[str, str]


class BatchWriter(ABC):
    """Publishes the DataFrame of each batch, each batch once; made by `Tracked.writer`."""

    place: str
    """What it writes: of several of one session, the last one counts."""

    claims: bool = False
    """Whether it claims what it writes for the query."""

    def __init__(self, writing: Writing) -> None:
        self._writing = writing
        self.creates = None if writing.creates is None else tuple(writing.creates)

    @abstractmethod
    def __call__(self, frame: DataFrame, batch: int) -> None:
        """Publishes a batch's DataFrame, unless it has been published before. Raises TrackingError."""

    @abstractmethod
    def output(self, query_id: str, routes: Routes, checkpoint: CheckpointLog) -> Output | None:
        """What a query's batches leave; None while it has not written here."""

    def started(self, query_id: str) -> None:  # noqa: B027 (most have nothing to do)
        """The query is started, perhaps again, and by another driver in between."""

    def claimed(self, query_id: str) -> AtRest | None:
        """What the query has claimed by now; None if nothing."""
        return None

    def segments(self, routes: Routes) -> tuple[int, ...]:
        """The numbers of the segments that a query creates in by this."""
        if self.creates is None:
            return routes.creates
        return tuple(routes.number(name) for name in self.creates)


class EachBatchSink(Sink):
    """A function of `foreachBatch`, which publishes by the writers of its session."""

    leaves: bool = True

    def __init__(
        self, plan: SinkPlan, writers: Callable[[], Sequence[BatchWriter]], *, acknowledge: bool
    ) -> None:
        """acknowledge: user code does, so that it counts which run has published a batch."""
        super().__init__(plan)
        self._writers, self._acknowledge = writers, acknowledge

    def check(self) -> None:
        named = [writer.creates for writer in self._writers()]
        lacking = [c for c in self.plan.creates if not any(n is None or c in n for n in named)]
        if lacking:
            raise TrackingError(
                f"the query is to create in {lacking}, and its function of foreachBatch has nothing to "
                f"publish by: make a tracked.writer(...) for it before the query is started, and call it "
                f"in every batch; or start the query with creates=[]"
            )

    def has(self, batch: int) -> bool:
        assert self.plan.checkpoint is not None, "of another query nothing is found again"
        return any(output.has(batch) for output in self._published(self.plan.checkpoint))

    def outputs(self, running: RunningSink) -> Outputs:
        for writer in self._writers():
            writer.started(self.plan.query_id)
        return partial(self._published, running.checkpoint)

    def at_rest(self) -> Callable[[], Sequence[AtRest]] | None:
        if not any(writer.claims for writer in self._writers()):
            return None
        query = self.plan.query_id
        return lambda: [c for w in self._writers() if (c := w.claimed(query)) is not None]

    def _published(self, checkpoint: CheckpointLog) -> Iterable[Output]:
        for writer in self._writers():
            output = writer.output(self.plan.query_id, self.plan.routes, checkpoint)
            if output is not None and (output.segments or self._acknowledge):
                yield output


def check_each_batch(holder: ForeachBatchFunction, check: Callable[[str, int], None]) -> None:
    """From here on `check(query id, batch)` follows the function of `foreachBatch` in each batch, which
    fails if it raises; once, however often the function's writer is started."""
    before: Any = holder.func
    function = getattr(before, "checked_function", before)

    def each_batch(frame: DataFrame, batch: int) -> None:
        function(frame, batch)
        query_id = frame.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
        check(str(query_id), batch)

    each_batch.checked_function = function  # type: ignore[attr-defined]
    holder.func = each_batch
