"""Periods: each hour (or any stretch of slots) is reported once it is complete, none skipped and none twice.

    periods = Periods.of(spec, parse_duration_ns("1h"))
    with PeriodFollower(target, "orders", "load", periods, "/data/report/periods.json") as follower:
        for period in follower.completed():
            ...                         # one call a period, in order, also when min time has jumped
            follower.done(period)

A period is complete when min time has reached its end (and the lateness that the fronts vouch for). It is
known by its key, which is the same after every restart. The follower's record says which period is next:
one that was given out and not done is given out again, under its key.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tracker.client.admin import Admin
from tracker.client.closing import Closing
from tracker.client.history import history, moment
from tracker.client.moments import parse_duration_ns
from tracker.client.subscriber import Subscriber
from tracker.client.updates import slot_time
from tracker.consumers.durable import StateError, state_at
from tracker.core.cut.history import Reached
from tracker.core.model import PipelineSpec, TimeKind
from tracker.core.model.slots import FOREVER, add_delay

MAX_BACKLOG = 100_000
"""Periods that may lie between a follower's beginning and min time; more are a mistake: a pipeline that
begins in 1970, say."""


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
        """Names the period, the same whoever tells it, and however often."""
        to_slot = "end" if self.to_slot == FOREVER else self.to_slot
        return f"{self.pipeline}/{self.segment or '*'}/{self.from_slot}..{to_slot}"

    def fields(self) -> dict[str, Any]:
        """As JSON tells it: key, from_slot, to_slot, and start and end as ISO texts."""
        return {
            "key": self.key,
            "from_slot": self.from_slot,
            "to_slot": self.to_slot,
            "start": self.start.isoformat() if self.start else None,
            "end": self.end.isoformat() if self.end else None,
        }

    def completed(self, at: str | None) -> dict[str, Any]:
        """As JSON tells those who wait for it: whose period, `fields`, and when it was complete."""
        whose = {"pipeline": self.pipeline, "segment": self.segment}
        return {**whose, **self.fields(), "complete_at": at}


@dataclass(frozen=True, slots=True)
class Periods:
    """How time is cut: into stretches of `slots` slots, of which one begins at slot `offset`.

    lateness: how far min time must be beyond the end of a period for it to be complete.
    """

    slots: int
    offset: int = 0
    lateness: int = 0
    slack_ns: int | None = None
    """Width of a slot; None where slots are numbers."""

    @classmethod
    def of(cls, spec: PipelineSpec, every: int, offset: int = 0) -> Periods:
        """Periods of a pipeline: `every` and `offset` in nanoseconds, or in slots where its slots are
        numbers. Raises ValueError unless both are whole numbers of slots; of times, where these have rounds."""
        if spec.time is TimeKind.NUMBER:
            width, slack_ns = 1, None
        else:
            width, slack_ns = spec.slack_ns * spec.rounds, spec.slack_ns
        if every <= 0 or every % width or offset % width:
            raise ValueError(
                f"periods of {every} from {offset} ns are not whole slots of {width} ns: a slot belongs "
                "to one period"
            )
        slots, begin = every // width * spec.rounds, offset // width * spec.rounds
        return cls(slots, begin, spec.lateness_slots, slack_ns)

    @classmethod
    def parse(cls, spec: PipelineSpec, every: str) -> Periods:
        """Periods of a length as people write it: `1h`, or a number of slots where slots are numbers. Raises
        ValueError as `of` does."""
        is_number = spec.time is TimeKind.NUMBER
        return cls.of(spec, int(every) if is_number else parse_duration_ns(every))

    def first(self, slot: int) -> int:
        """Where the first period begins that has nothing from before `slot`."""
        return self.offset - (self.offset - slot) // self.slots * self.slots

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


class PeriodFollower(Closing):
    """One consumer's way through the periods of a segment (None: of the whole pipeline), remembered in a
    file of its own (None: not remembered). One process at a time uses it."""

    def __init__(
        self,
        target: str | Sequence[str],
        pipeline: str,
        segment: str | None,
        periods: Periods,
        record: str | os.PathLike[str] | None = None,
        *,
        since: int | datetime | None = None,
    ) -> None:
        """since: the slot or moment at which it begins, if its record does not say where it is: with the first
        period that has nothing from before. The pipeline's start if not given."""
        self.target, self.pipeline, self.segment, self.periods = target, pipeline, segment, periods
        self._since = since
        self._file = None if record is None else state_at(record)
        self._subscriber = Subscriber(target, pipeline)
        self._next: int | None = None

    def completed(self, timeout_s: float | None = None) -> Iterator[Period]:
        """The periods that are complete and not done, in order, then each when it becomes so; ends after
        `timeout_s` seconds without one (None: never). The next one is given out when the one before is
        done; if it is not, it is given out again.

        When the pipeline has become complete, there are the periods that min time has passed on its way,
        and then a last one from there to forever: where its data ends, the tracker does not know. Raises
        RefusedError, StateError, and ValueError where more than MAX_BACKLOG periods are due.
        """
        while (began := self._position()) != FOREVER:
            end = min(began + self.periods.slots, FOREVER)
            needed = self.periods.completes(end)
            if not self._subscriber.wait_until(needed, self.segment, timeout_s):
                return
            if self._subscriber.min_time(self.segment) == FOREVER and not self._passed(needed):
                end = FOREVER
            yield self.periods.period(self.pipeline, self.segment, began, end)

    def _passed(self, needed: int) -> bool:
        """Of a complete segment: whether min time was there before it became so. The history knows, by
        the min time of the announcement that passed the slot."""
        return self._reached(needed).min_time != FOREVER

    def announced(self, period: Period) -> datetime | None:
        """When the min time was announced by which a period is complete; None if nobody remembers."""
        told = self._reached(self.periods.completes(period.to_slot))
        return moment(told.at_ms) if told.at_ms else None

    def _reached(self, slot: int) -> Reached:
        return history(self.target, self.pipeline, [slot], self.segment)[0]

    def done(self, period: Period) -> None:
        """The period was dealt with for good. May be repeated; raises StateError if it is not the next."""
        position = self._position()
        if position == period.to_slot:
            return
        if position != period.from_slot:
            raise StateError(
                f"period {period.key} is not due: the next one begins at slot {position}"
            )
        self._next = period.to_slot
        if self._file is not None:
            self._file.write({**self._whose(), "next": period.to_slot})

    def _whose(self) -> dict[str, object]:
        return {
            "pipeline": self.pipeline, "segment": self.segment,
            "slots": self.periods.slots, "offset": self.periods.offset,
        }  # fmt: skip

    def _position(self) -> int:
        """Where the next period begins. Where there is no record, the first answer is written down: so
        that it does not depend on when somebody asks."""
        if self._next is not None:
            return self._next
        state = None if self._file is None else self._file.read()
        if state is not None:
            if any(state.get(name) != value for name, value in self._whose().items()) or (
                type(state.get("next")) is not int
            ):
                assert self._file is not None
                raise StateError(
                    f"{self._file.path} is the record of other periods: {state}; give these a file of "
                    "their own"
                )
            self._next = int(state["next"])
        else:
            self._next = self._begin()
            if self._file is not None:
                self._file.write({**self._whose(), "next": self._next})
        return self._next

    def _begin(self) -> int:
        since = self._since
        if since is None:
            with Admin(self.target) as admin:
                since = admin.pipeline(self.pipeline).spec.start_slot
        else:
            since = self._subscriber.slot_until(since)
        began = self.periods.first(since)
        now = self._subscriber.min_time(self.segment)
        due = 0 if now == FOREVER else (now - began) // self.periods.slots
        if due > MAX_BACKLOG:
            raise ValueError(
                f"pipeline {self.pipeline!r}: {due} periods of {self.periods.slots} slots lie between slot "
                f"{since} and min time {now}, the limit is {MAX_BACKLOG}; begin later (since), or let the "
                "pipeline's start be written down"
            )
        return began

    def close(self) -> None:
        self._subscriber.close()
        if self._file is not None:
            self._file.release()

    def __enter__(self) -> PeriodFollower:
        if self._file is not None:
            self._file.hold()
        return self
