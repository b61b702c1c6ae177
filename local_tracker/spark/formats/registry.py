"""Finds formats: those of Lowmark, and those that other packages name as entry points of `lowmark.formats`."""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, entry_points

from local_tracker.spark.formats.interface import Format, QueryReads, SourcePlan, TableFormat
from tracker.errors import TrackingError

GROUP = "lowmark.formats"
"""Of entry points; each is a `Format`, by its name."""

_ROOM = "local_tracker.spark.formats"
_OWN = (
    ("files", f"{_ROOM}.files:FileFormat"),
    ("kafka", f"{_ROOM}.kafka:KafkaFormat"),
    ("delta", f"{_ROOM}.delta:DeltaFormat"),
    ("iceberg", f"{_ROOM}.iceberg:IcebergFormat"),
)


@cache
def formats() -> tuple[Format, ...]:
    """All there are, Lowmark's first. Raises TrackingError for an entry point that is none, or takes a name that is
    taken."""
    found: dict[str, Format] = {}
    own = [EntryPoint(name, where, GROUP) for name, where in _OWN]
    for point in (*own, *entry_points(group=GROUP)):
        made = point.load()
        if not (isinstance(made, type) and issubclass(made, Format)) or made.name != point.name:
            raise TrackingError(
                f"entry point {point.name} = {point.value} of {GROUP} is no Format of that name"
            )
        if point.name in found:
            raise TrackingError(
                f"entry point {point.name} = {point.value} of {GROUP}: there is a format of that name already"
            )
        found[point.name] = made()
    return tuple(found.values())


def format_named(name: str) -> Format:
    """By the name that Spark's `format()` has for it, in letters of any case; files, where no other has the name."""
    known = {each.name: each for each in formats()}
    return known.get(name.lower(), known["files"])


def accounted(read: QueryReads, plan: SourcePlan) -> QueryReads:
    """As `Format.reads`, by all of them."""
    for each in formats():
        read = each.reads(read, plan)
    return read


def table_formats() -> tuple[TableFormat, ...]:
    """Those of tables."""
    return tuple(each for each in formats() if isinstance(each, TableFormat))


def table_format(name: str) -> TableFormat:
    """One of tables. Raises TrackingError for another name."""
    found = format_named(name)
    if not isinstance(found, TableFormat):
        known = tuple(each.name for each in table_formats())
        raise TrackingError(f"versions are known of {known}, not of {name!r}")
    return found
