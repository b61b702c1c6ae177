"""What the commands of `lowmark` share: options, errors and exit statuses."""

from __future__ import annotations

import json
import signal
import threading
from typing import Annotated, Any, NoReturn

import typer

EXIT_REFUSED = 1
"""The tracker refused, or what was given cannot be."""
EXIT_TIMED_OUT = 3
"""`wait`: min time had not reached the moment in time."""
EXIT_UNAVAILABLE = 4
"""No process of the tracker answered."""
EXIT_HELD = 5
"""`wait`: it will not be reached until somebody acts: a front is silent, or none is there."""

DEFAULT_TARGET = "127.0.0.1:7070"
ANSWER_TIMEOUT_S = 30.0
"""How long a command tries to reach a tracker."""

Target = Annotated[
    str,
    typer.Option(
        "--target",
        "-t",
        envvar="LOWMARK_TARGET",
        help="host:port of the tracker, or several with ,",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="print JSON, for scripts")]
PipelineName = Annotated[str, typer.Option("--pipeline", "-p", help="name of the pipeline")]
SegmentName = Annotated[
    str | None, typer.Option("--segment", "-s", help="one segment; none: the whole pipeline")
]
Yes = Annotated[bool, typer.Option("--yes", help="do not ask, for scripts")]


def print_json(value: Any) -> None:
    typer.echo(json.dumps(value))


def show(as_json: bool, values: Any, text: str) -> None:
    """What a command has found or done: as JSON for scripts, or in words."""
    if as_json:
        print_json(values)
    else:
        typer.echo(text)


def ended_by_signals() -> threading.Event:
    """Set when somebody ends the command by SIGTERM or SIGINT."""
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    return ended


def fail(error: Exception | str, status: int) -> NoReturn:
    typer.echo(f"lowmark: {error}", err=True)
    raise typer.Exit(status)
