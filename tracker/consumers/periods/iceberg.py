"""Marks in an Iceberg table: a snapshot without new files for each period, with properties that say which,
and a tag that names it.

Snapshot and tag are one commit. The snapshot's parent is the table's current one, read after the period was
announced: all of the period is in it. The catalog takes the commit only if the main branch is still where
the tag was looked for, so of two who mark one period one is refused and looks again. Writers of rows are
refused alike, and try again on top of the mark, as they do with each other.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from tracker.consumers.periods.cut import Cut, Period
from tracker.consumers.periods.names import PeriodNames
from tracker.consumers.periods.once import committing, needs_extra
from tracker.errors import Code, StateError

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

PROPERTY = "lowmark."
"""What the names of a snapshot's properties begin with."""

_DAY_S = 86_400
_PATTERNS = (
    (_DAY_S, "%Y-%m-%d"),
    (3_600, "%Y-%m-%dT%H"),
    (60, "%Y-%m-%dT%H%M"),
    (1, "%Y-%m-%dT%H%M%S"),
)


def default_tag(cut: Cut) -> str:
    """A template for tags: the beginning of the period, as short as tells periods apart."""
    if cut.slack_ns is None:
        return "lowmark-{from_slot}"
    for unit_s, pattern in _PATTERNS:
        slots = unit_s * 10**9 // cut.slack_ns
        if slots and cut.slots % slots == 0:
            return f"lowmark-{{start:{pattern}}}"
    return "lowmark-{start:%Y-%m-%dT%H%M%S.%f}"


class IcebergMark:
    """Marks one Iceberg table. How its catalog and its store are reached is pyiceberg's to know, by its own
    configuration. Found done: the period's tag is there."""

    def __init__(
        self,
        cut: Cut,
        table: str,
        catalog: Catalog | str | None = None,
        tag: str | None = None,
        keep_ms: int | None = None,
    ) -> None:
        """table: as its catalog knows it, such as `db.orders`; catalog: one of pyiceberg's, or its name in
        pyiceberg's configuration, which has a default; tag: a template of the tags; keep_ms: how long expiring
        snapshots spares a tag, in milliseconds (None: as long as the table says). Raises ValueError, and
        StateError where there is no such table."""
        self.name = f"Iceberg table {table}"
        self._names = PeriodNames(default_tag(cut) if tag is None else tag, cut)
        self._identifier, self._keep_ms = table, keep_ms
        try:
            from pyiceberg.catalog import load_catalog
        except ModuleNotFoundError as missing:
            raise needs_extra("a mark in an Iceberg table", missing) from None
        with committing(self.name):
            by_name = catalog is None or isinstance(catalog, str)
            self._catalog: Catalog = load_catalog(catalog) if by_name else catalog
        self._table = self._read()

    def _read(self) -> Table:
        with committing(self.name):
            return self._catalog.load_table(self._identifier)

    def is_done(self, period: Period) -> bool:
        """Raises StateError where the tag is another's."""
        self._table = table = self._read()
        tag = self._names.of(period)
        if tag not in table.metadata.refs:
            return False
        snapshot = table.metadata.snapshot_by_id(table.metadata.refs[tag].snapshot_id)
        summary = snapshot.summary if snapshot is not None else None
        key = summary.additional_properties.get(f"{PROPERTY}key") if summary is not None else None
        if key != period.key:
            of = f"is the mark of period {key}" if key else "was made by somebody else"
            raise StateError(
                f"{self.name}: tag {tag!r} {of}, and period {period.key} would have the "
                f"same; give each follower of a table tags of its own (--set tag=TEMPLATE)",
                Code.STATE_RECEIVER,
            )
        return True

    def do(self, period: Period, at: datetime | None) -> None:
        """On top of the snapshot that was looked at."""
        from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
        from pyiceberg.table.update.snapshot import ManageSnapshots

        fields, table = period.completed(at), self._table
        # In this copy of the table alone: pyiceberg's own attempts would leave the tag out, and not look
        # for it.
        table.metadata.properties["commit.retry.num-retries"] = "0"
        conflicts = CommitFailedException, CommitStateUnknownException
        with committing(self.name, *conflicts), table.transaction() as transaction:
            properties = {
                f"{PROPERTY}{name}": str(value)
                for name, value in fields.items()
                if value is not None
            }
            append = transaction.update_snapshot(snapshot_properties=properties).fast_append()
            append.commit()
            tags = ManageSnapshots(transaction)
            tags.create_tag(append.snapshot_id, self._names.of(period), self._keep_ms).commit()
