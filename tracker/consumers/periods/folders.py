"""Marks in partition folders: a file such as `_SUCCESS` in a table's folder of a period.

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

from tracker.consumers.periods.cut import Cut, Period
from tracker.consumers.periods.names import PeriodNames
from tracker.core.model.slots import FOREVER
from tracker.errors import Code, StateError
from tracker.files import STORES, child, scheme

SUCCESS = "_SUCCESS"
"""What Hive's and Paimon's readers look for."""
MAX_LAST_FOLDERS = 100_000
"""Of the last period, which has no end: how many folders beyond its beginning are looked at."""
MAX_MARKER_BYTES = 1 << 16
"""The largest file that is taken for a marker."""


class PartitionMark:
    """Marks the partition folders of one table, one for each period. Found done: its file is there."""

    def __init__(self, cut: Cut, template: str, name: str = SUCCESS) -> None:
        """template: a table's location and the path of a period's folder below it, as `PeriodNames` takes it, such as
        `s3://lake/orders/dt={start:%Y-%m-%d}/hour={start:%H}`: what has no name of a period in it, up to a slash, is the
        table. name: of the files. Raises ValueError, and FilesError where there is no way to the table."""
        table, slash, _ = template.partition("{")[0].rpartition("/")
        if not slash or not table:
            raise ValueError(f"{template!r} is no location with a partition folder below it")
        self._cut, self._layout, self._name = cut, template[len(table) + 1 :], name
        self._names = PeriodNames(self._layout, cut)
        self._table = STORES.location(table)
        self._files = STORES.files(self._table)

    @property
    def name(self) -> str:
        return f"the partition folders of {self._table}"

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

    def is_done(self, period: Period) -> bool:
        """Whether the folder has its file. Raises StateError where that is another period's."""
        if period.to_slot == FOREVER:
            return False  # its folders are asked one by one
        marker = self._marker(period)
        found = self._files.read_whole(marker, MAX_MARKER_BYTES)
        if found is not None and _key(found) not in (None, period.key):
            raise StateError(
                f"{marker} is the mark of period {_key(found)}, not of {period.key}: two followers, or "
                f"two periods, have one folder; give each a layout or a file name of its own",
                Code.STATE_RECEIVER,
            )
        return found is not None

    def do(self, period: Period, at: datetime | None) -> None:
        if period.to_slot == FOREVER:
            self._do_last(period, at)
            return
        now_ms = time.time_ns() // 10**6
        content = {**period.completed(at), "creationTime": now_ms, "modificationTime": now_ms}
        self._files.create(self._marker(period), json.dumps(content).encode() + b"\n")

    def _do_last(self, last: Period, at: datetime | None) -> None:
        """Everything is complete from here on: the folders that there are get their markers, up to the
        last one of MAX_LAST_FOLDERS periods."""
        for index in range(MAX_LAST_FOLDERS):
            from_slot = last.from_slot + index * self._cut.slots
            if from_slot >= FOREVER - self._cut.slots:
                return
            period = self._cut.period(last.pipeline, last.segment, from_slot)
            if self._cut.slack_ns is not None and period.end is None:
                return
            if self._files.is_directory(self.folder(period)) and not self.is_done(period):
                self.do(period, at)

    def _marker(self, period: Period) -> str:
        return child(self.folder(period), self._name)


def _key(content: bytes) -> str | None:
    """The period that a marker is of; None if it is somebody else's file."""
    try:
        return str(json.loads(content)["key"])
    except (KeyError, RecursionError, TypeError, ValueError):
        return None
