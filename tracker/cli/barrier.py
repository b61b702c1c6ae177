"""`lowmark barrier`: rows of tracked queries, written into a sink in the order of time, each once."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from tracker.cli.common import (
    PipelineName,
    exit_when_told,
    print_json,
    show,
    wrong_usage,
)
from tracker.cli.shared import Shared
from tracker.consumers.barrier.barrier import MAX_BYTES, MAX_ROWS, Barrier, late_rows
from tracker.consumers.barrier.rows import RowReader
from tracker.consumers.barrier.sink import OrderedSink
from tracker.consumers.barrier.sources import FilesIn, Source

Directory = Annotated[
    Path, typer.Option("--state", help="the barrier's own directory, on a local disk: rows wait there")
]  # fmt: skip


def run(
    context: typer.Context,
    pipeline: PipelineName,
    segment: Annotated[
        str, typer.Option("--segment", "-s", help="the segment that the queries create their files in")
    ],
    name: Annotated[str, typer.Option(help="the barrier's, for good: the sink keeps its position by it")],
    state: Directory,
    key: Annotated[str, typer.Option(help="the column that rows of one slot are ordered by, as text")],
    from_: Annotated[
        list[str] | None,
        typer.Option("--from", help="a directory that tracked queries write; may be repeated"),
    ] = None,
    from_files: Annotated[
        list[str] | None,
        typer.Option(help="a directory whose files all count, such as a front's; may be repeated"),
    ] = None,
    slot: Annotated[
        str | None, typer.Option(help="the column of the row's slot; none: each row has its file's")
    ] = None,
    columns: Annotated[
        str | None, typer.Option(help="what is written of a row, with commas; none: all columns")
    ] = None,
    postgres: Annotated[
        str | None,
        typer.Option(envvar="LOWMARK_BARRIER_POSTGRES", help="a database: postgresql://user@host/name"),
    ] = None,
    table: Annotated[str | None, typer.Option(help="with --postgres: the table, which exists")] = None,
    sqlite: Annotated[
        str | None, typer.Option(help="a file of SQLite instead, whose table is made: ordered_rows")
    ] = None,
    kafka: Annotated[str | None, typer.Option(help="a broker, or several with commas: host:port")] = None,
    topic: Annotated[str | None, typer.Option(help="with --kafka: the topic, which exists")] = None,
    partitions: Annotated[
        int, typer.Option(min=1, help="with --kafka: how many are used, by key; for good")
    ] = 1,
    delta: Annotated[str | None, typer.Option(help="the location of a Delta table, made if missing")] = None,
    late: Annotated[
        str, typer.Option(help="late rows: refuse (and end), or beside (`lowmark barrier late`)")
    ] = "refuse",
    max_rows: Annotated[int, typer.Option(min=1, help="may wait before it pushes back")] = MAX_ROWS,
    max_bytes: Annotated[int, typer.Option(min=1, help="may wait before it pushes back")] = MAX_BYTES,
    timeout: Annotated[float | None, typer.Option(min=0, help="end after so many seconds")] = None,
) -> None:  # fmt: skip
    """Take the committed files of a segment, and write their rows by slot and key when min time has passed
    them. Until SIGTERM, --timeout, or the end of the pipeline; whoever is killed goes on by the same command."""
    exit_when_told()
    with wrong_usage():
        sink = _sink(postgres, table, sqlite, kafka, topic, partitions, delta)
        if late not in ("refuse", "beside"):
            raise ValueError(f"--late {late}: refuse or beside")
        sources = _sources(from_ or [], from_files or [])
        barrier = Barrier(
            Shared.of(context).target, pipeline, segment, name, sink, state, sources=sources,
            reader=RowReader(key, slot, None if columns is None else columns.split(",")),
            late_beside=late == "beside", max_rows=max_rows, max_bytes=max_bytes,
        )  # fmt: skip
    with barrier:
        barrier.run(timeout)
        counts = barrier.counts
        print_json(
            {"units": counts.units, "rows": counts.rows, "released": counts.released,
             "waiting": counts.waiting, "late": counts.late}
        )  # fmt: skip


def late_command(
    context: typer.Context,
    state: Directory,
    drop: Annotated[bool, typer.Option("--drop", help="and drop them, once they are printed")] = False,
) -> None:  # fmt: skip
    """Print the late rows that a barrier has kept beside. It must not run meanwhile."""
    for row in late_rows(state):
        text = row.payload.decode(errors="replace")
        fields = {"unit": row.unit, "row": row.ordinal, "slot": row.slot, "key": row.key}
        document = {**fields, "payload": text}
        show(context, document, f"slot {row.slot}  {row.key}  {row.unit} row {row.ordinal}  {text}")
    sys.stdout.flush()
    if drop:
        late_rows(state, drop=True)


def _sink(
    postgres: str | None,
    table: str | None,
    sqlite: str | None,
    kafka: str | None,
    topic: str | None,
    partitions: int,
    delta: str | None,
) -> OrderedSink:
    """The one that is asked for; what another one needs is not asked for."""
    if sum(place is not None for place in (postgres, sqlite, kafka, delta)) != 1:
        raise ValueError("one sink: --postgres, --kafka, --delta or --sqlite")
    if postgres is not None:
        from tracker.consumers.barrier.postgres import PostgresSink

        return PostgresSink(postgres, _given("--postgres", "--table", table))
    if kafka is not None:
        from tracker.consumers.barrier.kafka import KafkaSink

        return KafkaSink(_given("--kafka", "--topic", topic), kafka, partitions=partitions)
    if delta is not None:
        from tracker.consumers.barrier.delta import DeltaSink

        return DeltaSink(delta)
    from tracker.consumers.barrier.sqlite import SqliteSink

    return SqliteSink(str(sqlite))


def _given(option: str, needed: str, value: str | None) -> str:
    if value is None:
        raise ValueError(f"{option} needs {needed}")
    return value


def _sources(committed: list[str], files: list[str]) -> list[Source]:
    if not committed and not files:
        raise ValueError("where from: --from, or --from-files")
    from local_tracker.spark.formats.committed import CommittedFiles

    return [*map(CommittedFiles, committed), *map(FilesIn, files)]
