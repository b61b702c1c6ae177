"""Where the flights stand in the topic: each airport has a partition, and writes its flights in the order in
which they come in."""

from __future__ import annotations

from examples.flights.data import AIRPORTS
from examples.lake.site import TOPIC


def partition_of(airport: str) -> int:
    return AIRPORTS.index(airport)


def record_name(partition: int, offset: int) -> str:
    """Of a record, in the history."""
    return f"{TOPIC}/{partition}/{offset}"
