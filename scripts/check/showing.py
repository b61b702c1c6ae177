"""The record of all checks as a table: on the terminal, and in docs/verification.md."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from rich.console import Console
from rich.table import Table
from rich.text import Text

from scripts.check.record import PAGE, Record, Result, Status
from scripts.check.registry import QUICK, SABOTAGE, WHOLE, Check
from scripts.marked import between

BEGIN = "<!-- checks: written by python -m scripts.check --page -->\n"
END = "<!-- end of checks -->"
STYLES = {Status.OK: "green", Status.FAILED: "red", Status.BROKEN: "red", Status.SKIPPED: "yellow"}
PIPED_WIDTH = 160
"""Columns where there is no terminal to ask."""
GAP = 2
"""Between columns."""
LEAST_WIDTH = 40
"""Of a summary on a narrow terminal."""
LINE_WIDTH = 120
"""Of a summary on the page: the summary of a check that counts a hundred things is cut in its middle."""


def show(results: Iterable[Result], code: str) -> None:
    """One table; results of another commit than `code` are dim."""
    table = Table(box=None, pad_edge=False)
    for title in ("check", "form", "status", "seconds", "commit", "last line"):
        table.add_column(title, no_wrap=True, justify="right" if title == "seconds" else "left")
    console, rows = terminal(), list(results)
    fields = [(each.check, each.form, each.status, "seconds", each.commit) for each in rows]
    others = sum(max(map(len, column)) + GAP for column in zip(*fields, strict=True))
    width = max(LEAST_WIDTH, console.width - others)
    for each in rows:
        table.add_row(
            each.check, each.form, Text(each.status, style=STYLES[each.status]),
            f"{each.seconds:.0f}", each.commit, Text(cut(_words(each), width)),
            style="" if each.commit == code else "dim",
        )  # fmt: skip
    console.print(table)


def terminal() -> Console:
    """Where tables are printed."""
    return Console(width=None if os.isatty(1) else PIPED_WIDTH, highlight=False)


def cut(text: str, width: int) -> str:
    """A text no longer than `width`, without its middle."""
    half = (width - 3) // 2
    return text if len(text) <= width else f"{text[:half]}...{text[-half:]}"


def _words(result: Result) -> str:
    """A summary without what other columns say."""
    return result.line.removeprefix(f"{result.check}: ").removeprefix(f"{result.status} ")


def page_rows(checks: Mapping[str, Check], record: Record) -> list[str]:
    """The table of the page: of each check its whole run, or its quick one where there is none, then what its
    sabotages came to."""
    rows = [
        "| check | form | came to | seconds | commit | sabotages found |",
        "|---|---|---|---|---|---|",
    ]
    for check in checks.values():
        found = [record.of(check.name, f"{SABOTAGE}={each}") for each in check.sabotages]
        seen = sum(each is not None and each.status is Status.OK for each in found)
        sabotages = f"{seen} of {len(found)}" if found else "none there"
        last = record.of(check.name, WHOLE) or record.of(check.name, QUICK)
        if last is None:
            rows.append(f"| `{check.name}` | | not recorded | | | {sabotages} |")
            continue
        line = cut(_words(last), LINE_WIDTH).replace("|", "\\|")
        rows.append(
            f"| `{check.name}` | {last.form} | **{last.status}** `{line}` | {last.seconds:.0f} "
            f"| `{last.commit}` | {sabotages} |"
        )
    return rows


def written(page: str, rows: list[str]) -> str:
    """The page with these rows between its marks."""
    return between(page, (BEGIN, END), "\n".join(rows) + "\n", PAGE, "the checks")
