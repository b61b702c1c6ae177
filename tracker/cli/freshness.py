"""`lowmark freshness`: how far segments have been behind, as a service level."""

from __future__ import annotations

from typing import Annotated

import typer

from tracker.cli.common import PipelineName, connect, show
from tracker.cli.render.freshness import freshness_json, freshness_table, within_ms
from tracker.core.model import TimeKind


def freshness(
    context: typer.Context,
    pipeline: PipelineName,
    within: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="seconds, or slots where these are numbers: show the share of time in which a lag was "
            "within it",
        ),
    ] = None,
    clock: Annotated[
        bool, typer.Option("--clock", help="behind the clock, not behind the fronts' promises")
    ] = False,
) -> None:
    """Show how far each segment's min time is behind, now and over the last 5 minutes and hour: half of
    the time, 95 and 99 of 100 times, at most. As one process has seen it since it was started."""
    with connect(context) as admin:
        spec = admin.pipeline(pipeline).spec
        if clock and spec.time is TimeKind.NUMBER:
            raise typer.BadParameter(
                f"the slots of pipeline {pipeline!r} are numbers, which no clock counts: leave --clock out"
            )
        segments = admin.freshness(pipeline, within_ms(within or 0, spec))
    document = {"pipeline": pipeline, "segments": [freshness_json(s, spec) for s in segments]}
    show(context, document, freshness_table(segments, within, clock, spec))
