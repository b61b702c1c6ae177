"""A reader that is gated by min time: each run of a job takes exactly the rows completed since its last.

    with CompletedReader("127.0.0.1:7070", "orders", "load", "/data/report/runs.json") as reader:
        taken = reader.take(lambda: spark.read.parquet("/data/orders"))
        if taken is not None:
            taken.frame.write.mode("overwrite").parquet(f"/data/report/run={taken.run.number}")
            taken.done()

A table is read at one version, which is recorded with the run, so that a run that is given out again reads
the same: `reader.take(TableAsOf(spark, "lake.orders", "delta"))`.

Rows are told apart by their slots, in a column, and runs cut the slots at min times: what lies below min
time is there and will not grow, so no row is missed and none is taken twice, in whatever order rows become
visible. A row that can be seen already, and lies at min time or above, waits for a later run.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from local_tracker.spark.scala import class_name, iterated
from tracker.consumers.periods.runs import Run, Runs
from tracker.errors import TrackingError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def slot_of_timestamp(column: Column, slack_ns: int) -> Column:
    """The slot of a timestamp column, in a pipeline whose slots are `slack_ns` nanoseconds wide and
    whose fronts label rows by that very timestamp. Rounded down; to microseconds, as Spark keeps them."""
    functions = _functions()
    # In microseconds where they will do: nanoseconds of an int64 end in the year 2262.
    scale, width = (1, slack_ns // 1_000) if slack_ns % 1_000 == 0 else (1_000, slack_ns)
    unix, slack = functions.unix_micros(column) * functions.lit(scale), functions.lit(width)
    # Whole numbers all the way: `/` would go by doubles.
    return functions.call_function("div", unix - functions.pmod(unix, slack), slack)


def between(frame: DataFrame, run: Run, slot: str | Column) -> DataFrame:
    """The rows of a run: those whose slot, a column of whole numbers, lies within it."""
    column = _functions().col(slot) if isinstance(slot, str) else slot
    return frame.where((column >= run.from_slot) & (column < run.to_slot))


@runtime_checkable
class Versioned(Protocol):
    """What is read at one of its versions: a `TableAsOf`."""

    def newest(self) -> int | None:
        """The version that who reads it now would read; None where it has none yet."""

    def load(self, version: int | None) -> DataFrame:
        """All of it at a version; None: as it is."""


@dataclass(frozen=True, slots=True)
class Taken:
    """What one run takes. Publish it under `run.number`, replacing what an earlier attempt at the same
    run may have left, and then say `done()`."""

    run: Run
    frame: DataFrame
    _runs: Runs

    def done(self) -> None:
        """The run is published for good. May be repeated."""
        self._runs.done(self.run)


class CompletedReader:
    """The runs of one job over data that tracked queries write. One process at a time."""

    def __init__(
        self,
        target: str | Sequence[str],
        pipeline: str,
        segment: str | None,
        record: str | os.PathLike[str],
        *,
        slot: str | Column = "global_time",
        since: int | datetime | None = None,
    ) -> None:
        """segment: the one that the query which writes the data reads; None: the whole pipeline, which
        is right for any. slot: the column of the rows' slots, or an expression that gives them; every
        row has one. record, since: as for `Runs`."""
        self._runs = Runs(target, pipeline, segment, record, since=since)
        self._slot = slot

    def take(self, load: Callable[[], DataFrame] | Versioned) -> Taken | None:
        """The rows completed since the last run that was done; None if no slot was completed. The last
        run again, if it was not done.

        load: makes the DataFrame. It is called after min time was asked for, since a DataFrame over files
        has the files that were there when it was made; twice where a query commits at that moment. Or a
        table: the run reads it at the version that was the newest then, and again at that one if it was not
        done. Raises what `Runs.begin` and `load` raise.
        """
        if not isinstance(load, Versioned) and not callable(load):
            raise TypeError(
                f"take() makes the DataFrame itself, once it knows min time: one made before, such as "
                f"this {type(load).__name__}, may lack files that are complete by then; pass a function, "
                f"lambda: spark.read.parquet(...)"
            )
        run = self._runs.begin(load.newest if isinstance(load, Versioned) else None)
        if run is None:
            return None
        if isinstance(load, Versioned):
            frame = load.load(run.version)
        else:
            frame = _loaded(load)
        return Taken(run, between(frame, run, self._slot), self._runs)

    def close(self) -> None:
        self._runs.close()

    def __enter__(self) -> CompletedReader:
        self._runs.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _loaded(load: Callable[[], DataFrame]) -> DataFrame:
    """A frame with all the files that are there now. A query that commits behind `load` leaves it without some: it is called
    once more, and raises TrackingError where what it makes lacks them still, as what is kept does."""
    lacking = _list_files_anew(frame := load())
    if not lacking:
        return frame
    if still := sorted(lacking.keys() & _list_files_anew(frame := load()).keys()):
        place = lacking[still[0]]
        raise TrackingError(
            f"the DataFrame to take from lacks {len(still)} files that a query has written to {place} since it was made, "
            f"such as {still[0]}: Spark never lists them anew for a view, a table or a DataFrame that is kept. Read the "
            f"directory within the function, lambda: spark.read.parquet({place!r})"
        )
    return frame


def _list_files_anew(frame: DataFrame) -> dict[str, str]:
    """What a frame reads of files becomes those that are there now: a session goes on with those of a table, a view or a frame
    that were there when it was read, or cached, first. Of Spark Connect nothing is known here. The files that a file sink has
    written are listed when a frame is made, and never again: returns those that it lacks, each with its directory."""
    made = getattr(frame, "_jdf", None)
    if made is None:
        return {}
    from local_tracker.spark.jvm import file_index, leaves, planned_now

    spark, is_cached = frame.sparkSession, "InMemoryRelation" in map(class_name, planned_now(frame))
    lacking: dict[str, str] = {}
    for index in map(file_index, leaves(made.queryExecution().analyzed())):
        if index is None:
            continue
        index.refresh()
        for place in (str(path.toString()) for path in iterated(index.rootPaths())):
            if is_cached:
                spark.catalog.refreshByPath(place)
            if class_name(index) == "MetadataLogFileIndex":
                there, known = spark.read.text(place).inputFiles(), map(str, index.inputFiles())
                lacking.update(dict.fromkeys({*there} - {*known}, place))
    return lacking


def _functions() -> Any:
    from pyspark.sql import functions

    return functions
