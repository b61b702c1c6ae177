"""A person's program in a process of its own: its queries are killed at a moment, or take all that there is and end.

    python -P -m tracker.testing.program REPORT MOMENT PROGRAM ARGUMENTS...

    python -P -m tracker.testing.program REPORT MOMENT --apart ROOT PROGRAM

The program is run as `python PROGRAM ARGUMENTS` would, but that a query is awaited until it has taken all of its input,
and no longer. What its queries read and write goes to the file REPORT, before any is started. MOMENT is one of `Moment`,
or empty: then nobody is killed. With --apart, what they read and write is below ROOT instead (`Places`), and none starts
before there is the file REPORT.go. It ends with 0, with 3 if the moment never came, or with 1 and what went wrong.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery, StreamingQueryManager

from local_tracker.spark.jvm import PlannedQuery, planned_query
from local_tracker.spark.session.drafting import replaced, starts_by
from local_tracker.spark.session.tracked import Tracked, TrackedQuery
from tracker.testing.killing import Killer
from tracker.testing.moments import MISSED, Moment
from tracker.testing.places import Places, directory

_FILE_SINKS = frozenset(("parquet", "orc", "json", "csv", "text"))
"""Formats that Spark's own sink of files writes, which keeps a log beside them."""
_LOOK_S = 0.02


@dataclass(frozen=True)
class StartedQuery:
    """What a query reads and writes, as its program says. out: of a file sink. pipeline, segment, rows: of a tracked one:
    where what it reads goes in, and whether its items are rows."""

    sink: str
    out: str = ""
    checkpoint: str = ""
    reads: tuple[str, ...] = ()
    pipeline: str = ""
    segment: str = ""
    rows: bool = False
    named: tuple[str, ...] = ()
    """What the program calls what it reads."""


class Running:
    """The queries of a program."""

    def __init__(self, report: Path, moment: Moment | None, places: Places | None = None) -> None:
        self._report, self._moment, self._places = report, moment, places
        self._started: list[StartedQuery] = []
        self._queries: list[Any] = []
        """Those that run, each as the program has it."""
        self._tracking = StartedQuery("")
        self._spark_starts = DataStreamWriter.start, DataStreamWriter.toTable
        self._tracked_start = Tracked.start

    def run(self, program: str) -> None:
        """The program, to its end."""

        def awaited(*_: Any) -> bool:
            self.take_all()
            return True

        apart = self._places.replacing() if self._places else ()
        with replaced(*apart), replaced(
            *starts_by(self._start), (Tracked, "start", self._start_tracked()),
            (DataStreamWriter, "foreachBatch", self._foreach_batch()),
            (StreamingQuery, "awaitTermination", awaited), (TrackedQuery, "awaitTermination", awaited),
            (StreamingQueryManager, "awaitAnyTermination", awaited),
        ):  # fmt: skip
            try:
                runpy.run_path(program, run_name="__main__")
            except SystemExit as ended:  # as `sys.exit(main())` does
                if ended.code:
                    raise
            self.take_all()

    def take_all(self) -> None:
        """Returns when no query has anything left to take, and all have ended. One may read what another writes."""
        for _ in self._queries:
            for query in self._queries:
                query.processAllAvailable()
        for query in self._queries:
            query.stop()
        self._queries.clear()

    # --- what stands for the methods that start them ------------------------------------------------

    def _start(self, writer: DataStreamWriter, table: str) -> StreamingQuery:
        if self._places:
            self._places.move(writer, table)
        planned = planned_query(writer)
        self._report_one(planned)
        killer = self._killer()
        if killer and planned.sink.lower() in _FILE_SINKS:
            self._watch(killer, planned)
        start, to_table = self._spark_starts
        query: StreamingQuery = to_table(writer, table) if table else start(writer)
        self._queries.append(query)
        if killer and self._moment is Moment.TASKS:
            run = str(query.runId)
            _in_background(lambda: killer.watch_tasks(planned.session.sparkContext, run))
        return query

    def _start_tracked(self) -> Callable[..., TrackedQuery]:
        start = self._tracked_start

        def start_tracked(tracked: Tracked, writer: DataStreamWriter, **given: Any) -> TrackedQuery:
            if self._places:
                self._places.move(writer)
            reads = given["reads"]
            segment = reads if isinstance(reads, str) else next(iter(reads.values()), "")
            rows = segment in (given.get("rows") or {})
            self._tracking = StartedQuery("", pipeline=tracked.pipeline, segment=segment, rows=rows)
            if killer := self._killer():
                assert self._moment is not None
                killer.plant(self._moment)
            try:
                query = start(tracked, writer, **given)
            finally:
                self._tracking = StartedQuery("")
            self._queries[-1] = query
            return query

        return start_tracked

    def _foreach_batch(self) -> Callable[..., DataStreamWriter]:
        foreach_batch = DataStreamWriter.foreachBatch

        def with_end(writer: DataStreamWriter, function: Any) -> DataStreamWriter:
            def each(frame: Any, batch: int) -> None:
                function(frame, batch)
                if killer := self._killer():
                    killer.die_at(batch)

            return foreach_batch(writer, each if self._moment is Moment.COMMIT else function)

        return with_end

    def _watch(self, killer: Killer, planned: PlannedQuery) -> None:
        """The files of a file sink, on this machine."""
        if self._moment not in (Moment.SINK, Moment.COMMIT):
            return
        out, checkpoint = directory(planned.path), directory(planned.checkpoint)
        if out and checkpoint:
            moment = self._moment
            _in_background(lambda: killer.watch_files(moment, Path(out), Path(checkpoint)))

    def _killer(self) -> Killer | None:
        return Killer.here() if self._moment is not None else None

    def _report_one(self, planned: PlannedQuery) -> None:
        tracking = self._tracking
        reads = [source.directory for source in planned.sources or () if source.directory]
        self._started.append(
            StartedQuery(
                planned.sink, directory(planned.path), directory(planned.checkpoint),
                tuple(map(directory, reads)), tracking.pipeline, tracking.segment, tracking.rows,
                tuple(self._places.named(directory(place)) for place in reads) if self._places else (),
            )
        )  # fmt: skip
        unfinished = self._report.with_suffix(".new")
        unfinished.write_text(json.dumps([asdict(each) for each in self._started]))
        unfinished.replace(self._report)
        while self._places and not self._report.with_suffix(".go").exists():
            time.sleep(_LOOK_S)


def _in_background(work: Callable[[], None]) -> None:
    threading.Thread(target=work, name="lowmark-kills", daemon=True).start()


def main(report: str, moment: str, program: str, *arguments: str) -> int:
    places = None
    if program == "--apart":
        root, program, *more = arguments
        places, arguments = Places(Path(root)), tuple(more)
    sys.path.insert(0, os.path.dirname(os.path.abspath(program)))
    sys.argv = [program, *arguments]
    Running(Path(report), Moment(moment) if moment else None, places).run(program)
    if (session := SparkSession.getActiveSession()) is not None:
        session.stop()
    return MISSED if moment else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
