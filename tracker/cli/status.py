"""`lowmark status`: how far all pipelines are, as a table for people and for programs."""

from __future__ import annotations

from typing import Annotated

import typer

from tracker.cli.common import connect, say, show, wrong_usage
from tracker.cli.render.freshness import freshness_json, freshness_table, within_ms
from tracker.cli.render.shards import upgrade_text
from tracker.cli.render.status import status_table
from tracker.cli.tables import Format, TableFormat, usable, write_table
from tracker.client.finishing import level_to_finish
from tracker.view.tables import STATUS, infos_of, lines_of, status_rows


def status(
    context: typer.Context,
    pipeline: Annotated[
        list[str] | None,
        typer.Option("--pipeline", "-p", help="these pipelines alone; may be repeated"),
    ] = None,
    format: TableFormat = Format.TABLE,
    freshness: Annotated[
        bool,
        typer.Option(
            "--freshness",
            help="show instead how far each segment has been behind over the last 5 minutes and hour",
        ),
    ] = False,
    within: Annotated[
        str | None,
        typer.Option(
            help="with --freshness: 30s, or 50 where slots are numbers: show the share of time in which a lag was "
            "within it",
        ),
    ] = None,
) -> None:
    """Show how far all pipelines and their segments are: min time, lag, state, and what holds it.

    A line without a segment (null; for people: all) is the whole pipeline's. Lag is how far min time is behind the
    newest promise of a front. Of a pipeline that is not complete every shard is asked why it is where it is.

    With --freshness: how far behind at most half of the time, 95 and 99 of 100 times, as one process has seen it since
    it was started.
    """
    if freshness:
        return _show_freshness(context, pipeline or [], within)
    if within is not None:
        raise typer.BadParameter("--within is for --freshness")
    format = usable(context, format)
    with connect(context) as admin:
        lines = lines_of(admin, pipeline or [])
        routing = admin.routing()
        silent = admin.silent_groups
    for group, why in silent.items():
        say(f"group {group} is left out: {why}", err=True)
    if level_to_finish(routing) > routing.table.level:
        say(upgrade_text(routing), err=True)
    write_table(context, format, status_rows(lines), STATUS.types, lambda: status_table(lines))


def _show_freshness(context: typer.Context, names: list[str], within: str | None) -> None:
    """Of the named pipelines, or all, one after the other."""
    with connect(context) as admin:
        for spec in [info.spec for info in infos_of(admin, names)]:
            with wrong_usage():
                limit_ms = within_ms(within, spec) if within else 0
            segments = admin.freshness(spec.name, limit_ms)
            document = {
                "pipeline": spec.name,
                "segments": [freshness_json(segment, spec) for segment in segments],
            }
            show(context, document, freshness_table(segments, within, spec))
