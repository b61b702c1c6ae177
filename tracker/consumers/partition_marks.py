"""Marks in partition folders: a file such as `_COMPLETE` or `_SUCCESS` in a table's folder of a period.

The file is JSON and says which period it is of, and with the fields of Paimon's own success file, when it
was written. It is written whole, once, and never before the period is complete; a folder without data gets
one too, since "there is nothing" is an answer. Readers of the table pass over names that begin with `_`.
"""

from __future__ import annotations

import json
import os
import posixpath
import time
from datetime import datetime

from tracker.consumers.marks import MarkError, PeriodNames
from tracker.consumers.periods import Period, Periods
from tracker.core.model.slots import FOREVER
from tracker.files import STORES, child, scheme

MARKER = "_COMPLETE"
SUCCESS = "_SUCCESS"
"""What Hive's and Paimon's readers look for."""
MAX_LAST_FOLDERS = 100_000
"""Of the last period, which has no end: how many folders beyond its beginning are looked at."""
MAX_MARKER_BYTES = 1 << 16
"""The largest file that is taken for a marker."""


class PartitionMark:
    """Marks the partition folders of one table, one for each period of a follower."""

    def __init__(
        self, periods: Periods, table: str | os.PathLike[str], layout: str, name: str = SUCCESS
    ) -> None:
        """layout: the path of a period's folder below the table, as `PeriodNames` takes it, such as
        `date={start:%Y-%m-%d}/hour={start:%H}`. Raises ValueError, and FilesError where there is no way to
        the table."""
        self._periods, self._layout, self._name = periods, layout, name
        self._names = PeriodNames(layout, periods)
        self._table = STORES.location(os.fspath(table))
        self._files = STORES.files(self._table)

    def folder(self, period: Period) -> str:
        """The location of a period's partition folder. Raises ValueError if the layout cannot name it."""
        text = self._names.of(period)
        below = posixpath.normpath(text)
        if below.startswith(("../", "/")) or below == "..":
            raise ValueError(f"layout {self._layout!r} leads out of the table, to {text}")
        folder = self._table if below == "." else child(self._table, below)
        if not scheme(folder):  # links may lead anywhere
            real, table = os.path.realpath(folder), os.path.realpath(self._table)
            if os.path.commonpath([real, table]) != table:
                raise ValueError(f"layout {self._layout!r} leads out of the table, to {real}")
        return folder

    def mark(self, period: Period, at: datetime | None) -> None:
        """A file that is there is left as it is. Raises MarkError if it is of another period."""
        if period.to_slot == FOREVER:
            self._mark_last(period, at)
        else:
            self._mark(period, at)

    def _mark(self, period: Period, at: datetime | None) -> None:
        marker = child(self.folder(period), self._name)
        found = self._files.read_whole(marker, MAX_MARKER_BYTES)
        if found is not None:
            if _key(found) not in (None, period.key):
                raise MarkError(
                    f"{marker} is the mark of period {_key(found)}, not of {period.key}: two followers, or "
                    f"two periods, have one folder; give each a layout or a file name of its own"
                )
            return
        now_ms = time.time_ns() // 10**6
        content = {
            **period.completed(at.isoformat() if at else None),
            "creationTime": now_ms, "modificationTime": now_ms,
        }  # fmt: skip
        self._files.create(marker, json.dumps(content).encode() + b"\n")

    def _mark_last(self, last: Period, at: datetime | None) -> None:
        """Everything is complete from here on: the folders that there are get their markers, up to the
        last one of MAX_LAST_FOLDERS periods."""
        for index in range(MAX_LAST_FOLDERS):
            from_slot = last.from_slot + index * self._periods.slots
            if from_slot >= FOREVER - self._periods.slots:
                return
            period = self._periods.period(last.pipeline, last.segment, from_slot)
            if self._periods.slack_ns is not None and period.end is None:
                return
            if self._files.is_directory(self.folder(period)):
                self._mark(period, at)


def partition_mark(periods: Periods, template: str) -> PartitionMark:
    """`_SUCCESS` in the folders that a template names, location and layout in one, such as
    `s3://lake/orders/dt={start:%Y-%m-%d}`. Raises ValueError and FilesError."""
    table, slash, layout = template.partition("{")[0].rpartition("/")
    if not slash or not table:
        raise ValueError(f"{template!r} is no location with a partition folder below it")
    return PartitionMark(periods, table, layout + template[len(table) + 1 + len(layout) :])


def strftime_layout(layout: str) -> str:
    """A layout that is strftime of the period's start as a whole, as `PeriodNames` takes it."""
    return f"{{start:{layout}}}" if "%" in layout else layout


def _key(content: bytes) -> str | None:
    """The period that a marker is of; None if it is somebody else's file."""
    try:
        return str(json.loads(content)["key"])
    except (KeyError, RecursionError, TypeError, ValueError):
        return None
