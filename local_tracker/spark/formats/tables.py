"""Tables that a query reads or writes: which ones, and where their logs are."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from local_tracker.spark.formats.interface import TableReader, TableSource, TableWriter, Taken
from local_tracker.spark.formats.registry import table_format, table_formats
from tracker.files import Stores

_VERSIONS = re.compile(r"(.+)@(\d+)(?:-(\d+))?")


class Tables:
    """The tables that a query reads, by its sources' numbers. Where there is no plan, a source's table is
    found among those that are named, by what its offsets say."""

    def __init__(
        self,
        stores: Stores,
        segment_of: Callable[[str], int | None],
        named: Iterable[str],
        planned: Mapping[str, TableSource] | None,
        first_versions: Mapping[str, int],
        untracked: Mapping[str, list[range]],
    ) -> None:
        """segment_of: the segment of a location; None if it is not tracked. named: the locations in which
        tables may be. planned: the tables of the plan, by the sources' numbers; None without a plan.
        first_versions: where sources began, by their numbers. untracked: by location, versions that are
        not tracked. Raises TableRefused."""
        self._stores, self._segment_of, self._named = stores, segment_of, tuple(named)
        self._planned, self._first, self._untracked = planned, first_versions, untracked
        self._found: dict[str, _Table] = {}
        for number, source in (planned or {}).items():
            self._add(number, source)

    def segments(self) -> set[int]:
        """Of the tables that are known by now."""
        return {t.segment for t in self._found.values() if t.segment is not None}

    def reads(self, number: str, offset: str) -> bool:
        """Whether a source, whose offset this is, reads a table that is known."""
        return self._table(number, offset) is not None

    def taken(self, number: str, before: str | None, after: str) -> tuple[int, Taken] | None:
        """The segment of the source's table, and what a batch took of it; None where it is no table, or
        not tracked. Raises FilesError and TableRefused."""
        found = self._table(number, after)
        if found is None or found.segment is None:
            return None
        return found.segment, found.reader.taken(before, after)

    def shown(self, unit: str) -> str | None:
        """A unit of one of these tables, as people know it; None for another one."""
        for table in self._found.values():
            if (shown := table.reader.shown(unit)) is not None:
                return shown
        return None

    def location(self, number: str) -> str | None:
        """Of the table that a source reads; None where it is not known to read one."""
        return None if (found := self._found.get(number)) is None else found.location

    @staticmethod
    def format_of(offset: str) -> str | None:
        """The format of the table whose source an offset is of; None for another source."""
        try:
            value = json.loads(offset)
        except (RecursionError, ValueError):
            return None
        return next((each.name for each in table_formats() if each.is_offset(value)), None)

    def _table(self, number: str, offset: str) -> _Table | None:
        if number not in self._found and self._planned is None and self.format_of(offset):
            self._find(number, offset)
        return self._found.get(number)

    def _find(self, number: str, offset: str) -> None:
        for location in self._named:
            source = table_at(location, self._stores)
            if source is None or source.format != self.format_of(offset):
                continue
            self._add(number, source)
            if self._found[number].reader.reads(offset):
                return
            del self._found[number]

    def _add(self, number: str, source: TableSource) -> None:
        location = self._stores.location(source.location)
        untracked = self._untracked.get(location, ())
        fmt = table_format(source.format)
        reader = fmt.reader(source, self._stores, self._first.get(number), untracked)
        self._found[number] = _Table(location, self._segment_of(location), reader)


@dataclass(frozen=True, slots=True)
class _Table:
    """One that a source reads. segment: by its number; None if it is not tracked."""

    location: str
    segment: int | None
    reader: TableReader


def table_writer(table: TableSource, stores: Stores, query: str, since: int = 0) -> TableWriter:
    """Of the table that a sink writes to, and of one query. since: the first version that may be the query's."""
    return table_format(table.format).written(table, stores, query, since)


def table_at(location: str, stores: Stores) -> TableSource | None:
    """The table at a location; None if there is none."""
    where = stores.location(location)
    files = stores.files(where)
    found = (each.name for each in table_formats() if each.is_table(where, files))
    name = next(found, None)
    return None if name is None else TableSource(name, where, options=None)


def untracked_versions(
    untracked: Iterable[str], location: Callable[[str], str]
) -> dict[str, list[range]]:
    """Of what a user says is not tracked, the versions of tables, by location: `/data/t@7` is one,
    `/data/t@0-7` are all up to that."""
    found: dict[str, list[range]] = {}
    for text in untracked:
        if names_versions(text) and (match := _VERSIONS.fullmatch(text)):
            first, last = int(match[2]), int(match[3] or match[2])
            found.setdefault(location(match[1]), []).append(range(first, last + 1))
    return found


def names_versions(untracked: str) -> bool:
    """Whether what a user says is not tracked are versions of a table."""
    return "/" in untracked and _VERSIONS.fullmatch(untracked) is not None
