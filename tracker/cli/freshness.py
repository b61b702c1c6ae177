"""`lowmark freshness`: how far segments have been behind, as a service level."""

from __future__ import annotations

from typing import Annotated

import typer

from tracker.cli.common import DEFAULT_TARGET, AsJson, PipelineName, Target, connect, show
from tracker.cli.render.freshness import freshness_json, freshness_table


def freshness(
    pipeline: PipelineName,
    within: Annotated[
        float | None,
        typer.Option(min=0, help="seconds: show the share of time in which a lag was within it"),
    ] = None,
    clock: Annotated[
        bool, typer.Option("--clock", help="behind the clock, not behind the fronts' promises")
    ] = False,
    target: Target = DEFAULT_TARGET,
    as_json: AsJson = False,
) -> None:
    """Show how far each segment's min time is behind, now and over the last 5 minutes and hour: half of
    the time, 95 and 99 of 100 times, at most. As one process has seen it since it was started."""
    with connect(target) as admin:
        segments = admin.freshness(pipeline, int((within or 0) * 1000))
    document = {"pipeline": pipeline, "segments": [freshness_json(s) for s in segments]}
    show(as_json, document, freshness_table(segments, within, clock))
