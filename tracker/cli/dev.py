"""`lowmark dev`: everything that a first look needs, in one process."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tracker import __version__
from tracker.cli.common import fail, say, show, told_to_end
from tracker.cli.shared import DEFAULT_TARGET, Shared
from tracker.errors import StateError

MAX_PORT = 65_535


def dev(
    context: typer.Context,
    port: Annotated[
        int, typer.Option("--port", min=0, max=MAX_PORT, help="the tracker's; 0: any that is free")
    ] = 7070,
    dashboard_port: Annotated[
        int | None,
        typer.Option(
            "--dashboard-port", min=0, max=MAX_PORT, show_default="8070, or any that is free",
            help="the dashboard's; 0: any that is free",
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option("--data", file_okay=False, help="a directory that keeps all that is recorded", show_default="nothing is kept"),
    ] = None,
    with_sample: Annotated[
        bool, typer.Option("--sample/--no-sample", help="a pipeline that moves, to look at")
    ] = True,
) -> None:  # fmt: skip
    """Run a tracker for development, with its dashboard and a sample pipeline, until Ctrl-C.

    It listens on this machine alone, and forgets everything when it ends, unless --data names a directory.
    """
    from tracker.dev.server import DevServer

    told = told_to_end()
    try:
        server = DevServer(port, dashboard_port, data, with_sample, _sample_failed)
    except StateError as error:
        fail(error)
    with server:
        shown = {
            "tracker": server.target, "dashboard": server.url, "pipeline": server.pipeline,
            "data": str(data) if data is not None else "",
        }  # fmt: skip
        show(context, shown, _welcome(server.target, server.url, server.pipeline, data))
        told.wait()
    if not Shared.of(context).as_json:
        say("ended")


def _sample_failed(error: Exception) -> None:
    say(
        f"lowmark: the sample pipeline has ended, the tracker goes on: {error}; start `lowmark dev` again to see "
        "it move", err=True,
    )  # fmt: skip


def _welcome(target: str, url: str, pipeline: str, data: Path | None) -> str:
    to_it = "" if target == DEFAULT_TARGET else f" --target {target}"
    kept = f"kept in {data}" if data is not None else "forgotten at its end (--data DIR keeps it)"
    lines = [
        f"Lowmark {__version__} for development; all that is recorded is {kept}.",
        "",
        f"  dashboard  {url}",
        f"  tracker    {target}",
    ]
    if pipeline:
        lines += [
            f"  pipeline   {pipeline}: a front and two workers, with a slow item now and then"
        ]
        following = [f"lowmark watch -p {pipeline}{to_it}", f"lowmark explain -p {pipeline}{to_it}"]
    else:
        following = [f"lowmark status{to_it}"]
    following += ["lowmark init my-pipeline --source files"]
    lines += ["", "Next, in another terminal:", *(f"  {each}" for each in following)]
    return "\n".join([*lines, "", "Ctrl-C ends it."])
