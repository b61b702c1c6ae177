"""Where the batches of a query leave files, by what Spark, our own writer or the sink has recorded; or records, which
are numbered."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from local_tracker.spark.formats.interface import TableWriter
from local_tracker.spark.formats.published import KEPT_MANIFESTS, PublishedBatches
from local_tracker.spark.query.compose import CreatedUnit
from local_tracker.spark.query.logs import SinkLog
from local_tracker.worker import noted
from tracker.core.model import Cells
from tracker.files import STORES, Stores


@dataclass(frozen=True, slots=True)
class BatchLabels:
    """Under which slots a batch that is over creates, by segment numbers. slots: the least of what it consumed;
    least_slots: as much of a later batch that is planned; with_moment: slots, and those of the moment for segments that have
    none, where what is created came of no input."""

    batch: int
    query_id: str
    had_input: bool
    slots: Mapping[int, int]
    planned: Callable[[], Iterable[int]]
    least_slots: Callable[[int], Mapping[int, int]]
    with_moment: Callable[[Mapping[int, int], Iterable[int]], dict[int, int]]


class Records(ABC):
    """What batches create where records are numbered, as in a topic."""

    def look(self) -> object:
        """How far they have come when a batch is over; None if that is not known, or need not be."""
        return None

    @abstractmethod
    def cells(self, labels: BatchLabels, seen: object) -> Cells:
        """What a batch has created, durable then. seen: what `look` has returned. Raises UnavailableError, AwayError,
        ComposeError."""

    @abstractmethod
    def durable(self, batch: int, min_times: Callable[[], Mapping[int, int]]) -> None:
        """The batch's tick is durable. min_times: by segment number."""


@dataclass(frozen=True, slots=True)
class Output:
    """Files of a query for the segments of the given numbers, by the number of the batch; or records.

    names: of the batch's files. has: whether the batch has left anything here, be it no file at all.
    run: the one that evaluated the batch, where that is recorded. forget: removes what is recorded of
    a batch that is not needed any more. records: where they are numbered.
    """

    segments: tuple[int, ...]
    names: Callable[[int], Iterable[str]]
    has: Callable[[int], bool]
    run: Callable[[int], str | None] = lambda batch: None
    forget: Callable[[int], None] = lambda batch: None
    records: Records | None = None

    def created(self, batch: int) -> list[CreatedUnit]:
        return [CreatedUnit(name, self.segments) for name in self.names(batch)]

    def durable(self, batch: int, min_times: Callable[[], Mapping[int, int]]) -> None:
        """The batch's tick is durable. min_times: by segment number."""
        self.forget(batch - KEPT_MANIFESTS)
        if self.records is not None:
            self.records.durable(batch, min_times)


def sink_output(log: SinkLog, segments: tuple[int, ...]) -> Output:
    """Of Spark's own file sink."""
    return Output(segments, log.created, log.has)


def table_output(writer: TableWriter, segments: tuple[int, ...]) -> Output:
    """Of a sink that writes to a table whose log is read."""
    return Output(segments, writer.names, writer.has, forget=writer.forget)


def published_output(batches: PublishedBatches, query: str, segments: tuple[int, ...]) -> Output:
    """Of a writer in `foreachBatch`."""

    def run(batch: int) -> str | None:
        manifest = batches.manifest(query, batch)
        return manifest.run if manifest else None

    return Output(
        segments,
        lambda batch: batches.units(query, batch),
        lambda batch: batches.manifest(query, batch) is not None,
        run,
        lambda batch: batches.forget(query, batch),
    )


def noted_output(directory: str, segments: tuple[int, ...], stores: Stores = STORES) -> Output:
    """Of a sink of the user's own, which records what it commits."""
    return Output(
        segments,
        lambda batch: noted.recorded_units(directory, batch, stores),
        lambda batch: noted.is_recorded(directory, batch, stores),
        forget=lambda batch: noted.forget(directory, batch, stores),
    )
