"""Spark's classes over a tracker's progress: data sources and table functions, registered in a session by one call.

    register(spark, "127.0.0.1:7070")
    spark.read.format("lowmark").option("table", "status").load()
    spark.readStream.format("lowmark.completed").option("pipeline", "orders").load()
    spark.sql("SELECT * FROM lowmark_min_time('orders', 'price')")

All is asked while Spark plans, in the driver: executors get the rows. The classes are made inside of functions, so that
Spark sends them by value, and refer to nothing of Lowmark outside of what plans: an executor has it not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from local_tracker.spark.progress.asked import COMPLETED, PROGRESS
from local_tracker.spark.versions import check_data_sources, push_filters_down
from tracker.client.connection import SecureTarget, parse_targets

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from local_tracker.spark.progress.streams import Stream

TIMEOUT_S = 15.0
"""How long a query waits for a tracker that does not answer, and then fails."""


def register(
    spark: SparkSession, target: str | Sequence[str], *, timeout_s: float = TIMEOUT_S
) -> None:
    """Registers the formats `lowmark` and `lowmark.completed`, and the functions `lowmark_status`, `lowmark_nodes`
    and `lowmark_min_time`, in a session, which may be one of Spark Connect.

    target: host:port of one process of the tracker or of several, or a SecureTarget, whose files the driver reads;
    timeout_s: how long a query waits for an answer. May be repeated, with another target. Raises TrackingError for
    a version of PySpark that has no Python data sources."""
    check_data_sources(spark.version)
    asked = plain(target, timeout_s)
    push_filters_down(spark)
    for format in (PROGRESS, COMPLETED):
        spark.dataSource.register(_data_source(format, asked))
    for name, function in _table_functions(asked).items():
        spark.udtf.register(name, function)


def plain(target: str | Sequence[str], timeout_s: float) -> tuple[Any, ...]:
    """The fields of an `Asked`, in values that any process can unpickle."""
    own = target.credentials if isinstance(target, SecureTarget) else None
    paths = None if own is None else (own.ca, own.cert, own.key, own.token_file)
    return parse_targets(target), paths, timeout_s


def _data_source(format: str, asked: tuple[Any, ...]) -> type[Any]:
    from pyspark.sql.datasource import DataSource

    reader, stream_reader = _reader(format, asked), _stream_reader(format, asked)

    class Source(DataSource):
        @classmethod
        def name(cls) -> str:
            return format

        def schema(self) -> Any:
            from local_tracker.spark.progress import asked as planning

            with planning.for_people():
                return planning.struct(planning.Asked(*asked).types(format, self.options))

        def reader(self, schema: Any) -> Any:
            return reader(dict(self.options))

        def streamReader(self, schema: Any) -> Any:
            return stream_reader(dict(self.options))

    return Source


def _reader(format: str, asked: tuple[Any, ...]) -> type[Any]:
    from pyspark.sql.datasource import DataSourceReader, InputPartition

    class Reader(DataSourceReader):
        def __init__(self, options: dict[str, str]) -> None:
            self.options = options
            self.named: frozenset[str] | None = None

        def pushFilters(self, filters: list[Any]) -> list[Any]:
            from local_tracker.spark.progress import asked as planning

            self.named = planning.named_by(filters)
            return filters  # Spark goes on filtering: less is asked for, that is all

        def partitions(self) -> list[Any]:
            from local_tracker.spark.progress import asked as planning

            with planning.for_people():
                rows = planning.Asked(*asked).rows(format, self.options, self.named)
            return [InputPartition(rows)]

        def read(self, partition: Any) -> Any:
            return iter(partition.value)

    return Reader


def _stream_reader(format: str, asked: tuple[Any, ...]) -> type[Any]:
    from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

    class StreamReader(DataSourceStreamReader):
        """One object plans a query; others read, on executors, and open nothing."""

        def __init__(self, options: dict[str, str]) -> None:
            self.options = options
            self.stream: Stream | None = None

        def opened(self) -> Any:
            from local_tracker.spark.progress import asked as planning

            if self.stream is None:
                self.stream = planning.Asked(*asked).stream(format, self.options)
            return self.stream

        def initialOffset(self) -> dict[str, Any]:
            from local_tracker.spark.progress import asked as planning

            with planning.for_people():
                return self.opened().initial()

        def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, Any]:
            # Since 4.2 Spark shows where it is; before it does so by `partitions` alone.
            from local_tracker.spark.progress import asked as planning

            with planning.for_people():
                return self.opened().latest(start)

        def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[Any]:
            from local_tracker.spark.progress import asked as planning

            with planning.for_people():
                stream = self.opened()
                rows = planning.as_tuples(stream.between(start, end), stream.types)
            return [InputPartition(rows)] if rows else []

        def read(self, partition: Any) -> Any:
            return iter(partition.value)

        def stop(self) -> None:
            if self.stream is not None:
                self.stream.close()

    return StreamReader


def _table_functions(asked: tuple[Any, ...]) -> dict[str, Any]:
    """By name. Their rows are found when the query is analysed, and travel with it."""
    from dataclasses import dataclass

    from pyspark.sql.functions import udtf
    from pyspark.sql.udtf import AnalyzeResult

    @dataclass
    class Found(AnalyzeResult):
        rows: tuple[tuple[Any, ...], ...] = ()

    def of_pipeline(table: str, pipeline: Any) -> Any:
        from local_tracker.spark.progress import asked as planning

        with planning.for_people():
            ask = planning.Asked(*asked)
            options = {"table": table, "pipeline": planning.constant("pipeline", pipeline) or ""}
            rows = ask.rows(PROGRESS, options, None)
            return Found(planning.struct(ask.types(PROGRESS, options)), rows=tuple(rows))

    class Rows:
        def __init__(self, analysed: Any) -> None:
            self.rows = analysed.rows

        def eval(self, *arguments: Any) -> Any:
            yield from self.rows

    class Status(Rows):
        @staticmethod
        def analyze(pipeline: Any) -> Any:
            return of_pipeline("status", pipeline)

    class Nodes(Rows):
        @staticmethod
        def analyze(pipeline: Any) -> Any:
            return of_pipeline("nodes", pipeline)

    class MinTime(Rows):
        @staticmethod
        def analyze(pipeline: Any, segment: Any = None) -> Any:
            from local_tracker.spark.progress import asked as planning

            with planning.for_people():
                ask = planning.Asked(*asked)
                names = (
                    planning.constant("pipeline", pipeline) or "",
                    planning.constant("segment", segment),
                )
                types = ask.types(PROGRESS, {"table": "min_times"})
                return Found(planning.struct(types), rows=tuple(ask.min_time(*names)))

    return {
        "lowmark_status": udtf(Status),
        "lowmark_nodes": udtf(Nodes),
        "lowmark_min_time": udtf(MinTime),
    }
