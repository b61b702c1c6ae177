"""What a micro-batch took of a table whose log is read (`delta`, `iceberg`), in units."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from local_tracker.spark.query.compose import ComposeError


class TableRefused(ComposeError):
    """What a query does with a table cannot be told rightly. Names the table, the version and what to
    do."""


@dataclass(frozen=True, slots=True)
class Taken:
    """Names of units. consumed: those that the query has read whole, with this batch; held: those of
    which the batch has read something, and which are not read to their end. What the batch creates
    comes from both."""

    consumed: tuple[str, ...] = ()
    held: tuple[str, ...] = ()


class TableReader(Protocol):
    """What the batches of a query took of one table."""

    def reads(self, text: str) -> bool:
        """Whether an offset of a source of this format is of this table."""

    def taken(self, before: str | None, after: str) -> Taken:
        """What lies between two offsets, as JSON; `before` is None where the query began. Raises
        FilesError where the table's log no longer tells, and TableRefused."""

    def shown(self, unit: str) -> str | None:
        """A unit of this table, as people know it: the table's location, the version, and who wrote it;
        None for another one."""
