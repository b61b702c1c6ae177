"""Periods: how time is cut into stretches that are complete one after the other. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tracker.client.moments import parse_duration_ns
from tracker.client.updates import slot_time
from tracker.core.model import PipelineSpec, TimeKind
from tracker.core.model.slots import FOREVER, add_delay

PERIOD_TYPES = {
    "pipeline": "string", "segment": "string", "key": "string", "from_slot": "int64", "to_slot": "int64",
    "start": "time", "end": "time",
}  # fmt: skip
"""A period as a row of a table, as `tracker/view/tables.py` declares its own."""


@dataclass(frozen=True, slots=True)
class Period:
    """Slots from `from_slot` (inclusive) to `to_slot` (exclusive), of one segment or of the whole pipeline.

    start, end: the same as moments in UTC; None where slots are numbers, or beyond what datetime holds.
    The last period of a complete pipeline ends at forever.
    """

    pipeline: str
    segment: str | None
    from_slot: int
    to_slot: int
    start: datetime | None
    end: datetime | None

    @property
    def key(self) -> str:
        """Names the period, the same whoever reports it, and however often."""
        to_slot = "end" if self.to_slot == FOREVER else self.to_slot
        return f"{self.pipeline}/{self.segment or '*'}/{self.from_slot}..{to_slot}"

    def fields(self) -> dict[str, Any]:
        """As JSON shows it: key, from_slot, to_slot, and start and end as ISO texts."""
        return {
            "key": self.key,
            "from_slot": self.from_slot,
            "to_slot": self.to_slot,
            "start": self.start.isoformat() if self.start else None,
            "end": self.end.isoformat() if self.end else None,
        }

    def row(self) -> dict[str, Any]:
        """As a row by PERIOD_TYPES: whose period, and `fields`."""
        return {"pipeline": self.pipeline, "segment": self.segment, **self.fields()}

    def completed(self, at: datetime | None) -> dict[str, Any]:
        """As JSON shows it to those who wait for it: its row, and when it was complete."""
        return {**self.row(), "complete_at": moment_text(at)}


def moment_text(at: datetime | None) -> str | None:
    """A moment as it stands in all that is written of periods: ISO, with milliseconds."""
    return at.isoformat(timespec="milliseconds") if at else None


@dataclass(frozen=True, slots=True)
class Cut:
    """How time is cut: into stretches of `slots` slots, of which one begins at slot 0.

    lateness: how far min time must be beyond the end of a period for it to be complete.
    """

    slots: int
    lateness: int = 0
    slack_ns: int | None = None
    """Width of a slot; None where slots are numbers."""

    @classmethod
    def of(cls, spec: PipelineSpec, every: int) -> Cut:
        """Periods of a pipeline: `every` in nanoseconds, or in slots where its slots are numbers. Raises
        ValueError unless it is a whole number of slots; of times, where these have rounds."""
        if spec.time is TimeKind.NUMBER:
            width, slack_ns = 1, None
        else:
            width, slack_ns = spec.slack_ns * spec.rounds, spec.slack_ns
        if every <= 0 or every % width:
            raise ValueError(
                f"periods of {every} ns are not whole slots of {width} ns: a slot belongs "
                "to one period"
            )
        return cls(every // width * spec.rounds, spec.lateness_slots, slack_ns)

    @classmethod
    def parse(cls, spec: PipelineSpec, every: str) -> Cut:
        """Periods of a length as people write it: `1h`, or a number of slots where slots are numbers. Raises
        ValueError as `of` does."""
        is_number = spec.time is TimeKind.NUMBER
        return cls.of(spec, int(every) if is_number else parse_duration_ns(every))

    def first(self, slot: int) -> int:
        """Where the first period begins that has nothing from before `slot`."""
        return -(-slot // self.slots) * self.slots

    def period(
        self, pipeline: str, segment: str | None, from_slot: int, to_slot: int | None = None
    ) -> Period:
        """The period that begins at a slot; the last one ends at forever."""
        to_slot = from_slot + self.slots if to_slot is None else to_slot
        if self.slack_ns is None:
            return Period(pipeline, segment, from_slot, to_slot, None, None)
        return Period(
            pipeline, segment, from_slot, to_slot,
            slot_time(from_slot, self.slack_ns), slot_time(to_slot, self.slack_ns),
        )  # fmt: skip

    def completes(self, to_slot: int) -> int:
        """The min time by which a period that ends at a slot is complete."""
        return add_delay(to_slot, self.lateness)
