"""Files that Spark's own sources list, and its own file sinks commit: text, JSON, CSV, Parquet and so on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from local_tracker.spark.formats.interface import Format, Leaf, Source
from local_tracker.spark.formats.outputs import Output, sink_output
from local_tracker.spark.formats.sinks import RunningSink, Sink, SinkPlan
from local_tracker.spark.query.logs import SinkLog

if TYPE_CHECKING:
    from local_tracker.spark.writers.each_batch import BatchWriter, Writing

SOURCES = frozenset(("parquet", "json", "csv", "text", "orc", "xml", "avro", "binaryfile"))
"""The formats of files that Spark streams from."""
SINKS = SOURCES - {"binaryfile"}

_SOURCE, _SINK = "FileSource[", "FileSink["


class FileSink(Sink):
    """Spark's own sink of files, or one that nothing is known of; it may be started into a table by name."""

    leaves = True

    def open(self) -> None:
        """Raises FilesError where the directory has another query's log."""
        plan = self.plan
        if plan.routes.creates and plan.planned.path is not None:
            SinkLog(plan.planned.path, plan.stores).check_is_of(plan.checkpoint)

    def has(self, batch: int) -> bool:
        path = self.plan.planned.path
        return path is None or SinkLog(path, self.plan.stores).has(batch)


class FileFormat(Format):
    """All of them: which one counts for nothing."""

    name = "files"
    is_files = True

    def source(self, leaf: Leaf) -> Source | None:
        if not leaf.what.startswith(_SOURCE):
            return None
        return file_source(leaf.number, leaf.what.removeprefix(_SOURCE).removesuffix("]"))

    def sink(self, plan: SinkPlan) -> FileSink:
        return FileSink(plan)

    def output(self, plan: SinkPlan, running: RunningSink) -> Output | None:
        if not running.text.startswith(_SINK):
            return None
        log = SinkLog(running.text.removeprefix(_SINK).removesuffix("]"), plan.stores)
        return sink_output(log, plan.routes.creates)

    def writer(self, writing: Writing) -> BatchWriter:
        from local_tracker.spark.writers.file_writer import FileBatchWriter

        return FileBatchWriter(writing)


def file_source(number: str, directory: str) -> Source:
    """A source of files, as Spark shows it."""
    return Source(number, f"{_SOURCE}{directory}]", directory)


def file_sink(directory: str) -> str:
    """What a sink of files calls itself."""
    return f"{_SINK}{directory}]"
