"""`lowmark doctor`: what would not work here, why, and what to do."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict

import typer
from rich.table import Table
from rich.text import Text

from tracker.cli.common import EXIT_REFUSED, show, wrong_usage
from tracker.cli.declared import read_text
from tracker.cli.shared import DEFAULT_TARGET, Shared
from tracker.dev.doctor import Finding, Here, State, examine
from tracker.service.settings import CONFIG_VARIABLE, read_settings

_STYLES = {State.OK: "green", State.NOTE: "yellow", State.WRONG: "red"}


def doctor(context: typer.Context) -> None:
    """Look at versions, Java, PySpark, the store, TLS, the clock, ports and the tracker: what would not work here, why, and
    what to do about it. Changes nothing.

    It reads what other commands read: --target and the credentials before the command, LOWMARK_... in the environment, and
    for `lowmark serve` LOWMARK_SERVE_CONFIG and LOWMARK_STORE.

    Exit status: 0 nothing is wrong; 1 something is.
    """
    target = Shared.of(context).target
    with wrong_usage():
        settings = read_settings(*read_text(os.environ.get(CONFIG_VARIABLE, "")), os.environ)
    found = examine(Here(target, target != DEFAULT_TARGET, settings, os.environ))
    document = {
        "ok": not any(each.state is State.WRONG for each in found),
        "findings": [{**asdict(each), "state": each.state.value} for each in found],
    }
    show(context, document, _table(found))
    if not document["ok"]:
        raise typer.Exit(EXIT_REFUSED)


def _table(found: Sequence[Finding]) -> Table:
    table = Table("what", "state")
    table.add_column("found, and what to do", overflow="fold")
    for each in found:
        state = Text(each.state.value, _STYLES[each.state])
        table.add_row(each.what, state, "; ".join(filter(None, (each.found, each.advice))))
    return table
