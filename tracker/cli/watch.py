"""`lowmark watch`: one pipeline, live."""

from __future__ import annotations

import time
from typing import Annotated

import typer
from rich.live import Live

from tracker.cli.common import DEFAULT_TARGET, AsJson, PipelineName, Target, connect
from tracker.cli.pipelines import look
from tracker.cli.render.pipelines import pipeline_view
from tracker.cli.render.terminal import Terminal
from tracker.client import Admin, UnavailableError
from tracker.view.pipelines import WatchHistory

WATCH_TIMEOUT_S = 2.0
"""How long one look of `watch` may take before it says that the tracker does not answer."""


def watch(
    pipeline: PipelineName,
    target: Target = DEFAULT_TARGET,
    interval: Annotated[float, typer.Option(min=0.05, help="seconds between looks")] = 0.5,
    once: Annotated[bool, typer.Option("--once", help="look once")] = False,
    as_json: AsJson = False,
) -> None:
    """Watch a pipeline until it is complete: min time, lag and open items by segment, fronts, shards.

    Lag is how far min time is behind the newest promise of a front. With --json, one line a look.
    """
    history = WatchHistory()
    with connect(target) as admin:
        if once or as_json:
            while not look(admin, pipeline, history, as_json) and not once:
                time.sleep(interval)
            return
        admin.pipeline(pipeline)  # what cannot be is refused before the screen is taken
    with Admin(target, WATCH_TIMEOUT_S) as admin:
        _watch_live(admin, pipeline, history, interval)


def _watch_live(admin: Admin, pipeline: str, history: WatchHistory, interval_s: float) -> None:
    info, shards = history.take(admin.pipeline(pipeline)), admin.shards()
    try:
        with Live(
            pipeline_view(info, shards, history), console=Terminal(), auto_refresh=False
        ) as live:
            while not info.state.complete:
                time.sleep(interval_s)
                trouble = ""
                try:
                    info, shards = history.take(admin.pipeline(pipeline)), admin.shards()
                except UnavailableError as error:
                    trouble = f"{error}; trying again"
                live.update(pipeline_view(info, shards, history, trouble), refresh=True)
    except KeyboardInterrupt:
        return
