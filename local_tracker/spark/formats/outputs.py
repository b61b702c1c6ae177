"""Where the batches of a query leave files, by what Spark, our own writer or the sink has recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from local_tracker.spark.formats.kafka_sink import TopicSink
from local_tracker.spark.formats.published import KEPT_MANIFESTS, PublishedBatches
from local_tracker.spark.formats.tables import TableWriter
from local_tracker.spark.query.compose import CreatedUnit
from local_tracker.spark.query.logs import SinkLog
from local_tracker.worker import noted
from tracker.files import STORES, Stores


@dataclass(frozen=True, slots=True)
class Output:
    """Files of a query for the segments of the given numbers, by the number of the batch; or records.

    names: of the batch's files. has: whether the batch has left anything here, be it no file at all.
    run: the one that evaluated the batch, where that is recorded. forget: removes what is recorded of
    a batch that is not needed any more. topic: that the records are in, each batch's covered before it is
    over.
    """

    segments: tuple[int, ...]
    names: Callable[[int], Iterable[str]]
    has: Callable[[int], bool]
    run: Callable[[int], str | None] = lambda batch: None
    forget: Callable[[int], None] = lambda batch: None
    topic: TopicSink | None = None

    def created(self, batch: int) -> list[CreatedUnit]:
        return [CreatedUnit(name, self.segments) for name in self.names(batch)]

    def durable(self, batch: int) -> None:
        """The batch's tick is durable."""
        self.forget(batch - KEPT_MANIFESTS)


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


def topic_output(sink: TopicSink, segments: tuple[int, ...]) -> Output:
    """Of a writer in `foreachBatch` to a topic, which covers a batch before that is over."""
    return Output(
        segments, lambda batch: (), lambda batch: sink.covered(batch) is not None, topic=sink
    )


def noted_output(directory: str, segments: tuple[int, ...], stores: Stores = STORES) -> Output:
    """Of a sink of the user's own, which records what it commits."""
    return Output(
        segments,
        lambda batch: noted.recorded_units(directory, batch, stores),
        lambda batch: noted.is_recorded(directory, batch, stores),
        forget=lambda batch: noted.forget(directory, batch, stores),
    )
