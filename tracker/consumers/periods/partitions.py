"""Which partitions of a scheduler's are complete with a period, however that cuts time. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Protocol

from tracker.consumers.periods.cut import Period
from tracker.consumers.periods.due import partition_key


class Partitions(Protocol):
    """Time cut without gaps, as Dagster's TimeWindowPartitionsDefinition is."""

    def get_partition_key_for_timestamp(self, timestamp: float) -> str: ...

    def time_window_for_partition_key(self, partition_key: str) -> Any:
        """Has an `end`, exclusive."""


def partition_keys(period: Period, partitions: Partitions) -> list[str]:
    """Of the partitions that are complete with the period, and were not with the one before: that end within it, as the
    scheduler writes them: of an hour that comes twice, as at the end of summer time, the two are told apart. A day of a time
    zone may have an hour more or less than the period; then there may be two, or none. Of the last period, whose end nobody
    knows, the one that it begins in."""
    if period.start is None:
        return [partition_key(period)]
    found: list[str] = []
    end: datetime = period.start
    while True:
        key = partitions.get_partition_key_for_timestamp(end.timestamp())
        end = partitions.time_window_for_partition_key(key).end
        if period.end is None:
            return [key]
        if end > period.end:
            return found
        found.append(key)
