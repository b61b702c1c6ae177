"""`lowmark query check`: does a query of one's own lose anything when its driver dies?"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tracker.cli.common import EXIT_REFUSED, fail, show
from tracker.errors import TrackingError

if TYPE_CHECKING:
    from tracker.testing.checking import Checked


def query_check(
    context: typer.Context,
    program: Annotated[
        Path, typer.Argument(dir_okay=False, help="a Python program that starts the query")
    ],
    sample: Annotated[
        Path,
        typer.Argument(
            dir_okay=False,
            help="rows of its input, one JSON object a line; some dozens will do",
        ),
    ],
) -> None:
    """Run a query over a sample, kill its driver (SIGKILL) at each moment of the commit order, start it again, and tell
    whether rows are lost, doubled, or reported complete too early: against what it makes of the sample when nobody kills it.

    It reads and writes in folders of the check, and has a tracker of its own; a tracked query has its pipeline.yaml
    beside the program. What its code does elsewhere by itself, as in a database, is done there.

    Exit status: 0 nothing is lost, doubled or early; 1 something is, or the check can't be done.
    """
    from tracker.testing.checking import check_program
    from tracker.testing.drivers import ProgramFailed

    try:
        checked = check_program(program, sample)
    except (TrackingError, ProgramFailed) as error:
        fail(str(error))
    show(context, json.loads(checked.as_json()), "\n".join(report(checked)))
    if not checked.ok:
        raise typer.Exit(EXIT_REFUSED)


def report(checked: Checked) -> Iterator[str]:
    """What a check has come to, line by line."""
    one = checked.one
    yield (
        f"{checked.program}: {checked.rows_out} rows of {checked.rows_in}; killed {len(one.killed)} times: "
        f"{one.lost} lost, {one.doubled} doubled, {one.strange} not expected, {one.early} early"
    )
    for found in checked.alone or (one,):
        if not one.ok:
            moments = ", ".join(moment.value for moment in found.killed)
            yield f"  killed at {moments}: {found.differences}; {found.early} early"
    for moment in one.missed:
        yield f"  {moment.value}: no driver was caught there"
    if not checked.is_tracked:
        yield "  it is not tracked, so nothing is known of too early"
