"""Where a query writes, from before it is started until it has ended: what is refused, what is claimed, and where its
batches leave files or records."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from local_tracker.spark.formats.interface import TableFormat
from local_tracker.spark.formats.outputs import Output, noted_output
from local_tracker.spark.formats.registry import formats
from local_tracker.spark.query.logs import CheckpointLog
from local_tracker.spark.query.plans import Routes
from tracker.client.topics import TopicPlace
from tracker.errors import LowmarkError, TrackingError
from tracker.files import Stores

if TYPE_CHECKING:
    from local_tracker.spark.jvm import PlannedQuery

SWEEP_EVERY_S = 2.0
"""How often a query that is at rest looks for what was written by no batch: of a topic one listing, two requests."""

log = logging.getLogger("lowmark.spark")


@dataclass(frozen=True, slots=True)
class SinkPlan:
    """What is known of a query that is going to write. place_of: where it is recorded who labels a topic. emits: the
    front that it is of what it emits, if it is one. to_table: the table that it starts into by name, if so."""

    node_id: str
    query_id: str
    planned: PlannedQuery
    routes: Routes
    checkpoint: CheckpointLog | None
    stores: Stores
    place_of: Callable[[str], TopicPlace]
    emits: object = None
    to_table: str | None = None

    @property
    def creates(self) -> list[str]:
        """The names of the segments that it creates in."""
        return [self.routes.spec.segments[number] for number in self.routes.creates]


@dataclass(frozen=True, slots=True)
class RunningSink:
    """The sink of a query that was started. text: as it calls itself, `FileSink[<directory>]`, say; java: Spark's
    object, where it can be asked. checkpoint: the query's logs."""

    session: Any
    text: str
    checkpoint: CheckpointLog
    java: Any = None


class AtRest(Protocol):
    """What is swept while a query is at rest, such as a topic that it writes."""

    @property
    def name(self) -> str: ...
    def follow(self, checkpoint: CheckpointLog) -> None:
        """The query runs, with this checkpoint."""

    def sweep(self, last_durable: int) -> bool: ...
    def close(self) -> object: ...


Outputs = Callable[[], Iterable[Output]]
"""Where a query's batches have left files or records by now."""


class Sink:
    """Where one query writes."""

    leaves: bool = False
    """Whether each batch leaves something there, be it a note of nothing: then one with input that left none fails."""

    def __init__(self, plan: SinkPlan) -> None:
        self.plan = plan

    def check(self) -> None:
        """By the plan alone. Raises TrackingError where it can't be known what the query creates."""
        planned = self.plan.planned
        if self.plan.routes.creates and planned.path is None and self.plan.to_table is None:
            raise unreadable(planned.sink)

    def open(self) -> None:
        """Asks whoever has it; nothing is claimed. Raises LowmarkError, TrackingError."""

    def begin(self) -> None:
        """The node has joined, and the query is started next: claims what is to be its own. Raises as `open`."""

    def has(self, batch: int) -> bool:
        """Whether a batch of an earlier run is there, as far as is known before the query is started; else True."""
        return True

    def outputs(self, running: RunningSink) -> Outputs:
        """Where the batches of the query, which was started, leave something: by what it turned out to be. Raises
        TrackingError."""
        if not self.plan.routes.creates:
            return tuple
        found = (each.output(self.plan, running) for each in formats())
        if (output := next((one for one in found if one is not None), None)) is None:
            raise unreadable(running.text)
        return lambda: (output,)

    def at_rest(self) -> Callable[[], Sequence[AtRest]] | None:
        """What is swept for the query; None if nothing ever is."""
        return None

    def close(self) -> None:
        """The query was not started."""


class NotedSink(Sink):
    """A sink of the user's own, which notes what it commits."""

    leaves: bool = True

    def __init__(self, plan: SinkPlan, directory: str) -> None:
        super().__init__(plan)
        self._output = noted_output(directory, plan.routes.creates, plan.stores)

    def check(self) -> None:
        pass

    def has(self, batch: int) -> bool:
        return self._output.has(batch)

    def outputs(self, running: RunningSink) -> Outputs:
        return lambda: (self._output,)


class TableSink(Sink):
    """A table's own sink."""

    leaves = True

    def __init__(self, plan: SinkPlan, fmt: TableFormat) -> None:
        super().__init__(plan)
        self._format = fmt

    def check(self) -> None:
        routes, mode = self.plan.routes, self.plan.planned.mode
        check_by_units(routes, routes.creates)
        if routes.creates and (refused := self._format.refused_mode(mode)):
            raise TrackingError(
                f"the query is to create in {self.plan.creates}, and {refused}; use append, or start the query with "
                f"creates=[]: min time of the segment that it reads says up to when the table has all"
            )
        super().check()


def check_by_units(routes: Routes, segments: Iterable[int]) -> None:
    """Raises TrackingError where a table's rows were to be items."""
    if by_rows := {*segments} & {*routes.rows}:
        raise TrackingError(
            f"the query is to create by rows in {routes.spec.segments[min(by_rows)]!r}, and writes a "
            f"table: tables are tracked by units alone; leave the segment out of rows"
        )


class Sweeper:
    """Sweeps for a query while it is followed, in a thread of its own, and once more when it ends."""

    every_s: ClassVar[float] = SWEEP_EVERY_S

    def __init__(
        self, sinks: Callable[[], Sequence[AtRest]], last_durable: Callable[[], int]
    ) -> None:
        """sinks: what the query has claimed by now."""
        self._sinks, self._last_durable = sinks, last_durable
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lowmark-sweep", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """The query has ended, and what was over is durable, or will be by its next run."""
        self._stopping.set()
        self._thread.join()
        self._sweep()
        for sink in self._sinks():
            sink.close()

    def _run(self) -> None:
        while not self._stopping.wait(self.every_s):
            self._sweep()

    def _sweep(self) -> None:
        """What cannot be done now is done the next time; what is wrong, the next batch says."""
        for sink in self._sinks():
            try:
                sink.sweep(self._last_durable())
            except LowmarkError as error:
                log.warning("%s is not looked at: %s", sink.name, error)


def unreadable(sink: str) -> TrackingError:
    """Why a query that is to create can't write there."""
    return TrackingError(
        f"what the sink {sink} has committed cannot be read: use a file sink, a Delta or Iceberg table, Kafka, "
        f"foreachBatch with tracked.writer(...), or noted=DIRECTORY with a sink that notes what it commits; or "
        f"start the query with creates=[]"
    )
