"""Rows with event times, published under slots by fronts: what stateful queries take in."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.spark.support import Fronts

EVENT_SCHEMA = "slot long, row long, at_ms long, key long"


@dataclass(frozen=True, slots=True)
class Event:
    """A row: under which slot which front published it, its event time, and its key."""

    row: int
    front: str
    slot: int
    at_ms: int
    key: int


class EventFronts(Fronts):
    """Fronts whose rows have event times."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.events: list[Event] = []

    def publish_events(
        self, slot: int, by_front: Mapping[str, Sequence[tuple[int, int]]]
    ) -> list[Event]:
        """One file of each front, of events as (milliseconds, key), its tick and a promise beyond it. Fronts
        that have no events promise too."""
        new: list[Event] = []
        for front, events in by_front.items():
            first = len(self.events) + len(new)
            new += [Event(first + n, front, slot, at, key) for n, (at, key) in enumerate(events)]
        self.events += new
        for front in by_front:
            if mine := [event for event in new if event.front == front]:
                self.publish_file(slot, _parquet(mine), front)
                self.commit(front)
            else:
                self.promise(front, slot + 1)
        return new


def _parquet(events: Sequence[Event]) -> bytes:
    columns = {
        name: pa.array([getattr(event, name) for event in events], pa.int64())
        for name in ("slot", "row", "at_ms", "key")
    }
    data = io.BytesIO()
    pq.write_table(pa.table(columns), data)
    return data.getvalue()
