"""`lowmark status`: how far all pipelines are, as a table for people and for programs."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from tracker.cli.common import connect, print_json, show, wrong_usage
from tracker.cli.render.columns import arrow
from tracker.cli.render.freshness import freshness_json, freshness_table, within_ms
from tracker.cli.render.status import Lines, status_columns, status_rows, status_table
from tracker.cli.shared import Shared
from tracker.client import Admin, PipelineInfo
from tracker.core.model import TimeKind
from tracker.view.progress import Progress, progress_of

MAX_EXPLAINED_AT_ONCE = 4
"""Pipelines that shards are asked about at the same time."""


class Format(Enum):
    """How a table is written."""

    TABLE = "table"
    JSON = "json"
    ARROW = "arrow"
    PARQUET = "parquet"

    @property
    def is_binary(self) -> bool:
        return self in (Format.ARROW, Format.PARQUET)


def status(
    context: typer.Context,
    pipeline: Annotated[
        list[str] | None,
        typer.Option("--pipeline", "-p", help="these pipelines alone; may be repeated"),
    ] = None,
    format: Annotated[
        Format,
        typer.Option(help="table; json; arrow: an Arrow IPC stream; parquet: a Parquet file"),
    ] = Format.TABLE,
    out: Annotated[
        Path | None, typer.Option(help="with arrow or parquet: the file; standard output if none")
    ] = None,
    freshness: Annotated[
        bool,
        typer.Option(
            "--freshness",
            help="show instead how far each segment has been behind over the last 5 minutes and hour",
        ),
    ] = False,
    within: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="with --freshness: seconds, or slots where these are numbers: show the share of time in which a lag "
            "was within it",
        ),
    ] = None,
    clock: Annotated[
        bool,
        typer.Option(
            "--clock", help="with --freshness: behind the clock, not behind the fronts' promises"
        ),
    ] = False,
) -> None:
    """Show how far all pipelines and their segments are: min time, lag, state, and what holds it.

    A line without a segment (null; for people: all) is the whole pipeline's. Lag is how far min time is behind the
    newest promise of a front. Of a pipeline that is not complete every shard is asked why it is where it is.

    With --freshness: how far behind at most half of the time, 95 and 99 of 100 times, as one process has seen it since
    it was started.
    """
    if freshness:
        return _show_freshness(context, pipeline or [], within, clock)
    if within is not None or clock:
        raise typer.BadParameter("--within and --clock are for --freshness")
    if Shared.of(context).as_json:
        format = Format.JSON
    with wrong_usage():
        _check(format, out)
    with connect(context) as admin:
        lines = lines_of(admin, pipeline or [])
    if format.is_binary:
        data = status_columns(lines, parquet=format is Format.PARQUET)
        if out is not None:
            out.write_bytes(data)
        else:
            sys.stdout.buffer.write(data)
    elif format is Format.JSON:
        print_json(status_rows(lines))
    else:
        show(context, None, status_table(lines))


def _show_freshness(
    context: typer.Context, names: list[str], within: float | None, clock: bool
) -> None:
    """Of the named pipelines, or all, one after the other."""
    with connect(context) as admin:
        specs = [info.spec for info in _infos(admin, names)]
        for spec in specs:
            if clock and spec.time is TimeKind.NUMBER:
                raise typer.BadParameter(
                    f"the slots of pipeline {spec.name!r} are numbers, which no clock counts: leave --clock out"
                )
        for spec in specs:
            segments = admin.freshness(spec.name, within_ms(within or 0, spec))
            document = {
                "pipeline": spec.name,
                "segments": [freshness_json(segment, spec) for segment in segments],
            }
            show(context, document, freshness_table(segments, within, clock, spec))


def _infos(admin: Admin, names: list[str]) -> list[PipelineInfo]:
    return [admin.pipeline(name) for name in names] if names else admin.pipelines()


def _check(format: Format, out: Path | None) -> None:
    """Raises ValueError where what is asked for cannot be written."""
    if not format.is_binary:
        if out is not None:
            raise ValueError(f"--out {out} is for --format arrow and parquet, not {format.value}")
        return
    arrow()
    if out is None and sys.stdout.isatty():
        raise ValueError(
            f"--format {format.value} is not for a terminal: name a file with --out, or pipe it"
        )


def lines_of(admin: Admin, names: list[str]) -> Lines:
    """The named pipelines, or all, each with why it is where it is. Raises RefusedError, UnavailableError."""

    def told(info: PipelineInfo) -> tuple[PipelineInfo, list[Progress]]:
        name = info.spec.name
        if (
            info.omitted
        ):  # a list leaves out what is larger than a page, and with it what lag is told by
            info = admin.pipeline(name)
        explanation = None if info.state.complete else admin.explain(name, max_cells=0)
        return info, progress_of(info, explanation)

    with ThreadPoolExecutor(MAX_EXPLAINED_AT_ONCE) as asking:
        return list(asking.map(told, _infos(admin, names)))
