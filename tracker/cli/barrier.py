"""`lowmark barrier`: rows of tracked queries, written into a sink in the order of time, each once."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer
from pydantic import Field

from tracker.cli.common import (
    exit_when_told,
    only_pipeline,
    print_json,
    show,
    wrong_usage,
)
from tracker.cli.declared import by_settings
from tracker.cli.shared import Shared
from tracker.client.settings import Duration, Settings, seconds
from tracker.consumers.barrier.barrier import (
    MAX_BYTES,
    MAX_ROWS,
    Barrier,
    BarrierOptions,
    late_rows,
)
from tracker.consumers.barrier.rows import RowReader
from tracker.consumers.barrier.sink import OrderedSink
from tracker.consumers.barrier.sources import FilesIn, Source

Directory = Annotated[
    Path, typer.Option("--state", help="the barrier's own directory, on a local disk: rows wait there")
]  # fmt: skip


TYPED = (
    "pipeline", "segment", "name", "state", "key", "reads", "sink",
)  # fmt: skip
"""The settings that are options as well: what one types by hand."""
VARIABLES = {"sink": "LOWMARK_BARRIER_SINK"}


class BarrierSettings(Settings):
    """The settings of `lowmark barrier run`."""

    pipeline: str = Field("", description="name of the pipeline; not needed where there is one")
    segment: str = Field("", description="the segment that the queries create their files in")
    name: str = Field("", description="the barrier's, for good: the sink keeps its position by it")
    state: str = Field(
        "", description="the barrier's own directory, on a local disk: rows wait there"
    )
    reads: list[str] = Field(
        [], description="a directory that tracked queries write; may be repeated"
    )
    files: list[str] = Field([], description="a directory whose files all count, such as a front's")
    key: str = Field("", description="the column that rows of one slot are ordered by, as text")
    slot: str = Field("", description="the column of the row's slot; none: each row has its file's")
    columns: list[str] = Field(
        [], description="what is written of a row, with commas; none: all columns"
    )
    sink: str = Field(
        "",
        description="where rows go: postgresql://user@host/name, kafka://host:port/TOPIC, delta:LOCATION of a table, "
        "made if missing, or sqlite:FILE, whose table ordered_rows is made (LOWMARK_BARRIER_SINK)",
    )
    table: str = Field("", description="with postgresql: the table, which exists")
    partitions: int = Field(1, ge=1, description="with kafka: how many are used, by key; for good")
    late: Literal["refuse", "beside"] = Field(
        "refuse", description="late rows: refuse (and end), or beside (`lowmark barrier late`)"
    )
    max_rows: int = Field(MAX_ROWS, ge=1, description="rows that may wait before it pushes back")
    max_bytes: int = Field(MAX_BYTES, ge=1, description="bytes that may wait before it pushes back")
    timeout: Duration | None = Field(None, description="end after so long")


@by_settings(BarrierSettings, TYPED, VARIABLES)
def run(context: typer.Context, settings: BarrierSettings) -> None:
    """Take the committed files of a segment, and write their rows by slot and key when min time has passed
    them. Until SIGTERM, or the end of the pipeline; whoever is killed goes on by the same command."""
    s = settings
    exit_when_told()
    with wrong_usage():
        for needed in ("segment", "name", "state", "key"):
            if not getattr(s, needed):
                raise ValueError(f"a barrier needs --{needed}")
        sink, sources = _sink(s), _sources(s)
        pipeline = only_pipeline(context, s.pipeline)
        barrier = Barrier(
            Shared.of(context).target,
            pipeline,
            s.segment,
            s.name,
            sink,
            s.state,
            sources=sources,
            options=BarrierOptions(
                reader=RowReader(
                    s.key,
                    s.slot or None,
                    [each for text in s.columns for each in text.split(",")] or None,
                ),
                late_beside=s.late == "beside",
                max_rows=s.max_rows,
                max_bytes=s.max_bytes,
            ),
        )
    with barrier:
        barrier.run(seconds(s.timeout) if s.timeout else None)
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


def _sink(s: BarrierSettings) -> OrderedSink:
    """The one that is asked for; what another one needs is not asked for. Raises ValueError."""
    kind, _, place = s.sink.partition(":")
    match kind:
        case "postgresql" | "postgres":
            from tracker.consumers.barrier.postgres import PostgresSink

            if not s.table:
                raise ValueError("--sink postgresql://... needs a table: --set table=NAME")
            return PostgresSink(s.sink, s.table)
        case "kafka":
            from tracker.consumers.barrier.kafka import KafkaSink

            brokers, _, topic = place.removeprefix("//").partition("/")
            if not brokers or not topic:
                raise ValueError(f"--sink {s.sink!r} is not kafka://host:port/TOPIC")
            return KafkaSink(topic, brokers, partitions=s.partitions)
        case "delta" if place:
            from tracker.consumers.barrier.delta import DeltaSink

            return DeltaSink(place)
        case "sqlite" if place:
            from tracker.consumers.barrier.sqlite import SqliteSink

            return SqliteSink(place)
    raise ValueError(
        "name where rows go: --sink postgresql://user@host/name, kafka://host:port/TOPIC, delta:LOCATION or sqlite:FILE"
    )


def _sources(s: BarrierSettings) -> list[Source]:
    if not s.reads and not s.files:
        raise ValueError("where from: --reads, or --set files=DIRECTORY")
    from local_tracker.spark.formats.committed import CommittedFiles

    return [*map(CommittedFiles, s.reads), *map(FilesIn, s.files)]
