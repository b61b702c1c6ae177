"""Marker files: `_COMPLETE` in a table's partition folder when its period is, for whoever looks for files.

A marker is JSON and says which period it is of. It is written whole, once, and never before the period is
complete; a folder without data gets one too, since "there is nothing" is an answer. Readers of the table
pass over names that begin with `_`.
"""

from __future__ import annotations

import json
import os
import posixpath

from tracker.consumers.periods import Period, PeriodFollower
from tracker.core.model.slots import FOREVER
from tracker.files import STORES, child, scheme

MARKER = "_COMPLETE"
MAX_LAST_FOLDERS = 100_000
"""Of the last period, which has no end: how many folders beyond its beginning are looked at."""


class Markers:
    """Marks the partition folders of one table, one for each period of a follower."""

    def __init__(
        self,
        follower: PeriodFollower,
        table: str | os.PathLike[str],
        layout: str,
        name: str = MARKER,
    ) -> None:
        """layout: the path of a period's folder below the table, by strftime of its start in UTC, such as
        `date=%Y-%m-%d/hour=%H`; `{slot}` in it is the first slot of the period."""
        self._follower, self._layout, self._name = follower, layout, name
        self._table = STORES.location(os.fspath(table))
        self._files = STORES.files(self._table)

    def folder(self, period: Period) -> str:
        """The location of a period's partition folder. Raises ValueError if the layout cannot name it."""
        text = self._layout.replace("{slot}", str(period.from_slot))
        if "%" in text:
            if period.start is None:
                raise ValueError(
                    f"layout {self._layout!r} names moments, and period {period.key} has none; use {{slot}}"
                )
            text = period.start.strftime(text)
        below = posixpath.normpath(text)
        if below.startswith(("../", "/")) or below == "..":
            raise ValueError(f"layout {self._layout!r} leads out of the table, to {text}")
        folder = self._table if below == "." else child(self._table, below)
        if not scheme(folder):  # links may lead anywhere
            real, table = os.path.realpath(folder), os.path.realpath(self._table)
            if os.path.commonpath([real, table]) != table:
                raise ValueError(f"layout {self._layout!r} leads out of the table, to {real}")
        return folder

    def run(self, timeout_s: float | None = None) -> int:
        """Marks each period when it is complete; ends as `PeriodFollower.completed` does. Returns how many
        periods were dealt with. A marker that is there is left as it is: whoever was killed between marking
        and noting it just goes on. Raises FilesError, and what the follower raises."""
        dealt_with = 0
        for period in self._follower.completed(timeout_s):
            if period.to_slot == FOREVER:
                self._mark_last(period)
            else:
                self._mark(period)
            self._follower.done(period)
            dealt_with += 1
        return dealt_with

    def _mark(self, period: Period) -> None:
        marker = child(self.folder(period), self._name)
        if self._files.size(marker) is not None:
            return
        at = self._follower.announced(period)
        content = json.dumps(period.completed(at.isoformat() if at else None))
        self._files.create(marker, content.encode() + b"\n")

    def _mark_last(self, last: Period) -> None:
        """Everything is complete from here on: the folders that there are get their markers, up to the
        last one of MAX_LAST_FOLDERS periods."""
        periods = self._follower.periods
        for index in range(MAX_LAST_FOLDERS):
            from_slot = last.from_slot + index * periods.slots
            if from_slot >= FOREVER - periods.slots:
                return
            period = periods.period(last.pipeline, last.segment, from_slot)
            if self._layout and "%" in self._layout and period.start is None:
                return
            if self._files.is_directory(self.folder(period)):
                self._mark(period)
