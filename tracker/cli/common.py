"""What the commands of `lowmark` share: options, errors and exit statuses."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import RenderableType

from tracker.cli import reaching
from tracker.cli.render.terminal import Terminal
from tracker.cli.shared import Shared
from tracker.client import Admin, LowmarkError
from tracker.client.signals import ToldToEnd
from tracker.core.model.names import printable
from tracker.errors import InvalidError, TrackingError

EXIT_REFUSED = 1
"""The tracker refused, or what was given is not possible."""
EXIT_TIMED_OUT = 3
"""`wait`: min time had not reached the moment in time."""
EXIT_UNAVAILABLE = 4
"""No process of the tracker answered."""
EXIT_HELD = 5
"""`wait`: it will not be reached until somebody acts: a front is silent, or none is there."""

ANSWER_TIMEOUT_S = 30.0
"""How long a command waits for a tracker's answer."""
MAX_NAMED_PIPELINES = 10
"""Of the pipelines that one may have meant, so many are named."""


def pipeline_names(context: typer.Context, most: int) -> tuple[list[str], str]:
    """The first pipelines of a tracker by name, up to `most`; and which groups do not answer, for people, and may have others.
    Raises typer.BadParameter where there is none; RefusedError; UnavailableError."""
    with connect(context) as admin:
        infos = chain.from_iterable(admin.pages(most))
        names = [info.spec.name for info in islice(infos, most)]
        silent = "; ".join(
            f"group {group} does not answer: {why}" for group, why in admin.silent_groups.items()
        )
    if not names:
        none = "no pipeline is registered; see lowmark pipelines apply --help"
        raise typer.BadParameter(silent or none)
    return names, silent


def only_pipeline(context: typer.Context, given: str | None) -> str:
    """The pipeline that is named, or the only one of the tracker. Raises typer.BadParameter if there are others, or
    none; RefusedError; UnavailableError."""
    if given or context.resilient_parsing:
        return given or ""
    names, silent = pipeline_names(context, MAX_NAMED_PIPELINES + 1)
    if len(names) == 1 and not silent:
        return names[0]
    shown = ", ".join(names[:MAX_NAMED_PIPELINES])
    more = " and more" if len(names) > MAX_NAMED_PIPELINES else ""
    more += f"; {silent}" if silent else ""
    raise typer.BadParameter(f"name one with --pipeline; there are {shown}{more}")


PipelineName = Annotated[
    str,
    typer.Option(
        "--pipeline",
        "-p",
        default_factory=str,
        callback=only_pipeline,
        show_default=False,
        help="name of the pipeline; not needed where there is one",
    ),
]
SegmentName = Annotated[
    str | None, typer.Option("--segment", "-s", help="one segment; none: the whole pipeline")
]
Yes = Annotated[bool, typer.Option("--yes", help="do not ask, for scripts")]


def connect(context: typer.Context, answer_timeout_s: float = ANSWER_TIMEOUT_S) -> Admin:
    """The tracker, for questions that a command waits for, `answer_timeout_s` each. Raises UnavailableError where no
    process of it accepts connections, unless the command is patient."""
    shared = Shared.of(context)
    if not shared.is_patient:
        reaching.reach(shared.target, shared.retry_s)
    return Admin(shared.target, answer_timeout_s)


def print_json(value: Any) -> None:
    typer.echo(json.dumps(value))


def show(context: typer.Context, values: Any, shown: str | RenderableType) -> None:
    """What a command has found or done: as JSON for scripts, or as text or a table for people."""
    if Shared.of(context).as_json:
        print_json(values)
    elif isinstance(shown, str):
        say(shown)
    else:
        Terminal().print(shown)


def say(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Writes a text of one line or several. The names in it have gone through `as_printable` where one of them
    could make a line of its own."""
    typer.echo(printable(text, lines=True), err=err, nl=nl)


def ask(question: str) -> None:
    """Ends the command unless whoever sits before it says yes."""
    typer.confirm(printable(question), abort=True)


def show_waiting(why: str) -> None:
    """What a command waits for, where its output does not carry it."""
    say(f"waiting: {printable(why)}", err=True)


@contextmanager
def wrong_usage() -> Iterator[None]:
    """A ValueError about what was given becomes wrong usage."""
    try:
        yield
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


ENDING = (signal.SIGTERM, signal.SIGINT)


def told_to_end() -> ToldToEnd:
    """From now on SIGTERM and SIGINT are heard by what this returns."""
    return ToldToEnd(ENDING)


def exit_when_told() -> None:
    """From now on SIGTERM and SIGINT end the command in good order, wherever it is."""
    for number in ENDING:
        signal.signal(number, lambda *_: sys.exit())


def write_secret(out: Path, secret: str) -> None:
    """Makes a file that only its owner may read; one that is there is left as it is."""
    try:
        with open(os.open(out, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(f"{secret}\n")
    except FileExistsError:
        raise typer.BadParameter(f"--out {out} exists; name a new file") from None


def fail(error: Exception | str, status: int = EXIT_REFUSED) -> NoReturn:
    """Ends the command with an error on standard error: one line of what a tracker has said."""
    text = printable(
        str(error),
        lines=not isinstance(error, LowmarkError)
        or isinstance(error, InvalidError | TrackingError),
    )
    say(f"lowmark: {text}", err=True)
    raise typer.Exit(status)
