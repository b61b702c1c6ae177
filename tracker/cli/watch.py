"""`lowmark watch`: one pipeline, or all of them, live."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from typing import Annotated

import typer
from rich.console import RenderableType
from rich.live import Live

from tracker.cli.common import connect, pipeline_names, say, show
from tracker.cli.durations import lasting
from tracker.cli.otlp import export
from tracker.cli.render.overview import overview_json, overview_view
from tracker.cli.render.pipelines import pipeline_view
from tracker.cli.render.terminal import Terminal
from tracker.cli.shared import Shared
from tracker.client import Admin, UnavailableError
from tracker.view.overview import Overview, Row
from tracker.view.pipelines import WatchHistory, pipeline_json, shards_json

WATCH_TIMEOUT_S = 2.0
"""How long one look of `watch` may take before it says that the tracker does not answer."""
INTERVAL_S = 0.5
OTLP_INTERVAL_S = 15.0
FRAME_LINES = 6
"""Lines of a screen that are not rows of the overview."""

Look = Callable[[str], tuple[RenderableType, bool]]
"""Looks again, unless there is trouble to be said: what is shown then, and whether all is complete."""


def watch(
    context: typer.Context,
    pipeline: Annotated[
        list[str] | None,
        typer.Option("--pipeline", "-p", help="one pipeline; if not given, all, or the only one; with --otlp several"),
    ] = None,
    interval_s: Annotated[
        float | None,
        lasting(
            "--interval", least_s=0.05, help="between looks",
            show_default=f"{INTERVAL_S:g}s, with --otlp {OTLP_INTERVAL_S:g}s",
        ),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="look once")] = False,
    otlp: Annotated[
        str | None,
        typer.Option(
            help="send it to an OpenTelemetry receiver instead, until SIGTERM: http://collector.example:4318; env: the one that "
            "OTEL_EXPORTER_OTLP_ENDPOINT names"
        ),
    ] = None,
) -> None:  # fmt: skip
    """Watch a pipeline until it is complete: min time, lag and open items by segment, fronts, shards; or all
    pipelines, the worst first, until all are.

    Lag is how far min time is behind the newest promise of a front. With --json, one line a look.

    With --otlp headers, certificates, timeout and compression are those of the variables OTEL_EXPORTER_OTLP_...,
    attributes of the resource those of OTEL_RESOURCE_ATTRIBUTES. What a receiver that is away has not taken is not
    kept: the next export has how things are then. With --once, exit status 3 if the receiver has not taken it.
    """
    if otlp is not None:
        return export(context, pipeline or [], otlp, interval_s or OTLP_INTERVAL_S, once)
    interval_s = interval_s or INTERVAL_S
    names, silent = (pipeline, "") if pipeline else pipeline_names(context, 2)
    if pipeline and len(names) > 1:
        raise typer.BadParameter("one --pipeline, or none for all; several are for --otlp")
    if len(names) > 1 or silent:
        return _watch_all(context, interval_s, once)
    history = WatchHistory()
    with connect(context) as admin:
        if once or Shared.of(context).as_json:
            while not _look(context, admin, names[0], history) and not once:
                time.sleep(interval_s)
            return
        admin.pipeline(names[0])  # what cannot be is refused before the screen is taken
    with connect(context, WATCH_TIMEOUT_S) as admin:
        _live(_looks_at_one(admin, names[0], history), interval_s)


def _look(context: typer.Context, admin: Admin, pipeline: str, history: WatchHistory) -> bool:
    """Shows a pipeline once; returns whether it is complete."""
    info, shards = history.take(admin.pipeline(pipeline)), admin.shards()
    document = {**pipeline_json(info), "shards": shards_json(shards)}
    show(context, document, pipeline_view(info, shards, history))
    sys.stdout.flush()
    return bool(info.state.complete)


def _looks_at_one(admin: Admin, pipeline: str, history: WatchHistory) -> Look:
    info, shards = history.take(admin.pipeline(pipeline)), admin.shards()

    def again(trouble: str) -> tuple[RenderableType, bool]:
        nonlocal info, shards
        if not trouble:
            info, shards = history.take(admin.pipeline(pipeline)), admin.shards()
        return pipeline_view(info, shards, history, trouble), info.state.complete

    return again


def _watch_all(context: typer.Context, interval_s: float, once: bool) -> None:
    with connect(context) as admin:
        overview = Overview(admin)
        if once or Shared.of(context).as_json:
            said = ""
            for rows in _steps(overview, interval_s):
                if overview.trouble not in ("", said):
                    say(overview.trouble, err=True)
                said = overview.trouble
                view = overview_view(rows, overview.more, len(rows))
                show(context, overview_json(rows, overview.more), view)
                sys.stdout.flush()
                if once:
                    return
            return
    with connect(context, WATCH_TIMEOUT_S) as admin:
        _live(_looks_at_all(Overview(admin)), interval_s)


def _steps(overview: Overview, interval_s: float) -> Iterator[list[Row]]:
    """Looks until all are complete."""
    while True:
        rows = overview.step()
        yield rows
        if _are_complete(overview, rows):
            return
        time.sleep(interval_s)


def _are_complete(overview: Overview, rows: list[Row]) -> bool:
    """Whether all are, and no group may have others."""
    return not overview.trouble and all(row.progress.state == "complete" for row in rows)


def _looks_at_all(overview: Overview) -> Look:
    rows: list[Row] = []
    screen = Terminal()

    def again(trouble: str) -> tuple[RenderableType, bool]:
        nonlocal rows
        most = max(1, screen.size.height - FRAME_LINES)
        if not trouble:
            rows = overview.step([row.name for row in rows[:most]])
        shown = trouble or overview.trouble
        return overview_view(rows, overview.more, most, shown), _are_complete(overview, rows)

    return again


def _live(again: Look, interval_s: float) -> None:
    """Looks until all is complete, or somebody has seen enough."""
    try:
        view, complete = again("")
        with Live(view, console=Terminal(), auto_refresh=False) as live:
            while not complete:
                time.sleep(interval_s)
                try:
                    view, complete = again("")
                except UnavailableError as error:
                    view, complete = again(f"{error}; trying again")
                live.update(view, refresh=True)
    except KeyboardInterrupt:
        return
