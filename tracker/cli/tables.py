"""Tables: for people, and for programs that read JSON or columns."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Annotated, Any

import typer
from rich.table import Table

from tracker.cli.common import print_json, show, wrong_usage
from tracker.cli.render.columns import arrow, columns
from tracker.cli.shared import Shared


class Format(Enum):
    """How a table is written."""

    TABLE = "table"
    JSON = "json"
    ARROW = "arrow"
    PARQUET = "parquet"


TableFormat = Annotated[
    Format,
    typer.Option(
        "--format",
        help="table; json; arrow: an Arrow IPC stream; parquet: a Parquet file",
    ),
]


def usable(context: typer.Context, format: Format) -> Format:
    """The format in which a table can be written to standard output. Raises typer.BadParameter."""
    if Shared.of(context).as_json:
        return Format.JSON
    if format in (Format.ARROW, Format.PARQUET):
        with wrong_usage():
            arrow()
        if sys.stdout.isatty():
            raise typer.BadParameter(
                f"--format {format.value} is not for a terminal: write it into a file (> FILE), or pipe it"
            )
    return format


def write_table(
    context: typer.Context,
    format: Format,
    rows: Sequence[Mapping[str, Any]],
    types: Mapping[str, str],
    table: Callable[[], Table],
    document: Any = None,
) -> None:
    """Writes rows in a usable format. types: as for `columns`; document: what JSON has instead of the rows alone."""
    match format:
        case Format.TABLE:
            show(context, None, table())
        case Format.JSON:
            print_json(rows if document is None else document)
        case Format.ARROW | Format.PARQUET:
            sys.stdout.buffer.write(columns(rows, types, parquet=format is Format.PARQUET))
