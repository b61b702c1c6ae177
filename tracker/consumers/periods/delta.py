"""Marks in a Delta table: a commit without rows for each period, whose `userMetadata` say which.

The commit carries an application transaction (`txn`) of the follower, whose version is the period's first
slot. It is written only at the version behind the one in which that was looked up, so of two who mark one
period one is refused and looks again. It adds and removes no file, and so conflicts with nobody's commit:
other writers go on at the next version.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING

from tracker.consumers.delta_disk import local_log
from tracker.consumers.periods.cut import Cut, Period
from tracker.consumers.periods.once import committing, needs_extra
from tracker.errors import Code, StateError

if TYPE_CHECKING:
    from deltalake import DeltaTable


class DeltaMark:
    """Marks one Delta table. How its store is reached is delta-rs's to know, by the environment.

    Found done: the table's newest transaction of these periods is at the period's first slot, or behind it.
    """

    def __init__(self, cut: Cut, table: str) -> None:
        """table: its location. Raises StateError where there is no Delta table."""
        self.name = f"Delta table {table}"
        self._cut, self._location = cut, table
        self._table = self._read()
        self._log = local_log(self._table.table_uri)

    def is_done(self, period: Period) -> bool:
        self._table = table = self._read()
        marked = table.transaction_version(self.application(period))
        if marked is None or marked < period.from_slot:
            return False
        if marked > period.from_slot:
            self._check_history(table, period, marked)
        self._sync(table.version())  # whoever has marked it may have died before that
        return True

    def application(self, period: Period) -> str:
        """Under which the transactions go: the same for all periods cut alike."""
        whose = f"{period.pipeline}/{period.segment or '*'}"
        return f"lowmark:{whose}/{self._cut.slots}"

    def _read(self) -> DeltaTable:
        try:
            from deltalake import DeltaTable
        except ModuleNotFoundError as missing:
            raise needs_extra("a mark in a Delta table", missing) from None
        with committing(self.name):
            return DeltaTable(self._location)

    def do(self, period: Period, at: datetime | None) -> None:
        """At the version behind the one that was looked at."""
        from deltalake import CommitProperties, PostCommitHookProperties, Transaction
        from deltalake.exceptions import CommitFailedError

        fields = period.completed(at)
        shown = {
            f"lowmark.{name}": str(value) for name, value in fields.items() if value is not None
        }
        properties = CommitProperties(
            custom_metadata={
                "userMetadata": json.dumps(fields),
                "isBlindAppend": True,
                # Readers that do not show userMetadata show these.
                "operationParameters": {"mode": "Append", **shown},
            },
            max_commit_retries=0,
            # Without a date, so that no retention of transactions lets go of it.
            app_transactions=[Transaction(self.application(period), period.from_slot)],
        )
        with committing(self.name, CommitFailedError):
            self._table.create_write_transaction(
                [], "append", self._table.schema(), self._table.metadata().partition_columns,
                commit_properties=properties,
                # Checkpoints and cleaning up are for those who write rows.
                post_commithook_properties=PostCommitHookProperties(
                    create_checkpoint=False, cleanup_expired_logs=False
                ),
            )  # fmt: skip
        self._sync(self._table.version() + 1)

    def _sync(self, version: int) -> None:
        if self._log is not None:
            self._log.sync(version)

    def _check_history(self, table: DeltaTable, period: Period, marked: int) -> None:
        """Of a table with later marks: raises StateError unless the period's own can be seen."""
        for commit in table.history():
            try:
                if json.loads(commit["userMetadata"])["key"] == period.key:
                    return
            except (KeyError, TypeError, ValueError):
                continue
        raise StateError(
            f"{self.name} has been marked up to the period from slot {marked}, and period "
            f"{period.key}, which is older, is not among the commits that its log still has; begin behind "
            f"slot {marked} (--since, with a new --record), or give a pipeline that was registered anew "
            f"another name",
            Code.STATE_RECEIVER,
        )
