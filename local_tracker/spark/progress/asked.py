"""What Spark's planning asks of a tracker, in a Python process of the driver's that Spark starts for it.

Options are texts, as Spark has them; rows are tuples of what Spark takes as values.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from local_tracker.spark.progress.streams import CompletedStream, MinTimeStream, Stream
from tracker.client.admin import Admin
from tracker.client.connection import SecureTarget
from tracker.client.credentials import Credentials
from tracker.core.model import RefusalCode
from tracker.errors import InvalidError, LowmarkError, RefusedError, UnavailableError
from tracker.view.tables import MIN_TIMES, TABLES, Rows, Table, Types

FIRST_TABLE = "min_times"
"""The table that is read where none is named: the one whose rows streams have, too."""
PROGRESS, COMPLETED = "lowmark", "lowmark.completed"
"""The formats, by their names in Spark."""
OPTIONS = {
    PROGRESS: ("table", "pipeline", "segment"),
    COMPLETED: ("pipeline", "segment", "every", "since"),
}
"""By format, what may be given."""


@dataclass(frozen=True)
class Asked:
    """A tracker, as it was registered in plain values, and how long it is asked. credentials: paths; None: those of
    the environment of Spark's driver."""

    addresses: tuple[str, ...]
    credentials: tuple[str, str, str, str] | None
    timeout_s: float

    @property
    def target(self) -> Sequence[str]:
        if self.credentials is None:
            return self.addresses
        return SecureTarget(self.addresses, Credentials(*self.credentials))

    def types(self, format: str, options: Mapping[str, str]) -> Types:
        """The columns of a format. Raises InvalidError."""
        _check(format, options)
        return CompletedStream.types if format == COMPLETED else _table(options).types

    def rows(
        self, format: str, options: Mapping[str, str], named: frozenset[str] | None
    ) -> list[tuple[Any, ...]]:
        """All rows that there are now. named: of these pipelines alone, whether they are there or not. Raises
        InvalidError, RefusedError, UnavailableError."""
        types = self.types(format, options)
        if format == COMPLETED:
            with self.stream(format, options) as stream:
                return as_tuples(stream.between(stream.initial(), stream.latest()), types)
        with Admin(self.target, self.timeout_s) as admin:
            found = _rows(_table(options), admin, options.get("pipeline"), named)
        if "segment" in options:
            found = [row for row in found if row.get("segment") == options["segment"]]
        return as_tuples(found, types)

    def min_time(self, pipeline: str, segment: str | None) -> list[tuple[Any, ...]]:
        """The row of one segment; None: of the whole pipeline. Raises InvalidError for a segment that is unknown, and as
        `rows`."""
        with Admin(self.target, self.timeout_s) as admin:
            rows = {row["segment"]: row for row in MIN_TIMES.rows(admin, [pipeline])}
        if segment not in rows:
            known = ", ".join(name for name in rows if name)
            raise InvalidError(f"pipeline {pipeline!r} has no segment {segment!r}; it has {known}")
        return as_tuples([rows[segment]], MIN_TIMES.types)

    def stream(self, format: str, options: Mapping[str, str]) -> Stream:
        """Raises InvalidError."""
        self.types(format, options)  # which refuses what cannot be
        pipeline, segment = options.get("pipeline"), options.get("segment")
        if not pipeline:
            raise InvalidError(
                f"a stream of {format} is of one pipeline: name it by .option('pipeline', NAME)"
            )
        if format == COMPLETED:
            return CompletedStream(
                self.target, pipeline, segment, self.timeout_s,
                options.get("every", "1h"), options.get("since"),
            )  # fmt: skip
        if options.get("table", FIRST_TABLE) != FIRST_TABLE:
            raise InvalidError(
                f"table {options['table']!r} is read at once, by spark.read; a stream of {format} is of {FIRST_TABLE}"
            )
        return MinTimeStream(self.target, pipeline, segment, self.timeout_s)


def _check(format: str, options: Mapping[str, str]) -> None:
    known = OPTIONS[format]
    if unknown := sorted(set(options) - set(known)):
        raise InvalidError(
            f"format {format} has no option {unknown[0]!r}; it has {', '.join(known)}"
        )


def _table(options: Mapping[str, str]) -> Table:
    name = options.get("table", FIRST_TABLE)
    if name not in TABLES:
        raise InvalidError(f"there is no table {name!r}; there are {', '.join(TABLES)}")
    return TABLES[name]


def _rows(table: Table, admin: Admin, pipeline: str | None, named: frozenset[str] | None) -> Rows:
    if pipeline is not None:
        return table.rows(admin, [pipeline])
    if named is None:
        found = table.rows(admin, ())
        if admin.silent_groups:
            raise UnavailableError(
                f"table of all pipelines: groups {sorted(admin.silent_groups)} do not answer, whose pipelines would be left out "
                f"({'; '.join(admin.silent_groups.values())}); name a pipeline, or filter by one"
            )
        return found
    found = []
    for name in sorted(named):
        try:
            found += table.rows(admin, [name])
        except RefusedError as error:
            # Whoever filters by a name gets no rows where there is none.
            if error.refusal.code is not RefusalCode.UNKNOWN_PIPELINE:
                raise
    return found


def named_by(filters: Iterable[Any]) -> frozenset[str] | None:
    """The pipelines that Spark's filters, of which each holds, leave over; None: any."""
    named: frozenset[str] | None = None
    for each in filters:
        kind = type(each).__name__
        if getattr(each, "attribute", None) != ("pipeline",) or kind not in ("EqualTo", "In"):
            continue
        these = frozenset(each.value if kind == "In" else (each.value,))
        named = these if named is None else named & these
    return named


def constant(what: str, argument: Any) -> str | None:
    """What a query gives a table function as a text, once and for all; None where it gives none, or NULL. argument: as
    Spark analyses it. Raises InvalidError."""
    if argument is None:
        return None
    value = argument.value
    if not argument.isConstantExpression or not isinstance(value, str | None):
        raise InvalidError(
            f"the {what} is not one text, such as 'orders': columns and numbers cannot name it"
        )
    return value


def as_tuples(rows: Rows, types: Types) -> list[tuple[Any, ...]]:
    """Rows in the order of their columns, with moments for ISO texts."""

    def value(row: Mapping[str, Any], name: str) -> Any:
        found = row.get(name)
        return datetime.fromisoformat(found) if found and types[name] == "time" else found

    return [tuple(value(row, name) for name in types) for row in rows]


def struct(types: Types) -> Any:
    """The columns as Spark's StructType."""
    from pyspark.sql import types as t

    made = {
        "string": t.StringType(), "int64": t.LongType(), "bool": t.BooleanType(), "time": t.TimestampType(),
    }  # fmt: skip
    return t.StructType([t.StructField(name, made[kind]) for name, kind in types.items()])


@contextmanager
def for_people() -> Iterator[None]:
    """Around what a process of Spark's asks that plans, and ends where it fails: its user reads what is wrong and what to
    do, and none of the frames."""
    try:
        yield
    except UnavailableError as error:
        _hide_frames()
        raise UnavailableError(
            f"{error}; see whether it runs, or name another address: lowmark.spark.register(spark, 'host:port')",
            error.code,
        ) from None
    except (LowmarkError, ValueError):
        _hide_frames()
        raise


def _hide_frames() -> None:
    os.environ["SPARK_HIDE_TRACEBACK"] = "1"
